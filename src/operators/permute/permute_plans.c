/* permute_plans.c - choice, limits and launches of the kernels. */
#include "operators/permute/permute_plans.h"

#include "operators/permute/permute_config.h"
#include "operators/permute/permute_gather.h"

enum {
    CTAS_MAX = INT32_MAX,
    TMA_ALIGNMENT = 16,
    SIDE_BYTES_MIN = 32,        // of both sides of a matrix: below, tiles would be mostly empty
    GATHER_COUNT_MAX = 1 << 30, // elements of one launch, so that numbers of threads without work stay below 2^31
    PARAMS_MAX = IR_PARAMS_MAX
};

/* Parameters of a launch in the order in which the kernel names them, and their values. */
typedef struct parameters {
    int count;
    const void *list[PARAMS_MAX];
    int64_t value[PARAMS_MAX];
} parameters;

static void pass(parameters *p, int64_t value)
{
    p->value[p->count] = value; // of a u32, the low half: hosts are little-endian, as GPUs are
    p->list[p->count] = &p->value[p->count];
    p->count++;
}

static void pass_map(parameters *p, const tensor_map *map)
{
    p->list[p->count++] = map;
}

/* What the kernels that transpose matrices have in common */

static int64_t matrices_of(const matrix_modes *m)
{
    int64_t count = 1;
    for (int i = 0; i < m->outer_count; i++)
        count *= m->outer[i].size;
    return count;
}

static int64_t tiles_of(const matrix_modes *m, int tile_r, int tile_c)
{
    return ceil_div(m->rows, tile_r) * ceil_div(m->cols, tile_c) * matrices_of(m);
}

/* Does the problem leave the choice of the kernel to us, and would tiles be well filled? */
static ckl_status check_worth(const permutation *p, const char *who)
{
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s %s: tile=%d asks for the kernel tiled", p->op, who, p->tile);
    if (p->has_matrix && min_i64(p->matrix.rows, p->matrix.cols) * p->bytes < SIDE_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s %s: matrices of %" PRId64 "x%" PRId64 " would leave most of a tile empty", p->op, who,
             p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

static ckl_status check_matrix(const permutation *p, const char *who, const transpose_common *c, int tile_r, int tile_c)
{
    if (!p->has_matrix)
        FAIL(CKL_UNSUPPORTED, "%s %s: there are not two modes, one contiguous in x and the other in y", p->op, who);
    if (c->bytes != p->bytes || c->outer != p->matrix.outer_count)
        FAIL(CKL_INVALID, "%s %s: bytes=%d outer=%d are not the problem's %d and %d", p->op, who, c->bytes, c->outer,
             p->bytes, p->matrix.outer_count);
    if (c->group < 1)
        FAIL(CKL_INVALID, "%s %s: group=%d is not positive", p->op, who, c->group);
    if (p->matrix.rows > INT32_MAX || p->matrix.cols > INT32_MAX || tiles_of(&p->matrix, tile_r, tile_c) > CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s %s: %" PRId64 "x%" PRId64 " is beyond 32-bit numbers of rows, columns and tiles",
             p->op, who, p->matrix.rows, p->matrix.cols);
    return CKL_OK;
}

/* Kernels that want neighbours of a row of x, and of y, side by side. */
static ckl_status check_contiguous(const permutation *p, const char *who)
{
    if (p->matrix.incx != 1 || p->matrix.incy != 1)
        FAIL(CKL_UNSUPPORTED, "%s %s: incx=%" PRId64 " incy=%" PRId64 " are not both 1", p->op, who, p->matrix.incx,
             p->matrix.incy);
    return CKL_OK;
}

static ckl_status check_threads(const permutation *p, const char *who, int threads, int multiple,
                                const ckl_device_info *device)
{
    if (threads < multiple || threads % multiple || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s %s: threads=%d must be a multiple of %d up to %d", p->op, who, threads, multiple,
             device->threads_per_cta_max);
    return CKL_OK;
}

static ckl_status check_smem(const permutation *p, const char *who, int64_t need, const ckl_device_info *device)
{
    if (need > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s %s: the tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64, p->op, who,
             need, device->id, device->smem_per_cta_bytes);
    return CKL_OK;
}

static void pass_sizes(parameters *p, const matrix_modes *m)
{
    pass(p, m->rows);
    pass(p, m->cols);
    for (int i = 0; i < m->outer_count; i++)
        pass(p, m->outer[i].size);
}

/* The parameters of place_by_address(). */
static void pass_place(parameters *p, const permutation *q, const permute_pointers *a)
{
    const matrix_modes *m = &q->matrix;
    pass_sizes(p, m);
    pass(p, (int64_t)(intptr_t)a->x);
    pass(p, m->ldx * q->bytes);
    pass(p, m->incx * q->bytes);
    pass(p, (int64_t)(intptr_t)a->y);
    pass(p, m->ldy * q->bytes);
    pass(p, m->incy * q->bytes);
    for (int i = 0; i < m->outer_count; i++) {
        pass(p, m->outer[i].x * q->bytes);
        pass(p, m->outer[i].y * q->bytes);
    }
}

static ckl_status launch_kernel(const ckl_plan *plan, int part, int64_t ctas, const parameters *p, ckl_stream stream)
{
    device_launch l = { .grid = { ctas, 1, 1 },
                        .params = (void *const *)p->list,
                        .overlap_prologue = plan->impl->target == IR_SM90A }; // else kernels do not wait
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

/* Launches a kernel that finds its place by address. */
static ckl_status launch_by_address(const ckl_plan *plan, int part, const void *args, int tile_r, int tile_c,
                                    ckl_stream stream)
{
    const permutation *p = plan->desc;
    if (p->empty)
        return CKL_OK;
    parameters values = { 0 };
    pass_place(&values, p, args);
    return launch_kernel(plan, part, tiles_of(&p->matrix, tile_r, tile_c), &values, stream);
}

/* naive */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_naive_config *c = config;
    (void)device;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s naive: tile=%d asks for the kernel tiled", p->op, p->tile);
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    c->group = 1;
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const transpose_naive_config *c = config;
    TRY(check_threads(desc, "naive", c->threads, 32, device));
    transpose_common common = { c->bytes, c->outer, c->group };
    return check_matrix(desc, "naive", &common, c->threads / NAIVE_TILE_C, NAIVE_TILE_C);
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_naive_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->threads / NAIVE_TILE_C, NAIVE_TILE_C, stream);
}

/* tiled */

static ckl_status choose_tiled(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_tiled_config *c = config;
    (void)device;
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    c->tile = p->tile ? p->tile : c->tile;
    return CKL_OK;
}

static ckl_status admit_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_tiled_config *c = config;
    (void)device;
    if (c->tile != 16 && c->tile != 32)
        FAIL(CKL_INVALID, "%s tiled: tile=%d is neither 16 nor 32", p->op, c->tile);
    transpose_common common = { c->bytes, c->outer, c->group };
    return check_matrix(p, "tiled", &common, c->tile, c->tile);
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_tiled_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->tile, c->tile, stream);
}

