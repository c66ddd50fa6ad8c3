/* permute_gather_plan.c - choice, limits and launches of the kernel for any strides. */
#include "operators/permute/permute_gather.h"
#include "operators/permute/permute_launch.h"

enum { GATHER_COUNT_MAX = 1 << 30 }; // elements of one launch, so that numbers of threads without work stay below 2^31

/* May elements be `factor` times as long? Then the innermost mode must be contiguous and all else be multiples. */
static bool may_widen(const permutation *p, int factor)
{
    if (factor == 1)
        return true;
    if (p->rank == 0)
        return false;
    mode inner = p->modes[p->rank - 1];
    bool divides = inner.x == 1 && inner.y == 1 && inner.size % factor == 0;
    for (int i = 0; i < p->rank - 1; i++)
        divides &= p->modes[i].x % factor == 0 && p->modes[i].y % factor == 0;
    return divides;
}

/* Elements as long as an access, in blocks if the config says so. */
static permutation accesses_of(const permutation *p, const permute_gather_config *c, bool *blocked)
{
    permutation wide = permutation_widened(p, c->bytes / p->bytes);
    *blocked = c->block > 1 && permutation_block(&wide, c->block);
    return wide;
}

static int rank_of(const permutation *p, const permute_gather_config *c)
{
    bool blocked;
    int rank = accesses_of(p, c, &blocked).rank;
    return rank ? rank : 1;
}

/* The largest block that divides both modes; 1 where accesses are whole sectors or neighbours in y are so in x, too. */
static int block_of(const permutation *p, const permute_gather_config *chosen)
{
    permute_gather_config c = *chosen;
    bool blocked = false;
    for (c.block = 16; c.block >= 8; c.block /= 2) {
        accesses_of(p, &c, &blocked);
        if (blocked)
            return c.block;
    }
    return 1;
}

static ckl_status choose_gather(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    permute_gather_config *c = config;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s gather: tile=%d asks for the kernel tiled", p->op, p->tile);
    c->element = p->bytes;
    c->bytes = 16;
    while (!may_widen(p, c->bytes / p->bytes))
        c->bytes /= 2;
    c->block = block_of(p, c);
    c->rank = rank_of(p, c);
    int64_t count = permutation_elements(p) * p->bytes / c->bytes;
    while (c->steps > 1 && count < (int64_t)c->threads * c->steps * device->sm_count)
        c->steps /= 2;
    return CKL_OK;
}

static ckl_status admit_gather(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const permute_gather_config *c = config;
    if (c->element != p->bytes)
        FAIL(CKL_INVALID, "%s gather: element=%d is not the problem's %d", p->op, c->element, p->bytes);
    if (c->bytes < c->element || c->bytes > 16 || !is_power_of_two(c->bytes) || !may_widen(p, c->bytes / p->bytes))
        FAIL(CKL_INVALID, "%s gather: bytes=%d cannot be moved at once", p->op, c->bytes);
    bool blocked = false;
    accesses_of(p, c, &blocked);
    if (c->block < 1 || blocked != (c->block > 1) || c->rank != rank_of(p, c))
        FAIL(CKL_INVALID, "%s gather: rank=%d block=%d do not fit the problem", p->op, c->rank, c->block);
    if (c->steps < 1 || c->steps > 16)
        FAIL(CKL_INVALID, "%s gather: steps=%d is not in 1..16", p->op, c->steps);
    return check_threads(p, "gather", c->threads, 32, device);
}

static ckl_status launch_part(const ckl_plan *plan, int part, const permutation *p, const char *x, char *y,
                              ckl_stream stream)
{
    const permute_gather_config *c = plan->config;
    int64_t count = permutation_elements(p);
    parameters values = { 0 };
    pass(&values, count);
    pass(&values, (int64_t)(intptr_t)x);
    pass(&values, (int64_t)(intptr_t)y);
    for (int i = 0; i < c->rank; i++) {
        mode m = i < p->rank ? p->modes[i] : (mode){ 1, 0, 0 };
        divisor d = make_divisor((uint32_t)m.size);
        pass(&values, d.size);
        pass(&values, d.factor);
        pass(&values, d.shift);
        pass(&values, m.x * p->bytes);
        pass(&values, m.y * p->bytes);
    }
    return launch_kernel(plan, part, ceil_div(count, (int64_t)c->threads * c->steps), &values, stream);
}

/* One launch, or those of the halves of the largest mode where there are too many elements for 32-bit numbers. */
static ckl_status launch_halves(const ckl_plan *plan, int part, const permutation *p, const char *x, char *y,
                                ckl_stream stream)
{
    if (permutation_elements(p) <= GATHER_COUNT_MAX)
        return launch_part(plan, part, p, x, y, stream);
    int largest = 0;
    for (int i = 1; i < p->rank; i++)
        if (p->modes[i].size > p->modes[largest].size)
            largest = i;
    mode m = p->modes[largest];
    permutation low = *p, high = *p;
    low.modes[largest].size = m.size / 2;
    high.modes[largest].size = m.size - m.size / 2;
    TRY(launch_halves(plan, part, &low, x, y, stream));
    int64_t elements = m.size / 2;
    return launch_halves(plan, part, &high, x + elements * m.x * p->bytes, y + elements * m.y * p->bytes, stream);
}

static ckl_status launch_gather(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_gather_config *c = plan->config;
    const permute_pointers *a = args;
    if (p->empty)
        return CKL_OK;
    int part = is_aligned(a->x, c->bytes) && is_aligned(a->y, c->bytes) ? 0 : 1;
    bool blocked;
    permutation accesses = part == 0 ? accesses_of(p, c, &blocked) : *p;
    return launch_halves(plan, part, &accesses, a->x, a->y, stream);
}

static const field gather_fields[] = { PERMUTE_GATHER_CONFIG(FIELD_ROW) };

const implementation permute_gather_plan = {
    .name = "gather",
    .summary = "any strides: each thread finds its elements; copies in vectors",
    .config_bytes = sizeof(permute_gather_config),
    .config = FIELD_TABLE(gather_fields),
    .choose = choose_gather,
    .admit = admit_gather,
    .describe = permute_gather,
    .kernels = 2,
    .target = IR_SM80,
    .launch = launch_gather,
};
