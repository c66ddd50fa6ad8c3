/* gemm.c - validation of GEMM problems, choice of kernel and config, launches. */
#include "cutekernellib/operators/gemm.h"

#include <string.h>

#include "operators/gemm/gemm_config.h"
#include "operators/operators.h"

enum { TMA_ALIGNMENT = 16 };

/* Validation */

static ckl_status check_pitch(const char *name, int64_t *ld, const char *extent_name, int64_t extent)
{
    if (*ld == 0)
        *ld = extent;
    if (*ld < extent)
        FAIL(CKL_INVALID, "gemm: %s=%" PRId64 " is smaller than %s=%" PRId64, name, *ld, extent_name, extent);
    return CKL_OK;
}

static ckl_status check_sizes(const ckl_gemm_desc *d)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = { { "m", d->m }, { "n", d->n }, { "k", d->k } };
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size < 0)
            FAIL(CKL_INVALID, "gemm: %s=%" PRId64 " is negative", sizes[i].name, sizes[i].size);
    return CKL_OK;
}

static ckl_status check_types(ckl_gemm_desc *d)
{
    if (d->b == CKL_DTYPE_DEFAULT)
        d->b = d->a;
    if (d->d == CKL_DTYPE_DEFAULT)
        d->d = d->a;
    if (d->a != CKL_F16 && d->a != CKL_BF16)
        FAIL(CKL_INVALID, "gemm: a=%s is neither f16 nor bf16", ckl_dtype_name(d->a));
    if (d->b != d->a)
        FAIL(CKL_INVALID, "gemm: b=%s differs from a=%s", ckl_dtype_name(d->b), ckl_dtype_name(d->a));
    if (d->d != d->a && d->d != CKL_F32)
        FAIL(CKL_INVALID, "gemm: d=%s is neither %s nor f32", ckl_dtype_name(d->d), ckl_dtype_name(d->a));
    if (d->c != CKL_DTYPE_DEFAULT && d->c != d->d)
        FAIL(CKL_INVALID, "gemm: c=%s differs from d=%s", ckl_dtype_name(d->c), ckl_dtype_name(d->d));
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_gemm_desc *d = desc;
    TRY(check_types(d));
    TRY(check_sizes(d));
    if (d->layout != CKL_GEMM_NT)
        FAIL(CKL_UNSUPPORTED, "gemm: layout=%d is not nt (0), the only one so far", (int)d->layout);
    if ((unsigned)d->activation > CKL_ACTIVATION_GELU)
        FAIL(CKL_INVALID, "gemm: activation=%d is none of identity, relu, gelu", (int)d->activation);
    TRY(check_pitch("lda", &d->lda, "k", d->k));
    TRY(check_pitch("ldb", &d->ldb, "k", d->k));
    TRY(check_pitch("ldd", &d->ldd, "n", d->n));
    return d->c ? check_pitch("ldc", &d->ldc, "n", d->n) : CKL_OK;
}

static bool is_empty(const ckl_gemm_desc *d)
{
    return d->m == 0 || d->n == 0;
}

static int64_t extent_bytes(int64_t rows, int64_t cols, int64_t ld, ckl_dtype dtype)
{
    return rows && cols ? ((rows - 1) * ld + cols) * (int64_t)ckl_dtype_bytes(dtype) : 0;
}

static ckl_status check_pointer(const char *name, const void *pointer, ckl_dtype dtype)
{
    if (!pointer)
        FAIL(CKL_INVALID, "gemm: %s is NULL", name);
    if ((uintptr_t)pointer % ckl_dtype_bytes(dtype))
        FAIL(CKL_INVALID, "gemm: %s=%p is not aligned to its %zu-byte elements", name, pointer, ckl_dtype_bytes(dtype));
    return CKL_OK;
}