/* sm80 */

/* Tiles of 16 KB with rows of 128 bytes or more on both sides; small problems get smaller ones to fill the GPU. */
static int tile_for(const permutation *p, const ckl_device_info *device)
{
    int tile = p->bytes == 1 ? 128 : p->bytes == 8 ? 32 : 64;
    if (tile > 32 && p->has_matrix && tiles_of(&p->matrix, tile, tile) < device->sm_count)
        tile /= 2;
    return tile;
}

static ckl_status choose_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_sm80_config *c = config;
    TRY(check_worth(p, "sm80"));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    c->tile_r = c->tile_c = tile_for(p, device);
    return CKL_OK;
}

static ckl_status admit_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_sm80_config *c = config;
    transpose_common common = { c->bytes, c->outer, c->group };
    TRY(check_threads(p, "sm80", c->threads, 128, device));
    if (!is_power_of_two(c->threads))
        FAIL(CKL_INVALID, "%s sm80: threads=%d is not a power of two", p->op, c->threads);
    int at_least = c->threads > 256 ? c->threads / 8 : 32;
    if (!is_power_of_two(c->tile_r) || c->tile_r < 32 || c->tile_r > 256)
        FAIL(CKL_INVALID, "%s sm80: tile_r=%d is not a power of two from 32 to 256", p->op, c->tile_r);
    if (!is_power_of_two(c->tile_c) || c->tile_c < at_least || c->tile_c > 256)
        FAIL(CKL_INVALID, "%s sm80: tile_c=%d is not a power of two from %d, four rows of y for every warp, to 256",
             p->op, c->tile_c, at_least);
    TRY(check_smem(p, "sm80", transpose_sm80_smem_bytes(c), device));
    TRY(check_matrix(p, "sm80", &common, c->tile_r, c->tile_c));
    return check_contiguous(p, "sm80");
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm80_config *c = plan->config;
    return launch_by_address(plan, 0, args, c->tile_r, c->tile_c, stream);
}

/* sm90 */

static ckl_status choose_sm90(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    transpose_sm90_config *c = config;
    TRY(check_worth(p, "sm90"));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    int span = sm90_box_columns(p->bytes), tile = tile_for(p, device);
    c->tile_r = c->tile_c = tile > span ? tile : span;
    return CKL_OK;
}

