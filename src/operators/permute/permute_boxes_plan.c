/* permute_boxes_plan.c - choice of the box that a CTA moves, its cost, and the launch. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "operators/permute/permute_boxes.h"
#include "skeletons/memory_cost.h"

enum { SECTOR_BYTES = 32, WORD_BYTES = 4, KB = 1024, CHUNK = PERMUTE_CHUNK_BYTES };
enum { BOX_BYTES = 16 * KB }; // of runs that are alike in x and y: so many come in one box

/* A box: modes in the order in which the kernel has them, those of a run of y first. */
typedef struct box {
    int rank, run, across, more;
    int inside;                       // modes of the box: those three
    bool in_run_x[PERMUTE_MODES_MAX]; // do runs of x go along a mode?
    permute_mode modes[PERMUTE_MODES_MAX];
    int64_t size[PERMUTE_MODES_MAX]; // of the box
    int64_t smem[PERMUTE_MODES_MAX]; // bytes between neighbours in shared memory
    int64_t run_x, run_y;            // elements of a run
    int64_t runs_x, runs_y;
    int64_t smem_bytes;
    int64_t count; // boxes of the problem
} box;

static int word_elements(int bytes)
{
    return bytes < WORD_BYTES ? WORD_BYTES / bytes : 1;
}

/* Makes a run of up to `want` elements: whole modes as long as they fit, then an equal share of one, whole sectors. */
static void grow(const permutation *p, bool in_x, int64_t want, int64_t *size)
{
    int64_t stride = 1;
    for (int i; want > 1 && (i = permutation_mode_at(p, in_x, stride)) >= 0;
         stride *= p->modes[i].size, want /= p->modes[i].size) {
        const int64_t all = p->modes[i].size, even = ceil_div(all, ceil_div(all, min_i64(all, want)));
        const int64_t cut = stride == 1 ? round_up(even, SECTOR_BYTES / p->bytes) : even;
        size[i] = max_i64(size[i], min_i64(all, cut));
        if (size[i] < all)
            return;
    }
}

/*
 * The modes of a run, the fastest first: up to the first that a box does not hold whole, or that makes the run too
 * long. Returns their bits.
 */
static int modes_of_run(const permutation *p, bool in_x, const int64_t *size, int64_t most, int *modes, int *count,
                        int64_t *elements)
{
    int bits = 0;
    *elements = 1;
    *count = 0;
    for (int64_t i, stride = 1; (i = permutation_mode_at(p, in_x, stride)) >= 0 && size[i] > 1; stride *= size[i]) {
        if (*count && *elements * size[i] > most)
            break;
        modes[(*count)++] = (int)i;
        bits |= 1 << i;
        *elements *= size[i];
        if (size[i] < p->modes[i].size)
            break;
    }
    return bits;
}

/*
 * The fastest mode of y that is in neither run: a box gets enough of it to be large enough. -1: it is, or no mode is
 * left.
 */
static int in_neither(const permutation *p, int bits, int64_t *size, int64_t want)
{
    for (int i = 0; i < p->rank; i++)
        if (bits >> i & 1)
            want /= size[i];
    for (int i = p->rank - 1; i >= 0 && want > 1; i--)
        if (!(bits >> i & 1)) {
            const int64_t all = p->modes[i].size;
            size[i] = ceil_div(all, ceil_div(all, min_i64(all, want)));
            return i;
        }
    return -1;
}

/*
 * Distances in shared memory. Along a run of x they are those of x. Other modes' are long enough that neighbouring runs
 * share no chunk, equal to those of x modulo a chunk, and about an odd number of chunks, against bank conflicts.
 */
static void lay_out(box *b, int bytes)
{
    int64_t span = b->run_x * bytes;
    for (int i = 0; i < b->inside; i++)
        if (b->in_run_x[i])
            b->smem[i] = b->modes[i].x * bytes;
        else {
            const int64_t phase = b->modes[i].x % CHUNK * bytes % CHUNK;
            const int64_t chunks = ceil_div(max_i64(0, span + 2 * (CHUNK - 1) - phase), CHUNK);
            b->smem[i] = (chunks | 1) * CHUNK + phase;
            span += (b->size[i] - 1) * b->smem[i];
        }
    b->smem_bytes = span + 2 * (CHUNK - 1);
}

