/* gemm.c - validation of GEMM problems, choice of kernel and config, launches. */
#include "cutekernellib/operators/gemm.h"

#include "operators/gemm/gemm_config.h"
#include "operators/operators.h"

/* Validation */

static ckl_status check_same(const char *name, ckl_dtype type, ckl_dtype only)
{
    if (type != only)
        FAIL(CKL_INVALID, "gemm: %s=%s is none of %s", name, ckl_dtype_name(type), ckl_dtype_name(only));
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_gemm_desc *d = desc;
    d->b = d->b ? d->b : d->a;
    d->d = d->d ? d->d : d->a;
    TRY(check_same("b", d->b, d->a));
    if (d->d != d->a && d->d != CKL_F32)
        FAIL(CKL_INVALID, "gemm: d=%s is none of %s, f32", ckl_dtype_name(d->d), ckl_dtype_name(d->a));
    TRY(plan_check_pitch("gemm", "lda", &d->lda, "k", d->k));
    TRY(plan_check_pitch("gemm", "ldb", &d->ldb, "k", d->k));
    TRY(plan_check_pitch("gemm", "ldd", &d->ldd, "n", d->n));
    if (!d->c)
        return plan_check_unused("gemm", "ldc", d->ldc, "a problem without C");
    TRY(check_same("c", d->c, d->d));
    return plan_check_pitch("gemm", "ldc", &d->ldc, "n", d->n);
}

/* D may be in place of C alone. */
static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_gemm_desc *d = desc;
    const char *no_c = d->c ? NULL : "a problem without C", *no_bias = d->bias ? NULL : "a problem without bias";
    t[0] = plan_apart(plan_matrix("a", d->a, d->m, d->k, d->lda));
    t[1] = plan_apart(plan_matrix("b", d->b, d->n, d->k, d->ldb));
    t[2] = plan_absent(plan_matrix("c", d->d, d->m, d->n, d->ldc), no_c);
    t[3] = plan_absent(plan_vector("bias", d->d, d->n), no_bias);
    t[4] = plan_output(plan_matrix("d", d->d, d->m, d->n, d->ldd));
    return 5;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_gemm_args *x = args;
    if (!((const ckl_gemm_desc *)desc)->c && x->beta && *x->beta != 0)
        FAIL(CKL_INVALID, "gemm: beta=%g is not part of a problem without C", (double)*x->beta);
    return CKL_OK;
}

/* What launches share */

static float alpha_of(const ckl_gemm_args *x)
{
    return x->alpha ? *x->alpha : 1;
}

static float beta_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    return !d->c ? 0 : x->beta ? *x->beta : 1;
}

/* Of the kernels that address memory themselves. */
static gemm_params params_of(const ckl_gemm_desc *d, const ckl_gemm_args *x)
{
    return (gemm_params){ .m = d->m,
                          .n = d->n,
                          .k = d->k,
                          .a = x->a,
                          .lda = d->lda,
                          .b = x->b,
                          .ldb = d->ldb,
                          .c = x->c,
                          .ldc = d->ldc,
                          .d = x->d,
                          .ldd = d->ldd,
                          .bias = x->bias,
                          .alpha = alpha_of(x),
                          .beta = beta_of(d, x) };
}

gemm_epilogue gemm_epilogue_of(const ckl_gemm_desc *d)
{
    return (gemm_epilogue){ d->a, d->d, d->c != CKL_DTYPE_DEFAULT, d->bias, (choice)d->activation };
}

static ckl_status check_epilogue(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    gemm_epilogue want = gemm_epilogue_of(d);
    if (have->ab != want.ab || have->d != want.d || have->c != want.c || have->bias != want.bias ||
        have->activation != want.activation)
        FAIL(CKL_INVALID, "gemm %s: the config's types or epilogue are not the problem's", who);
    return CKL_OK;
}

/* naive */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ((gemm_naive_config *)config)->epilogue = gemm_epilogue_of(desc);
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_naive_config *c = config;
    TRY(check_epilogue("naive", d, &c->epilogue));
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
    const gemm_naive_config *c = plan->config;
    const gemm_params params = params_of(d, args);
    return plan_launch(plan, 0, (plan_grid){ .x = ceil_div(d->m * d->n, c->threads) }, &params, stream);
}

