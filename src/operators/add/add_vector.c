/* add_vector.c - one CTA adds one tile of a row: vectors while the tile is whole, single elements where the row ends. */
#include "cute/kernel.h"
#include "operators/add/add_config.h"

/* Where this CTA works: a tile of a row. All in elements. */
typedef struct place {
    val row, first, n; // the row, the tile's first element in it, the row's length
} place;

/* This thread's part of the CTA's tile of a row of a, b or y. */
static tensor part_of(const add_config *cfg, const char *name, const char *pitch, place p)
{
    val start = add(mul(p.row, param(I64, pitch)), p.first);
    val address = add(pointer(name), convert(U64, mul(start, imm((int)ckl_dtype_bytes(cfg->dtype)))));
    tensor gTile = gmem_tensor(address, cfg->dtype, compact(leaf(add_tile(cfg)))); // (TILE)
    return thread_vectors(with_cache(gTile, IR_CACHE_STREAM), cfg->vec, cfg->threads, cfg->steps,
                          thread()); // (VEC,STEPS)
}

/* y = alpha*a + beta*b on fragments, in f32. */
static void combine(tensor rA, tensor rB, tensor rY)
{
    val alpha = param(F32, "alpha"), beta = param(F32, "beta");
    for (int i = 0; i < static_size(rY.layout); i++)
        set(rY, i, fma(alpha, at(rA, i), mul(beta, at(rB, i))));
}

void add_vector(const void *config, int part)
{
    const add_config *cfg = config;
    ir_current()->threads = cfg->threads;
    int align = (part == 0 ? cfg->vec : 1) * (int)ckl_dtype_bytes(cfg->dtype);

    val tiles = param(U32, "tiles_per_row");
    place p = { .n = param(I64, "n"), .row = convert(I64, div(cta_x(), tiles)) };
    p.first = mul(convert(I64, rem(cta_x(), tiles)), imm((int)add_tile(cfg)));

    tensor tAgA = part_of(cfg, "a", "lda", p), tBgB = part_of(cfg, "b", "ldb", p); // (VEC,STEPS)
    tensor tYgY = part_of(cfg, "y", "ldy", p);                                     // (VEC,STEPS)
    tensor rA = fragment_like(tAgA, F32), rB = fragment_like(tBgB, F32), rY = fragment_like(tYgY, F32);

    IF(ge(p.n, add(p.first, imm((int)add_tile(cfg))))) {
        copy(tAgA, rA, align);
        copy(tBgB, rB, align);
        combine(rA, rB, rY);
        copy(rY, tYgY, align);
    }
    ELSE
    {
        val mine = add(p.first, convert(I64, thread_vectors_first(cfg->vec, thread())));
        copy_within(tAgA, rA, mine, p.n);
        copy_within(tBgB, rB, mine, p.n);
        combine(rA, rB, rY);
        copy_within(rY, tYgY, mine, p.n);
    }
}