static ckl_status check_overlap(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    const struct {
        const char *name;
        const void *pointer;
        int64_t bytes;
    } inputs[] = {
        { "a", x->a, extent_bytes(d->m, d->k, d->lda, d->a) },
        { "b", x->b, extent_bytes(d->n, d->k, d->ldb, d->b) },
        { "bias", d->bias ? x->bias : NULL, d->n * (int64_t)ckl_dtype_bytes(d->d) },
        { "c", d->c && (x->c != x->d || d->ldc != d->ldd) ? x->c : NULL, extent_bytes(d->m, d->n, d->ldc, d->d) },
    };
    for (int i = 0; i < COUNT_OF(inputs); i++)
        if (inputs[i].pointer &&
            plan_overlap(x->d, extent_bytes(d->m, d->n, d->ldd, d->d), inputs[i].pointer, inputs[i].bytes))
            FAIL(CKL_INVALID, "gemm: d overlaps %s", inputs[i].name);
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_gemm_desc *d = desc;
    const ckl_gemm_args *x = args;
    if (is_empty(d))
        return CKL_OK;
    if (d->k > 0) {
        TRY(check_pointer("a", x->a, d->a));
        TRY(check_pointer("b", x->b, d->b));
    }
    TRY(check_pointer("d", x->d, d->d));
    if (d->c)
        TRY(check_pointer("c", x->c, d->c));
    else if (x->beta && *x->beta != 0)
        FAIL(CKL_INVALID, "gemm: beta=%g, but the desc has no C", (double)*x->beta);
    if (d->bias)
        TRY(check_pointer("bias", x->bias, d->d));
    return check_overlap(d, x);
}

/* What launches share */

/* The scalars of a call with their defaults. */
typedef struct scalars {
    float alpha, beta;
} scalars;

static scalars scalars_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    return (scalars){ x->alpha ? *x->alpha : 1, !d->c ? 0 : x->beta ? *x->beta : 1 };
}

enum { GEMM_ARGUMENTS = 14 };

/* The parameters of gemm_declare_arguments(), in its order. */
static void list_arguments(const ckl_gemm_desc *d, const ckl_gemm_args *x, const scalars *s,
                           const void *params[GEMM_ARGUMENTS])
{
    const void *list[GEMM_ARGUMENTS] = { &d->m, &d->n,   &d->k, &x->a,   &d->lda,  &x->b,     &d->ldb,
                                         &x->c, &d->ldc, &x->d, &d->ldd, &x->bias, &s->alpha, &s->beta };
    memcpy(params, list, sizeof list);
}

static bool pitch_is_aligned(int64_t ld, ckl_dtype dtype)
{
    return ld * (int64_t)ckl_dtype_bytes(dtype) % TMA_ALIGNMENT == 0;
}

/* Rows that start at 16-byte boundaries, as cp.async and TMA want them. */
static ckl_status check_row_alignment(const char *who, const ckl_gemm_desc *d, bool outputs)
{
    const struct {
        const char *name;
        int64_t ld;
        ckl_dtype dtype;
        bool used;
    } rows[] = { { "lda", d->lda, d->a, d->m > 1 },
                 { "ldb", d->ldb, d->b, d->n > 1 },
                 { "ldc", d->ldc, d->d, outputs && d->c && d->m > 1 },
                 { "ldd", d->ldd, d->d, outputs && d->m > 1 } };
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].used && !pitch_is_aligned(rows[i].ld, rows[i].dtype))
            FAIL(CKL_UNSUPPORTED, "gemm %s: %s=%" PRId64 " elements of %s are not a multiple of 16 bytes", who,
                 rows[i].name, rows[i].ld, ckl_dtype_name(rows[i].dtype));
    return CKL_OK;
}

static ckl_status check_pointer_alignment(const char *who, const char *name, const void *pointer)
{
    if ((uintptr_t)pointer % TMA_ALIGNMENT)
        FAIL(CKL_INVALID, "gemm %s: %s=%p is not aligned to 16 bytes; impl=naive takes any alignment", who, name,
             pointer);
    return CKL_OK;
}

