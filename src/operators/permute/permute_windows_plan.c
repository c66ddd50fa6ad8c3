/* permute_windows_plan.c - when runs are cut into windows, what that costs, and the launch. */
#include "base/math.h"
#include "operators/permute/permute_config.h"
#include "skeletons/memory_cost.h"

enum { BYTES = PERMUTE_WINDOW_BYTES, SECTOR_BYTES = 32, LINE_BYTES = 128, WORD_BYTES = 4 };

/* Windows that a run may touch, wherever it starts. */
static int64_t windows_of_run(const permutation *p)
{
    return ceil_div((p->modes[p->rank - 1].size - 1) * p->bytes, BYTES) + 1;
}

static int64_t runs_of(const permutation *p)
{
    return permutation_elements(p) / p->modes[p->rank - 1].size;
}

/* Are there runs, in x and in y, which vectors do not divide? */
static ckl_status check_runs(const permutation *p)
{
    enum { COUNT_MAX = 1 << 30, RUN_BYTES_MIN = 64 };
    const permute_mode *inner = &p->modes[max_i64(p->rank, 1) - 1];
    if (p->empty || p->rank == 0 || inner->x != 1 || inner->y != 1 || inner->size * p->bytes < RUN_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s windows: no mode is a run of %d bytes or more in x and in y", p->op, RUN_BYTES_MIN);
    bool divides = inner->size * p->bytes % BYTES == 0;
    for (int i = 0; i < p->rank - 1; i++)
        divides &= p->modes[i].x * p->bytes % BYTES == 0 && p->modes[i].y * p->bytes % BYTES == 0;
    if (divides || p->bytes > WORD_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s windows: whole vectors divide all runs, or elements are longer than a word", p->op);
    if (inner->size * p->bytes > INT32_MAX - BYTES || runs_of(p) > COUNT_MAX / windows_of_run(p))
        FAIL(CKL_UNSUPPORTED, "%s windows: %" PRId64 " runs have too many windows for 32-bit numbers", p->op,
             runs_of(p));
    return CKL_OK;
}

static ckl_status choose_windows(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    permute_windows_config *c = config;
    (void)device;
    TRY(check_runs(p));
    c->bytes = p->bytes;
    c->rank = p->rank;
    return CKL_OK;
}

/* Each run shares its first and its last sector, with neighbours that are moved at the same time. */
static plan_cost cost_windows(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { OF_WINDOW = 60, OF_MODE = 9, OF_ELEMENT = 3, REGISTERS = 24 };
    const permutation *p = problem;
    const permute_windows_config *c = config;
    const double runs = (double)runs_of(p), run_bytes = (double)(p->modes[p->rank - 1].size * p->bytes);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = 2 * runs * (run_bytes + SECTOR_BYTES / 2),
        .ctas = ceil_div(runs_of(p) * windows_of_run(p), c->threads),
        .threads = c->threads,
        .registers = REGISTERS + 2 * BYTES / WORD_BYTES,
        .ctas_per_sm = PERMUTE_WINDOW_THREADS / c->threads,
        .lines = 3.0 * PERMUTE_WARP * BYTES / LINE_BYTES,
        .elements = OF_WINDOW + OF_MODE * c->rank + OF_ELEMENT * BYTES / c->bytes,
    };
    return memory_cost(&work, device);
}

static ckl_status admit_windows(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_windows_config *c = config;
    TRY(check_runs(p));
    if (c->bytes != p->bytes || c->rank != p->rank)
        FAIL(CKL_INVALID, "%s windows: bytes=%d rank=%d are not the problem's %d and %d", p->op, c->bytes, c->rank,
             p->bytes, p->rank);
    return permutation_check_threads(p, "windows", c->threads, 32, device);
}

static ckl_status launch_windows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_windows_config *c = plan->config;
    const permute_pointers *a = args;
    const int64_t count = runs_of(p) * windows_of_run(p);
    permute_windows_params params = { .x = a->x,
                                      .end = (const char *)a->x + p->bytes,
                                      .y = a->y,
                                      .count = (uint32_t)count,
                                      .run = (uint32_t)(p->modes[p->rank - 1].size * p->bytes) };
    for (int i = 0; i < p->rank; i++) {
        const permute_mode *m = &p->modes[i];
        const int64_t size = i == p->rank - 1 ? windows_of_run(p) : m->size;
        const divisor d = divisor_of(size);
        params.size[i] = (uint32_t)size;
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.stride_x[i] = m->x * p->bytes;
        params.stride_y[i] = m->y * p->bytes;
        params.end = (const char *)params.end + (m->size - 1) * m->x * p->bytes;
    }
    return plan_launch(plan, 0, (plan_grid){ .x = ceil_div(count, c->threads) }, &params, stream);
}

static const field windows_fields[] = { PERMUTE_WINDOWS_CONFIG(FIELD_ROW, permute_windows_config) };

const implementation permute_windows_implementation = {
    IMPLEMENTATION_PARTS(permute, windows),
    .summary = "runs that start anywhere: aligned vectors of y, each cut out of the two of x that hold it",
    .cost = cost_windows,
    .rivals = { &permute_boxes_implementation, &permute_gather_implementation },
    .params = &permute_windows_param_list,
};