/* False where y has no run, or where its numbers do not fit registers. */
static bool find_box(const permutation *p, const permute_boxes_config *c, box *b)
{
    int64_t size[PERMUTE_MODES_MAX] = { 1, 1, 1, 1, 1 };
    int modes[2 * PERMUTE_MODES_MAX], of_x[PERMUTE_MODES_MAX], in_x = 0;
    *b = (box){ .rank = p->rank, .runs_x = 1, .runs_y = 1, .count = 1 };
    if (p->empty || p->rank == 0 || p->rank > PERMUTE_MODES_MAX || permutation_mode_at(p, false, 1) < 0)
        return false;
    grow(p, false, c->run_y / p->bytes, size);
    grow(p, true, c->run_x / p->bytes, size);
    const int bits_y = modes_of_run(p, false, size, c->run_y / p->bytes, modes, &b->run, &b->run_y);
    const int bits_x = modes_of_run(p, true, size, INT64_MAX, of_x, &in_x, &b->run_x);
    for (int i = 0; i < in_x; i++)
        if (!(bits_y >> of_x[i] & 1))
            modes[b->run + b->across++] = of_x[i];
    const int more = in_neither(p, bits_x | bits_y, size, BOX_BYTES / p->bytes);
    if (more >= 0)
        modes[b->run + b->across + b->more++] = more;
    int count = b->inside = b->run + b->across + b->more;
    for (int i = p->rank - 1; i >= 0; i--)
        if (!((bits_x | bits_y) >> i & 1) && i != more)
            modes[count++] = i;
    for (int i = 0; i < p->rank; i++) {
        b->in_run_x[i] = bits_x >> modes[i] & 1;
        b->modes[i] = p->modes[modes[i]];
        b->size[i] = size[modes[i]];
        b->count = product_i64(b->count, ceil_div(b->modes[i].size, b->size[i]));
        b->runs_x *= b->in_run_x[i] ? 1 : b->size[i];
        b->runs_y *= i < b->run ? 1 : b->size[i];
    }
    lay_out(b, p->bytes);
    return true;
}

/* Fills what follows from the box. */
static void describe(const permutation *p, const box *b, permute_boxes_config *c)
{
    c->bytes = p->bytes;
    c->rank = b->rank;
    c->run = b->run;
    c->across = b->across;
    c->more = b->more;
    c->shared = 0;
    for (int i = 0; i < b->run; i++)
        c->shared |= b->in_run_x[i] << i;
    c->smem_kb = (int)ceil_div(b->smem_bytes, KB);
    c->lanes = (int)power_of_two_ceil(ceil_div(b->run_y, word_elements(p->bytes)));
    const int64_t most = max_i64(1, min_i64(c->abreast, PERMUTE_THREADS / c->lanes));
    c->abreast = (int)max_i64(power_of_two_floor(most), PERMUTE_WARP / c->lanes);
}

static bool candidate_boxes(const void *problem, const ckl_device_info *device, int i, void *config)
{
    enum { RUNS_X = 5, RUNS_Y = 4, RUN_X_MIN = 64, RUN_Y_MIN = 128, BOXES = RUNS_X * RUNS_Y, TIMES = 3 };
    const permutation *p = problem;
    permute_boxes_config *c = config;
    box b;
    if (i >= BOXES * TIMES)
        return false;
    c->run_x = RUN_X_MIN << i % RUNS_X;
    c->run_y = RUN_Y_MIN << i % BOXES / RUNS_X;
    c->abreast = 1 << i / BOXES;
    if (find_box(p, c, &b)) {
        describe(p, &b, c);
        c->prefetch = permute_pays_prefetch(b.count, device);
    }
    return true;
}

/* Sectors that a run touches. One that begins anywhere shares the first and the last, at a price. */
static double sectors_of(int64_t bytes, bool anywhere, double price)
{
    return anywhere ? (double)bytes / SECTOR_BYTES + price : (double)ceil_div(bytes, SECTOR_BYTES);
}

/* Does the same box write what follows a run of y, so that shared sectors meet in L2? */
static bool goes_on(const box *b)
{
    for (int i = b->run; i < b->inside; i++)
        if (b->modes[i].y == b->run_y && b->size[i] > 1)
            return true;
    return false;
}

static bool starts_anywhere(const permutation *p, const box *b, bool in_x)
{
    for (int i = 0; i < b->rank; i++) {
        const int64_t stride = in_x ? b->modes[i].x : b->modes[i].y;
        const bool steps = b->size[i] < b->modes[i].size; // from box to box
        const bool runs = b->size[i] > 1 && !(in_x ? b->in_run_x[i] : i < b->run);
        if ((steps && stride * b->size[i] * p->bytes % SECTOR_BYTES) || (runs && stride * p->bytes % SECTOR_BYTES))
            return true;
    }
    return false;
}