static ckl_status check_boxes(const permutation *p, const transpose_sm90_config *c)
{
    int span = sm90_box_columns(p->bytes), least = span > 32 ? span : 32;
    if (!is_power_of_two(c->tile_r) || c->tile_r < least || c->tile_r > 256 || !is_power_of_two(c->tile_c) ||
        c->tile_c < least || c->tile_c > 256)
        FAIL(CKL_INVALID, "%s sm90: tile %dx%d must be powers of two from %d to 256", p->op, c->tile_r, c->tile_c,
             least);
    int pieces = c->tile_r / 32 * (c->tile_c * c->bytes / 16), warps = c->threads / 32;
    if (pieces % warps)
        FAIL(CKL_INVALID, "%s sm90: %d warps do not share the %d pieces of a tile of %dx%d evenly", p->op, warps,
             pieces, c->tile_r, c->tile_c);
    return CKL_OK;
}

/* Tensor maps want every distance in multiples of 16 bytes, and TMA stores write whole chunks of 16 bytes. */
static ckl_status check_pitches(const permutation *p)
{
    const matrix_modes *m = &p->matrix;
    const struct {
        const char *name;
        int64_t distance, count;
    } of[] = { { "ldx", m->ldx, m->rows },
               { "ldy", m->ldy, m->cols },
               { "stride_x", m->outer[0].x, m->outer_count > 0 },
               { "stride_y", m->outer[0].y, m->outer_count > 0 },
               { "the second stride_x", m->outer[1].x, m->outer_count > 1 },
               { "the second stride_y", m->outer[1].y, m->outer_count > 1 },
               { "the third stride_x", m->outer[2].x, m->outer_count > 2 },
               { "the third stride_y", m->outer[2].y, m->outer_count > 2 } };
    if (m->rows * p->bytes % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED, "%s sm90: rows of y of %" PRId64 " elements of %d bytes are not whole chunks of 16 bytes",
             p->op, m->rows, p->bytes);
    for (int i = 0; i < COUNT_OF(of); i++)
        if (of[i].count > 0 && (of[i].distance * p->bytes % TMA_ALIGNMENT || of[i].distance == 0))
            FAIL(CKL_UNSUPPORTED,
                 "%s sm90: %s=%" PRId64 " elements of %d bytes are not a positive multiple of 16 bytes", p->op,
                 of[i].name, of[i].distance, p->bytes);
    return CKL_OK;
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const transpose_sm90_config *c = config;
    transpose_common common = { c->bytes, c->outer, c->group };
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "%s sm90: %s is not a Hopper GPU", p->op, device->id);
    TRY(check_matrix(p, "sm90", &common, c->tile_r, c->tile_c));
    TRY(check_contiguous(p, "sm90"));
    TRY(check_threads(p, "sm90", c->threads, 32, device));
    TRY(check_boxes(p, c));
    TRY(check_smem(p, "sm90", transpose_sm90_smem_bytes(c), device));
    return check_pitches(p);
}

/* x or y as boxes of 128-byte rows: `rows` of them per box, a row of x being columns, a row of y rows of the matrix. */
static ckl_status encode(const ckl_plan *plan, const void *pointer, bool is_x, int box_rows, tensor_map *map)
{
    const permutation *p = plan->desc;
    const matrix_modes *m = &p->matrix;
    static const ckl_dtype types[] = { [1] = CKL_U8, [2] = CKL_I16, [4] = CKL_I32, [8] = CKL_I64 };
    tensor_map_desc t = {
        .dtype = types[p->bytes],
        .rank = 2 + m->outer_count,
        .address = (void *)(uintptr_t)pointer,
        .size = { is_x ? m->cols : m->rows, is_x ? m->rows : m->cols },
        .stride = { p->bytes, (is_x ? m->ldx : m->ldy) * p->bytes },
        .box = { sm90_box_columns(p->bytes), box_rows },
        .swizzle = SWIZZLE_128,
    };
    for (int i = 0; i < m->outer_count; i++) {
        t.size[2 + i] = m->outer[i].size;
        t.stride[2 + i] = (is_x ? m->outer[i].x : m->outer[i].y) * p->bytes;
        t.box[2 + i] = 1;
    }
    return plan->device->ops->encode_tensor_map(plan->device, &t, map);
}

static bool is_aligned(const void *pointer, int bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const transpose_sm90_config *c = plan->config;
    const permute_pointers *a = args;
    if (p->empty)
        return CKL_OK;
    if (!is_aligned(a->x, TMA_ALIGNMENT) || !is_aligned(a->y, TMA_ALIGNMENT)) {
        transpose_sm80_config fallback = transpose_sm90_fallback(c);
        return launch_by_address(plan, 1, args, fallback.tile_r, fallback.tile_c, stream);
    }
    tensor_map x, y;
    TRY(encode(plan, a->x, true, c->tile_r, &x));
    TRY(encode(plan, a->y, false, c->tile_c, &y));
    parameters values = { 0 };
    pass_map(&values, &x);
    pass_map(&values, &y);
    pass_sizes(&values, &p->matrix);
    return launch_kernel(plan, 0, tiles_of(&p->matrix, c->tile_r, c->tile_c), &values, stream);
}