/* The fields every config begins with, from the desc. */
static gemm_epilogue epilogue_of(const ckl_gemm_desc *d)
{
    return (gemm_epilogue){ d->a, d->d, d->c != CKL_DTYPE_DEFAULT, d->bias, (choice)d->activation };
}

static ckl_status check_epilogue(const char *who, const ckl_gemm_desc *d, gemm_epilogue have)
{
    gemm_epilogue want = epilogue_of(d);
    if (have.ab != want.ab || have.d != want.d || have.c != want.c || have.bias != want.bias ||
        have.activation != want.activation)
        FAIL(CKL_INVALID, "gemm %s: the config's types or epilogue are not the problem's", who);
    return CKL_OK;
}

/* naive */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    gemm_naive_config *c = config;
    gemm_epilogue e = epilogue_of(desc);
    *c = (gemm_naive_config){ e.ab, e.d, e.c, e.bias, e.activation, c->threads };
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_naive_config *c = config;
    TRY(check_epilogue("naive", d, (gemm_epilogue){ c->ab, c->d, c->c, c->bias, c->activation }));
    if (c->threads < 32 || c->threads % 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "gemm naive: threads=%d must be a multiple of 32 up to %d", c->threads,
             device->threads_per_cta_max);
    if (d->n && d->m > (int64_t)INT32_MAX * c->threads / d->n)
        FAIL(CKL_UNSUPPORTED, "gemm naive: m*n=%g elements are more than one launch has threads",
             (double)d->m * (double)d->n);
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_naive_config *c = plan->config;
    if (is_empty(d))
        return CKL_OK;
    scalars s = scalars_of(d, x);
    const void *params[GEMM_ARGUMENTS];
    list_arguments(d, x, &s, params);
    device_launch l = { .grid = { ceil_div(d->m * d->n, c->threads), 1, 1 }, .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[0].loaded, &l, stream);
}

/* tiled */

static ckl_status choose_tiled(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    gemm_tiled_config *c = config;
    gemm_epilogue e = epilogue_of(d);
    bool small = ceil_div(d->m, 128) * ceil_div(d->n, 128) < device->sm_count;
    *c = (gemm_tiled_config){ e.ab, e.d, e.c, e.bias, e.activation, small ? 64 : 128, small ? 64 : 128, c->stages };
    return CKL_OK;
}

static ckl_status admit_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_tiled_config *c = config;
    TRY(check_epilogue("tiled", d, (gemm_epilogue){ c->ab, c->d, c->c, c->bias, c->activation }));
    if (c->tile_m % 32 || c->tile_n % 32 || c->tile_m < 32 || c->tile_n < 32 || c->tile_m * c->tile_n > 128 * 128)
        FAIL(CKL_INVALID, "gemm tiled: tile %dx%d must be multiples of 32, at most 128x128", c->tile_m, c->tile_n);
    if (c->stages < 2 || c->stages > 8)
        FAIL(CKL_INVALID, "gemm tiled: stages=%d is not in 2..8", c->stages);
    if (ceil_div(d->m, c->tile_m) > 65535)
        FAIL(CKL_UNSUPPORTED, "gemm tiled: m=%" PRId64 " is more than 65535 tiles", d->m);
    return check_row_alignment("tiled", d, false);
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_tiled_config *c = plan->config;
    if (is_empty(d))
        return CKL_OK;
    TRY(check_pointer_alignment("tiled", "a", x->a));
    TRY(check_pointer_alignment("tiled", "b", x->b));
    scalars s = scalars_of(d, x);
    const void *params[GEMM_ARGUMENTS];
    list_arguments(d, x, &s, params);
    device_launch l = { .grid = { ceil_div(d->n, c->tile_n), ceil_div(d->m, c->tile_m), 1 },
                        .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[0].loaded, &l, stream);
}

/* sm90 */

/*
 * The tiles worth having, and how fast each computes relative to the fastest when every SM is busy; measured, see
 * bench/notes/gemm.md.
 */