static const field naive_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_naive_config, epilogue)) //
                                      GEMM_NAIVE_CONFIG(FIELD_ROW, gemm_naive_config) };

static const implementation naive = {
    IMPLEMENTATION_PARTS(gemm, naive),
    .summary = "one thread an element of D, any size and alignment",
    .params = &gemm_param_list,
};

/* Copies of 16 bytes: what tiled and sm90 share */

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

/* The same of pointers. */
static ckl_status check_pointer_alignment(const char *who, const ckl_gemm_args *x, bool outputs)
{
    const struct {
        const char *name;
        const void *pointer;
    } tensors[] = { { "a", x->a }, { "b", x->b }, { "c", outputs ? x->c : NULL }, { "d", outputs ? x->d : NULL } };
    for (int i = 0; i < COUNT_OF(tensors); i++)
        if ((uintptr_t)tensors[i].pointer % TMA_ALIGNMENT)
            FAIL(CKL_INVALID, "gemm %s: %s=%p is not aligned to 16 bytes; impl=naive takes any alignment", who,
                 tensors[i].name, tensors[i].pointer);
    return CKL_OK;
}

/* tiled */

static ckl_status choose_tiled(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_tiled_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->tile_m = c->tile_n = ceil_div(d->m, 128) * ceil_div(d->n, 128) < device->sm_count ? 64 : 128;
    return CKL_OK;
}

static ckl_status admit_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_tiled_config *c = config;
    TRY(check_epilogue("tiled", d, &c->epilogue));
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
    const gemm_tiled_config *c = plan->config;
    TRY(check_pointer_alignment("tiled", args, false));
    const gemm_params params = params_of(d, args);
    const plan_grid grid = { .x = ceil_div(d->n, c->tile_n), .y = ceil_div(d->m, c->tile_m) };
    return plan_launch(plan, 0, grid, &params, stream);
}

static const field tiled_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_tiled_config, epilogue)) //
                                      GEMM_TILED_CONFIG(FIELD_ROW, gemm_tiled_config) };

static const implementation tiled = {
    IMPLEMENTATION_PARTS(gemm, tiled),
    .summary = "shared-memory tiles by cp.async, mma.sync; every GPU from sm_80 on",
    .params = &gemm_param_list,
};

/* sm90 */

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
    if (c->ragged < 0 || c->ragged > GEMM_ALL_RAGGED)
        FAIL(CKL_INVALID, "gemm sm90: ragged=%d is not in 0..2", c->ragged);
    int accumulators = gemm_sm90_accumulators(c);
    int most = c->consumers == 3                                ? 96
               : c->epilogue.c || c->epilogue.bias || c->ragged ? GEMM_EASY_ACCUMULATORS
                                                                : 192; // more would spill
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
    if (c->split < 1 || c->split > 8)
        FAIL(CKL_INVALID, "gemm sm90: split=%d is not in 1..8", c->split);
    if (c->split > 1 && c->cluster_m * c->cluster_n > 1)
        FAIL(CKL_INVALID, "gemm sm90: split=%d leaves no room for a cluster of %dx%d CTAs", c->split, c->cluster_m,
             c->cluster_n);
    if (c->tile_n % (8 * c->cluster_m) || c->tile_m % (8 * c->cluster_n))
        FAIL(CKL_INVALID, "gemm sm90: tile %dx%d cannot be loaded in boxes of 8 rows by a cluster of %dx%d", c->tile_m,
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
    TRY(check_epilogue("sm90", d, &c->epilogue));
    TRY(admit_sm90_tile(c));
    TRY(admit_sm90_cluster(c));
    if (c->stages < 2 || c->buffers < 1)
        FAIL(CKL_INVALID, "gemm sm90: stages=%d must be at least 2 and buffers=%d at least 1", c->stages, c->buffers);
    int64_t need = gemm_sm90_shape_of(c).smem_bytes;
    int64_t have = gemm_sm90_shared_memory(c, device);
    if (need > have)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %d stages of %dx%d need %" PRId64 " bytes of shared memory, %s has %" PRId64,
             c->stages, c->tile_m, c->tile_n, need, device->id, have);
    if (c->ragged == 0 && d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: n=%" PRId64 " elements of %s are not whole 16-byte chunks: ragged=1 stores them", d->n,
             ckl_dtype_name(d->d));
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products");
    if (ceil_div(d->k, GEMM_TILE_K) < c->split)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=%" PRId64 " has fewer tiles of %d than split=%d", d->k, GEMM_TILE_K,
             c->split);
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: a size is beyond the 32-bit coordinates of TMA");
    return check_row_alignment("sm90", d, c->ragged != GEMM_ALL_RAGGED);
}