/* gather */

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

static ckl_status choose_gather(const void *desc, const ckl_device_info *device, void *config)
{
    const permutation *p = desc;
    permute_gather_config *c = config;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s gather: tile=%d asks for the kernel tiled", p->op, p->tile);
    c->element = p->bytes;
    c->bytes = 16;
    c->rank = p->rank ? p->rank : 1;
    while (!may_widen(p, c->bytes / p->bytes))
        c->bytes /= 2;
    int64_t count = permutation_elements(p) * p->bytes / c->bytes;
    while (c->steps > 1 && count < (int64_t)c->threads * c->steps * device->sm_count)
        c->steps /= 2;
    return CKL_OK;
}

static ckl_status admit_gather(const void *desc, const ckl_device_info *device, const void *config)
{
    const permutation *p = desc;
    const permute_gather_config *c = config;
    int rank = p->rank ? p->rank : 1;
    if (c->element != p->bytes || c->rank != rank)
        FAIL(CKL_INVALID, "%s gather: element=%d rank=%d are not the problem's %d and %d", p->op, c->element, c->rank,
             p->bytes, rank);
    if (c->bytes < c->element || c->bytes > 16 || !is_power_of_two(c->bytes) || !may_widen(p, c->bytes / p->bytes))
        FAIL(CKL_INVALID, "%s gather: bytes=%d cannot be moved at once", p->op, c->bytes);
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
    permutation wide = permutation_widened(p, part == 0 ? c->bytes / c->element : 1);
    return launch_halves(plan, part, &wide, a->x, a->y, stream);
}

/* The tables */

static const field naive_fields[] = { TRANSPOSE_NAIVE_CONFIG(FIELD_ROW) };
static const field tiled_fields[] = { TRANSPOSE_TILED_CONFIG(FIELD_ROW) };
static const field sm80_fields[] = { TRANSPOSE_SM80_CONFIG(FIELD_ROW) };
static const field sm90_fields[] = { TRANSPOSE_SM90_CONFIG(FIELD_ROW) };
static const field gather_fields[] = { PERMUTE_GATHER_CONFIG(FIELD_ROW) };

static const implementation naive = {
    .name = "naive",
    .summary = "one thread an element: reads whole lines, writes single elements",
    .config_bytes = sizeof(transpose_naive_config),
    .config = FIELD_TABLE(naive_fields),
    .choose = choose_naive,
    .admit = admit_naive,
    .describe = transpose_naive,
    .target = IR_SM80,
    .launch = launch_naive,
};

static const implementation tiled = {
    .name = "tiled",
    .summary = "padded tiles in shared memory, element by element; any strides",
    .config_bytes = sizeof(transpose_tiled_config),
    .config = FIELD_TABLE(tiled_fields),
    .choose = choose_tiled,
    .admit = admit_tiled,
    .describe = transpose_tiled,
    .target = IR_SM80,
    .launch = launch_tiled,
};

static const implementation sm80 = {
    .name = "sm80",
    .summary =
        "tiles in shared memory by cp.async, whole words on both sides at any alignment; every GPU from sm_80 on",
    .config_bytes = sizeof(transpose_sm80_config),
    .config = FIELD_TABLE(sm80_fields),
    .choose = choose_sm80,
    .admit = admit_sm80,
    .describe = transpose_sm80,
    .target = IR_SM80,
    .launch = launch_sm80,
};

static const implementation ragged = {
    .name = "ragged",
    .summary = "the kernel sm80 made for Hopper, where kernels overlap: for rows that TMA does not take",
    .config_bytes = sizeof(transpose_sm80_config),
    .config = FIELD_TABLE(sm80_fields),
    .choose = choose_sm80,
    .admit = admit_sm80,
    .describe = transpose_sm80,
    .target = IR_SM90A,
    .launch = launch_sm80,
};

static const implementation sm90 = {
    .name = "sm90",
    .summary = "swizzled tiles by TMA in and out, transposed between them without bank conflicts; Hopper",
    .config_bytes = sizeof(transpose_sm90_config),
    .config = FIELD_TABLE(sm90_fields),
    .choose = choose_sm90,
    .admit = admit_sm90,
    .describe = transpose_sm90,
    .kernels = 2,
    .target = IR_SM90A,
    .launch = launch_sm90,
};

static const implementation gather = {
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

const implementation *const permute_implementations[] = { &sm90, &ragged, &sm80, &gather, &tiled, &naive, NULL };