static const struct {
    gemm_sm90_config config;
    double speed;
} sm90_menu[] = {
    { { .tile_m = 128,
        .tile_n = 128,
        .stages = 6,
        .consumers = 2,
        .pingpong = true,
        .buffers = 2,
        .cluster_m = 1,
        .cluster_n = 1 },
      1.0 },
    { { .tile_m = 128,
        .tile_n = 192,
        .stages = 4,
        .consumers = 2,
        .pingpong = true,
        .buffers = 2,
        .cluster_m = 1,
        .cluster_n = 1 },
      1.0 },
    { { .tile_m = 64, .tile_n = 128, .stages = 8, .consumers = 1, .buffers = 2, .cluster_m = 1, .cluster_n = 1 },
      0.85 },
};

static int64_t sm90_waves(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_sm90_config *c)
{
    return ceil_div(ceil_div(d->m, c->tile_m) * ceil_div(d->n, c->tile_n), device->sm_count);
}

/* Time of a problem in tiles of a config, in units of one element of D on one SM: whole waves of tiles. */
static double sm90_cost(const ckl_gemm_desc *d, const ckl_device_info *device, int row)
{
    const gemm_sm90_config *c = &sm90_menu[row].config;
    return (double)sm90_waves(d, device, c) * c->tile_m * c->tile_n / sm90_menu[row].speed;
}

static ckl_status choose_sm90(const void *desc, const ckl_device_info *device, void *config)
{
    enum { WAVES_FOR_MULTICAST = 4 }; // with fewer, waiting for a partner costs more than L2 traffic
    const ckl_gemm_desc *d = desc;
    gemm_sm90_config *c = config;
    gemm_epilogue e = epilogue_of(d);
    bool ragged = d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT != 0;
    int best = 0;
    for (int i = 1; i < COUNT_OF(sm90_menu); i++) {
        bool fits =
            !(e.c || e.bias || ragged) || gemm_sm90_accumulators(&sm90_menu[i].config) <= GEMM_EASY_ACCUMULATORS;
        if (fits && sm90_cost(d, device, i) < sm90_cost(d, device, best))
            best = i;
    }
    *c = sm90_menu[best].config;
    c->cluster_m = sm90_waves(d, device, c) >= WAVES_FOR_MULTICAST ? 2 : 1;
    c->ctas = 1;
    c->group = 8;
    c->ab = e.ab;
    c->d = e.d;
    c->c = e.c;
    c->bias = e.bias;
    c->activation = e.activation;
    c->ragged = ragged;
    return CKL_OK;
}

static ckl_status admit_sm90_tile(const gemm_sm90_config *c)
{
    if (c->consumers < 1 || c->consumers > 3)
        FAIL(CKL_INVALID, "gemm sm90: consumers=%d is not in 1..3", c->consumers);
    if (c->pingpong && c->consumers != 2)
        FAIL(CKL_INVALID, "gemm sm90: pingpong=1 is played by 2 consumers, not %d", c->consumers);
    int rows = c->pingpong ? c->tile_m : c->tile_m / c->consumers;
    if (rows < 64 || rows % 64 || c->tile_m > 256 || (!c->pingpong && c->tile_m % c->consumers))
        FAIL(CKL_INVALID, "gemm sm90: tile_m=%d does not give each of %d consumers a multiple of 64 rows", c->tile_m,
             c->pingpong ? 1 : c->consumers);
    if (c->tile_n < 16 || c->tile_n % 16 || c->tile_n > 256)
        FAIL(CKL_INVALID, "gemm sm90: tile_n=%d is not a multiple of 16 up to 256", c->tile_n);
    int accumulators = gemm_sm90_accumulators(c);
    int most = c->consumers == 3 ? 96 : c->c || c->bias || c->ragged ? GEMM_EASY_ACCUMULATORS : 192; // more would spill
    if (accumulators > most)
        FAIL(CKL_INVALID,
             "gemm sm90: a consumer's %dx%d tile needs %d accumulators of the %d registers there are for them", rows,
             c->tile_n, accumulators, most);
    return CKL_OK;
}