/*
 * A row-major matrix for TMA. A single row may have any pitch. NOTE: where rows start inside a 32-byte sector, TMA asks L2 for
 * a sector or two at a time; fetching 128 bytes instead of 256 is then 10 % faster (3000^3), elsewhere slower (8192^3).
 */
static param_tensor matrix(const void *pointer, ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ld)
{
    enum { SECTOR = 32 };
    int64_t bytes = (int64_t)ckl_dtype_bytes(dtype), unit = TMA_ALIGNMENT / bytes;
    bool inside = rows > 1 && ((uintptr_t)pointer % SECTOR || ld * bytes % SECTOR);
    return (param_tensor){ .pointer = pointer,
                           .size = { cols, rows },
                           .stride = { 1, rows > 1 ? ld : round_up(cols, unit) },
                           .l2_promotion = inside ? 128 : 256 };
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_sm90_config *c = plan->config;
    const bool swap = c->swap;
    TRY(check_pointer_alignment("sm90", x, c->ragged != GEMM_ALL_RAGGED));
    const param_tensor a = matrix(x->a, d->a, d->m, d->k, d->lda), b = matrix(x->b, d->b, d->n, d->k, d->ldb);
    const int64_t rows = swap ? d->n : d->m, cols = swap ? d->m : d->n; // of all tiles
    const gemm_sm90_params params = {
        .A = swap ? b : a,
        .B = swap ? a : b,
        .C = matrix(x->c, d->d, d->m, d->n, d->ldc),
        .D = matrix(x->d, d->d, d->m, d->n, d->ldd),
        .m = (uint32_t)rows,
        .n = (uint32_t)cols,
        .k = (uint32_t)d->k,
        .alpha = alpha_of(x),
        .beta = beta_of(d, x),
        .bias = x->bias,
        .c = x->c,
        .ldc = d->ldc,
        .d = x->d,
        .ldd = d->ldd,
        .batch = 1,
    };
    int64_t tiles = ceil_div(rows, c->tile_m * c->cluster_m) * ceil_div(cols, c->tile_n * c->cluster_n);
    int64_t clusters = min_i64(tiles, plan->kernels[0].clusters_resident);
    const plan_grid grid = { .x = clusters * c->cluster_m * c->cluster_n * c->split };
    return plan_launch(plan, 0, grid, &params, stream);
}

static const field sm90_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_sm90_config, epilogue)) //
                                     GEMM_SM90_CONFIG(FIELD_ROW, gemm_sm90_config) };

static const implementation sm90 = {
    .name = "sm90",
    .summary = "persistent and warp-specialised: TMA, wgmma, clusters with multicast; Hopper",
    .config_bytes = sizeof(gemm_sm90_config),
    .config = FIELD_TABLE(sm90_fields),
    .candidate = gemm_sm90_candidate,
    .cost = gemm_sm90_cost,
    .admit = admit_sm90,
    .describe = gemm_sm90,
    .params = &gemm_sm90_param_list,
    .target = IR_SM90A,
    .launch = launch_sm90,
};

/* The operator */

static const field desc_fields[] = { GEMM_DESC(FIELD_ROW, ckl_gemm_desc) };
static const desc_member members[] = { DESC_MEMBER(ckl_gemm_desc, c), { 0 } };
static const implementation *const implementations[] = { &sm90, &tiled, &naive, NULL };

OPERATOR(gemm, gemm, "D = activation(alpha*A*B + beta*C + bias)", .check_args = check_args, .members = members);
