/* gemm_fma_plan.c - the host side of the kernel that multiplies f32 without tensor cores. */
#include "base/math.h"
#include "operators/gemm/gemm_fma.h"
#include "operators/gemm/gemm_plan.h"

enum { THREADS_PER_SM = 1024 }; // with fewer than 64 registers each a block does not fit

/* Tiles of D of all products; of groups as many as there may be, for each ends inside a tile. */
static int64_t tiles_of(const ckl_gemm_desc *d, const gemm_fma_config *c)
{
    const int64_t along_m =
        d->groups ? d->m / c->tile_m + min_i64(d->m, d->groups) : d->batch * ceil_div(d->m, c->tile_m);
    return along_m * ceil_div(d->gated ? 2 * d->n : d->n, c->tile_n);
}

/* The longest vector in which operands that are not K-major can be read, in elements. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = d->groups && !gemm_k_major((choice)d->layout, 'a') ? 1 : 4; // groups begin at any row
    for (const char *x = "ab"; *x; x++)
        while (vec > 1 && !gemm_k_major((choice)d->layout, *x) &&
               (!gemm_rows_aligned(d, *x, vec * 4) || (*x == 'b' && d->gated && d->n % vec)))
            vec /= 2;
    return vec;
}

/* Do rows of K-major operands consist of whole vectors of four elements? */
static bool has_vectors(const ckl_gemm_desc *d)
{
    for (const char *x = "ab"; *x; x++)
        if (gemm_k_major((choice)d->layout, *x) && !gemm_rows_aligned(d, *x, TMA_ALIGNMENT))
            return false;
    return d->k % GEMM_FMA_QUAD == 0;
}

/* Are rows of the matrices that the epilogue reads and writes whole quads? */
static bool is_whole(const ckl_gemm_desc *d)
{
    const bool x = d->preactivation || gemm_is_backward((choice)d->activation);
    return d->n % GEMM_FMA_QUAD == 0 && gemm_rows_aligned(d, 'd', TMA_ALIGNMENT) &&
           (!d->c || gemm_rows_aligned(d, 'c', TMA_ALIGNMENT)) && (!x || gemm_rows_aligned(d, 'x', TMA_ALIGNMENT));
}

static ckl_status choose_fma(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_fma_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->vec = vector_of(d);
    c->whole = is_whole(d);
    c->registers = d->layout != CKL_GEMM_TN && has_vectors(d);
    c->grouped = d->groups > 0;
    if (tiles_of(d, c) < device->sm_count) {
        c->tile_m = c->tile_n = 64;
        c->block_m = c->block_n = 8;
        c->ctas = 4;
    }
    return CKL_OK;
}

/* Does each thread get whole copies of an operand's tile, and not too many? */
static bool divides(const ckl_gemm_desc *d, const gemm_fma_config *c, char name)
{
    const int rows = name == 'a' ? c->tile_m : c->tile_n, threads = gemm_fma_threads(c);
    if (gemm_k_major((choice)d->layout, name)) {
        const int across = c->registers ? c->depth / GEMM_FMA_QUAD : c->depth; // threads along K
        return across > 0 && threads % across == 0 && rows % (threads / across) == 0 &&
               rows * across / threads <= GEMM_FMA_COPIES;
    }
    return rows % c->vec == 0 && threads % (rows / c->vec) == 0 && c->depth % (threads / (rows / c->vec)) == 0;
}

static ckl_status admit_tile(const gemm_fma_config *c)
{
    const int quad = GEMM_FMA_QUAD;
    if (c->block_m < quad || c->block_m % quad || c->block_n < quad || c->block_n % quad ||
        c->block_m * c->block_n > 128 || (c->epilogue.gated && c->block_n % (2 * quad)))
        FAIL(CKL_INVALID, "gemm fma: block %dx%d must be multiples of %d, at most 128 elements%s", c->block_m,
             c->block_n, quad, c->epilogue.gated ? ", and even of gated products" : "");
    if (c->tile_m < 1 || c->tile_n < 1 || c->tile_m % (c->block_m * GEMM_FMA_LANES_M) ||
        c->tile_n % (c->block_n * GEMM_FMA_LANES_N))
        FAIL(CKL_INVALID, "gemm fma: tile %dx%d is not whole warps of %dx%d blocks of %dx%d", c->tile_m, c->tile_n,
             GEMM_FMA_LANES_M, GEMM_FMA_LANES_N, c->block_m, c->block_n);
    if (c->stages < 2 || c->stages > 8 || c->depth < 2 || c->depth > 32 || c->depth % 2)
        FAIL(CKL_INVALID, "gemm fma: stages=%d is not in 2..8, or depth=%d not even in 2..32", c->stages, c->depth);
    if (c->vec != 1 && c->vec != 2 && c->vec != 4)
        FAIL(CKL_INVALID, "gemm fma: vec=%d is none of 1, 2, 4", c->vec);
    return CKL_OK;
}