/* Do all runs of y begin with a word, if y does? */
static bool runs_are_even(const box *b, int bytes)
{
    for (int i = 0; i < b->rank; i++) {
        const int64_t step = b->modes[i].y * (i < b->run ? b->size[i] : 1);
        if ((i >= b->run || b->size[i] < b->modes[i].size) && step * bytes % permute_word_bytes(bytes))
            return false;
    }
    return true;
}

/* Where element n of a box's modes from `first` to `end` lies in shared memory. */
static int64_t place_of(const box *b, int first, int end, int64_t n)
{
    int64_t place = 0;
    for (int i = first; i < end; n /= b->size[i], i++)
        place += n % b->size[i] * b->smem[i];
    return place;
}

/* Accesses to shared memory for one element of each word that a warp stores. */
static int turns_of_warp(const box *b, int along, int bytes)
{
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++)
        places[lane] =
            place_of(b, 0, b->run, lane % along * word_elements(bytes)) + place_of(b, b->run, b->inside, lane / along);
    return permutation_bank_turns(places);
}

/* Sectors of runs on both sides, and a thread's work, as elements of a kernel that streams. */
static plan_cost cost_boxes(const void *problem, const ckl_device_info *device, const void *config)
{
    // instructions of a warp as the emulator counts them, within a tenth; of a chunk and of a word for each mode that
    // their loops go along
    enum { OF_BOX = 114, OF_CHUNK = 13, OF_WORD = 14, OF_ELEMENT = 5, OF_ODD = 5, OF_ODD_MODES = 9 };
    enum { SMEM_MAX = 48 << 10, READ = 2, WRITTEN = 3, LINE_BYTES = 128, REGISTERS = 20 };
    // a turn is a cycle, some two thirds of a line; bytes as dear as of kernels that stream
    static const double of_turn = 0.68, rate = 1.05, OF_SPREAD = 1.1; // parts of lines for whole ones, as measured
    const permutation *p = problem;
    const permute_boxes_config *c = config;
    box b;
    // with fewer than four CTAs an SM, all may store while none loads
    if (!find_box(p, c, &b) || b.smem_bytes > SMEM_MAX)
        return (plan_cost){ INFINITY, "shared memory" };
    const int elements = word_elements(p->bytes);
    const double x = sectors_of(b.run_x * p->bytes, starts_anywhere(p, &b, true), READ) * (double)b.runs_x;
    const double price = goes_on(&b) ? 0 : WRITTEN;
    // lines for one of a long run; words of several that begin anywhere touch a sector more of each:
    // 19x128x96x512 f16 reversed takes 283 us by four, 193 by one
    const double spread = c->abreast * fmin(1, c->lanes / (double)PERMUTE_WARP);
    const bool y_anywhere = starts_anywhere(p, &b, false);
    const double parts = y_anywhere ? (double)b.run_y / elements * (spread - 1) / fmin(c->lanes, PERMUTE_WARP) : 0;
    const double y = (sectors_of(b.run_y * p->bytes, y_anywhere, price) + parts) * (double)b.runs_y;
    const double filled = (double)permutation_elements(p) / ((double)b.count * (double)(b.run_y * b.runs_y));
    const int64_t chunks = ceil_div(b.runs_x * (b.run_x * p->bytes / CHUNK + 1), PERMUTE_THREADS);
    const int modes_y = b.across + b.more, word = permute_word_bytes(p->bytes);
    // of the warps along a run some may have none of its words
    const int along = permute_boxes_along(c);
    const int64_t warps = ceil_div(ceil_div(b.run_y, elements), along);
    const double words = (double)ceil_div(b.runs_y, PERMUTE_THREADS / c->lanes) * (double)warps * along / c->lanes;
    const int modes_x = b.run + b.more - __builtin_popcount((unsigned)c->shared);
    const bool even = runs_are_even(&b, p->bytes);
    const int each = OF_ELEMENT + (even ? 0 : b.run == 1 ? OF_ODD : OF_ODD_MODES);
    // 1024x320x105 u8 takes 36.3 us, which instructions do not tell; of runs that begin anywhere they do
    const double of_bytes = p->bytes == 1 && even ? 1.7 : 1;
    const int turns = elements * turns_of_warp(&b, along, p->bytes);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = rate * (x + y) * SECTOR_BYTES * (double)b.count * filled,
        .ctas = b.count,
        .threads = PERMUTE_THREADS,
        .registers = REGISTERS,
        .smem_bytes = b.smem_bytes,
        .lines =
            ((double)(chunks * CHUNK) + words * word * spread) * PERMUTE_WARP / LINE_BYTES + of_turn * words * turns,
        .elements =
            of_bytes * (OF_BOX + (double)(OF_CHUNK * chunks * modes_x) + words * (OF_WORD * modes_y + each * elements)),
        .meets = true,
    };
    plan_cost cost = memory_cost(&work, device);
    cost.us *= spread > 1 ? OF_SPREAD : 1;
    return cost;
}