static ckl_status admit_sm90_cluster(const gemm_sm90_config *c)
{
    if (c->cluster_m < 1 || c->cluster_n < 1 || c->cluster_m * c->cluster_n > 8)
        FAIL(CKL_INVALID, "gemm sm90: a cluster of %dx%d CTAs is not in 1..8", c->cluster_m, c->cluster_n);
    if (c->tile_n % (8 * c->cluster_m) || c->tile_m % (8 * c->cluster_n))
        FAIL(CKL_INVALID, "gemm sm90: tile %dx%d cannot be loaded in parts of 8 rows by a cluster of %dx%d", c->tile_m,
             c->tile_n, c->cluster_m, c->cluster_n);
    if (c->ctas < 1 || (c->ctas > 1 && c->consumers > 1))
        FAIL(CKL_INVALID, "gemm sm90: ctas=%d per SM, more than 1 needs consumers=1 for the registers", c->ctas);
    if (c->group < 1)
        FAIL(CKL_INVALID, "gemm sm90: group=%d is not positive", c->group);
    return CKL_OK;
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_sm90_config *c = config;
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %s has no wgmma", device->id);
    TRY(check_epilogue("sm90", d, (gemm_epilogue){ c->ab, c->d, c->c, c->bias, c->activation }));
    TRY(admit_sm90_tile(c));
    TRY(admit_sm90_cluster(c));
    if (c->stages < 2 || c->buffers < 1)
        FAIL(CKL_INVALID, "gemm sm90: stages=%d must be at least 2 and buffers=%d at least 1", c->stages, c->buffers);
    int64_t need = gemm_sm90_shape_of(c).smem_bytes;
    int64_t have =
        min_i64(device->smem_per_cta_bytes, device->smem_per_sm_bytes / c->ctas - 1024); // 1 KB is the system's
    if (need > have)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %d stages of %dx%d need %" PRId64 " bytes of shared memory, %s has %" PRId64,
             c->stages, c->tile_m, c->tile_n, need, device->id, have);
    if (!c->ragged && d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: n=%" PRId64 " elements of %s are not whole 16-byte chunks: ragged=1 stores them", d->n,
             ckl_dtype_name(d->d));
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products");
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: a size is beyond the 32-bit coordinates of TMA");
    return check_row_alignment("sm90", d, true);
}

/* A row-major matrix and the box that one TMA copy moves. A single row may have any pitch. */
static ckl_status encode_matrix(const ckl_plan *plan, const void *pointer, ckl_dtype dtype, int64_t rows, int64_t cols,
                                int64_t ld, int box_rows, int box_cols, int swizzle, tensor_map *map)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(dtype);
    tensor_map_desc t = {
        .dtype = dtype,
        .rank = 2,
        .address = (void *)pointer,
        .size = { cols, rows },
        .stride = { bytes, rows > 1 ? ld * bytes : round_up(cols * bytes, TMA_ALIGNMENT) },
        .box = { box_cols, box_rows },
        .swizzle = (tensor_map_swizzle)swizzle,
    };
    return plan->device->ops->encode_tensor_map(plan->device, &t, map);
}