static ckl_status admit_fma(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_fma_config *c = config;
    TRY(gemm_check_epilogue("fma", d, &c->epilogue));
    TRY(gemm_check_same_types("fma", d));
    if (d->a != CKL_F32 || d->math != CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a=f32 with math=f32 alone is multiplied without tensor cores");
    TRY(gemm_check_grouped("fma", d, c->grouped));
    TRY(admit_tile(c));
    const int threads = gemm_fma_threads(c);
    if (c->ctas < 1 || threads > device->threads_per_cta_max || c->ctas * threads > THREADS_PER_SM)
        FAIL(CKL_INVALID, "gemm fma: ctas=%d of %d threads are not in 1..%d threads of an SM", c->ctas, threads,
             THREADS_PER_SM);
    for (const char *x = "ab"; *x; x++)
        if (!divides(d, c, *x))
            FAIL(CKL_INVALID, "gemm fma: %d threads do not share out stages of %d elements of K of %c evenly", threads,
                 c->depth, *x);
    if (c->vec > vector_of(d))
        FAIL(CKL_UNSUPPORTED, "gemm fma: rows of A and B start at multiples of %d elements, vec=%d wants more",
             vector_of(d), c->vec);
    if (c->registers && !has_vectors(d))
        FAIL(CKL_UNSUPPORTED,
             "gemm fma: K-major rows of A or B are not whole vectors of 16 bytes: registers=0 copies elements");
    if (c->whole && !is_whole(d))
        FAIL(CKL_UNSUPPORTED, "gemm fma: rows of C, D or X are not whole vectors of 16 bytes: whole=0 stores elements");
    const int64_t need = (int64_t)c->stages * c->depth * (c->tile_m + c->tile_n + 2 * GEMM_FMA_QUAD) * 4;
    if (need > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "gemm fma: %d stages need %" PRId64 " bytes of shared memory, %s has %" PRId64, c->stages,
             need, device->id, (int64_t)device->smem_per_cta_bytes);
    if (d->m > INT32_MAX || d->n > INT32_MAX / 2 || d->k > INT32_MAX || tiles_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a size, or their tiles, are beyond 32 bits");
    return CKL_OK;
}

static ckl_status launch_fma(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_fma_config *c = plan->config;
    const choice layout = (choice)d->layout;
    const int k_major = c->registers ? TMA_ALIGNMENT : 4, m_major = 4 * c->vec;
    if ((uintptr_t)x->a % (uintptr_t)(gemm_k_major(layout, 'a') ? k_major : m_major) ||
        (uintptr_t)x->b % (uintptr_t)(gemm_k_major(layout, 'b') ? k_major : m_major))
        FAIL(CKL_INVALID,
             "gemm fma: a=%p or b=%p is not aligned to 16 bytes; config='vec=1 registers=0' takes any alignment", x->a,
             x->b);
    if (c->whole && !PLAN_ALIGNED(TMA_ALIGNMENT, x->c, x->d, x->x))
        FAIL(CKL_INVALID,
             "gemm fma: c=%p, d=%p or x=%p is not aligned to 16 bytes; config='whole=0' takes any alignment", x->c,
             x->d, x->x);
    const gemm_params params = gemm_params_of(d, args);
    return plan_launch(plan, 0, (plan_grid){ .x = tiles_of(d, c) }, &params, stream);
}

static const field fma_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_fma_config, epilogue)) //
                                    GEMM_FMA_CONFIG(FIELD_ROW, gemm_fma_config) };

const implementation gemm_fma_implementation = {
    IMPLEMENTATION_PARTS(gemm, fma),
    .summary = "f32 as it is: tiles by cp.async, blocks of D in registers; rows of any pitch; from sm_80 on",
    .params = &gemm_param_list,
};