/* The kernel counts elements, bytes of a box, and boxes in 32 bits. */
static ckl_status check_numbers(const permutation *p, const box *b)
{
    int64_t span_x = 0, span_y = 0;
    for (int i = 0; i < b->rank; i++) {
        span_x += b->size[i] * b->modes[i].x * p->bytes;
        span_y += b->size[i] * b->modes[i].y * p->bytes;
        if (b->modes[i].size > INT32_MAX)
            FAIL(CKL_UNSUPPORTED, "%s boxes: a mode of %" PRId64 " is beyond 32-bit numbers", p->op, b->modes[i].size);
    }
    if (max_i64(span_x, span_y) > UINT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s boxes: a box reaches over 4 GB", p->op);
    if (b->count > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s boxes: %" PRId64 " boxes are more than one launch has CTAs", p->op, b->count);
    return CKL_OK;
}

static ckl_status admit_boxes(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_boxes_config *c = config;
    permute_boxes_config want = *c;
    box b;
    if (c->run_x < SECTOR_BYTES || c->run_y < SECTOR_BYTES)
        FAIL(CKL_INVALID, "%s boxes: run_x=%d run_y=%d: runs are %d bytes or more", p->op, c->run_x, c->run_y,
             SECTOR_BYTES);
    if (!find_box(p, c, &b))
        FAIL(CKL_UNSUPPORTED, "%s boxes: no mode is contiguous in y", p->op);
    describe(p, &b, &want);
    if (memcmp(&want, c, sizeof want) != 0)
        FAIL(CKL_INVALID,
             "%s boxes: such a box has bytes=%d rank=%d run=%d across=%d more=%d shared=%d lanes=%d abreast=%d "
             "smem_kb=%d",
             p->op, want.bytes, want.rank, want.run, want.across, want.more, want.shared, want.lanes, want.abreast,
             want.smem_kb);
    if (c->lanes > PERMUTE_THREADS)
        FAIL(CKL_INVALID, "%s boxes: lanes=%d are more than the %d threads", p->op, c->lanes, PERMUTE_THREADS);
    if ((int64_t)c->smem_kb * KB > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s boxes: the box needs %d KB of shared memory, %s has %" PRId64, p->op, c->smem_kb,
             device->id, device->smem_per_cta_bytes / KB);
    return check_numbers(p, &b);
}

static ckl_status launch_boxes(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_boxes_config *c = plan->config;
    const permute_pointers *a = args;
    box b;
    if (!find_box(p, c, &b))
        return CKL_OK;
    const int64_t chunks = ceil_div(b.run_x * p->bytes + CHUNK - 1, CHUNK);
    const divisor of_chunks = divisor_of(chunks);
    permute_boxes_params params = { .x = a->x,
                                    .y = a->y,
                                    .chunks = (uint32_t)chunks,
                                    .chunks_factor = of_chunks.factor,
                                    .chunks_shift = of_chunks.shift };
    for (int i = 0; i < b.rank; i++) {
        const divisor d = divisor_of(b.size[i]);
        params.size[i] = (uint32_t)b.modes[i].size;
        params.box[i] = (uint32_t)b.size[i];
        params.boxes[i] = (uint32_t)ceil_div(b.modes[i].size, b.size[i]);
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.smem[i] = (uint32_t)b.smem[i];
        params.stride_x[i] = b.modes[i].x * p->bytes;
        params.stride_y[i] = b.modes[i].y * p->bytes;
    }
    const bool even = runs_are_even(&b, p->bytes) && PLAN_ALIGNED(permute_word_bytes(p->bytes), a->y);
    return plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = b.count }, &params, stream);
}

static const field boxes_fields[] = { PERMUTE_BOXES_CONFIG(FIELD_ROW, permute_boxes_config) };

const implementation permute_boxes_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(permute, boxes),
    .summary = "boxes over the modes that run fastest in x and in y: long runs on both sides however short modes are",
    .candidate = candidate_boxes,
    .cost = cost_boxes,
    .rivals = { &permute_gather_implementation },
    .kernels = 2,
    .params = &permute_boxes_param_list,
};