static ckl_status check_sm90_pointers(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    TRY(check_pointer_alignment("sm90", "a", x->a));
    TRY(check_pointer_alignment("sm90", "b", x->b));
    TRY(check_pointer_alignment("sm90", "d", x->d));
    return d->c ? check_pointer_alignment("sm90", "c", x->c) : CKL_OK;
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_sm90_config *c = plan->config;
    if (is_empty(d))
        return CKL_OK;
    TRY(check_sm90_pointers(d, x));
    gemm_sm90_shape s = gemm_sm90_shape_of(c);
    int d_span = s.d_cols * (int)ckl_dtype_bytes(d->d);
    tensor_map a, b, c_map, d_map;
    TRY(encode_matrix(plan, x->a, d->a, d->m, d->k, d->lda, s.box_a, GEMM_TILE_K, 128, &a));
    TRY(encode_matrix(plan, x->b, d->b, d->n, d->k, d->ldb, s.box_b, GEMM_TILE_K, 128, &b));
    TRY(encode_matrix(plan, x->d, d->d, d->m, d->n, d->ldd, s.d_rows, s.d_cols, d_span, &d_map));
    if (d->c)
        TRY(encode_matrix(plan, x->c, d->d, d->m, d->n, d->ldc, s.d_rows, s.d_cols, d_span, &c_map));
    else
        c_map = d_map; // never used
    uint32_t m = (uint32_t)d->m, n = (uint32_t)d->n, k = (uint32_t)d->k;
    scalars scale = scalars_of(d, x);
    int64_t tiles = ceil_div(d->m, c->tile_m * c->cluster_m) * ceil_div(d->n, c->tile_n * c->cluster_n);
    int64_t clusters = min_i64(tiles, plan->kernels[0].clusters_resident);
    /* in the order in which the kernel names them */
    const void *params[] = { &a, &b, &d_map, &c_map, &m, &n, &k, &scale.alpha, &scale.beta, &x->bias, &x->d, &d->ldd };
    device_launch l = { .grid = { clusters * s.cluster, 1, 1 }, .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[0].loaded, &l, stream);
}

/* The tables */

static const field naive_fields[] = { GEMM_NAIVE_CONFIG(FIELD_ROW) };
static const field tiled_fields[] = { GEMM_TILED_CONFIG(FIELD_ROW) };
static const field sm90_fields[] = { GEMM_SM90_CONFIG(FIELD_ROW) };

static const implementation naive = {
    .name = "naive",
    .summary = "one thread an element of D, any size and alignment",
    .config_bytes = sizeof(gemm_naive_config),
    .config = FIELD_TABLE(naive_fields),
    .choose = choose_naive,
    .admit = admit_naive,
    .describe = gemm_naive,
    .target = IR_SM80,
    .launch = launch_naive,
};

static const implementation tiled = {
    .name = "tiled",
    .summary = "shared-memory tiles by cp.async, mma.sync; every GPU from sm_80 on",
    .config_bytes = sizeof(gemm_tiled_config),
    .config = FIELD_TABLE(tiled_fields),
    .choose = choose_tiled,
    .admit = admit_tiled,
    .describe = gemm_tiled,
    .target = IR_SM80,
    .launch = launch_tiled,
};

static const implementation sm90 = {
    .name = "sm90",
    .summary = "persistent and warp-specialised: TMA, wgmma, clusters with multicast; Hopper",
    .config_bytes = sizeof(gemm_sm90_config),
    .config = FIELD_TABLE(sm90_fields),
    .choose = choose_sm90,
    .admit = admit_sm90,
    .describe = gemm_sm90,
    .target = IR_SM90A,
    .launch = launch_sm90,
};

static const implementation *const implementations[] = { &sm90, &tiled, &naive, NULL };

PLAN_CLEAR_PADDING(clear_padding, ckl_gemm_desc)

const operator_info gemm_operator = {
    .name = "gemm",
    .summary = "D = activation(alpha*A*B + beta*C + bias)",
    .desc_bytes = sizeof(ckl_gemm_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_gemm_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_gemm_plan(ckl_device *device, const ckl_gemm_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &gemm_operator, desc, NULL, plan);
}

ckl_status ckl_gemm_run(const ckl_plan *plan, const ckl_gemm_args *args, ckl_stream stream)
{
    return plan_run(plan, &gemm_operator, args, stream);
}

ckl_status ckl_gemm(ckl_device *device, const ckl_gemm_desc *desc, const ckl_gemm_args *args, ckl_stream stream)
{
    return plan_once(device, &gemm_operator, desc, args, stream);
}
