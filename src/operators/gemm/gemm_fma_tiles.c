/*
 * gemm_fma_tiles.c - how tiles of A and B of an f32 product come to shared memory: by cp.async, or K-major ones through
 * registers.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_fma.h"

val gemm_fma_row_of_half(const gemm_fma_rows *t, val r)
{
    val row = t->half ? select(ge(r, imm(t->half)), sub(r, imm(t->half)), r) : r;
    return add(t->first, convert(I64, row));
}

val gemm_fma_matrix_row(const gemm_fma_rows *t, val r)
{
    val row = min(gemm_fma_row_of_half(t, r), sub(t->count, imm64(1)));
    if (t->lists)
        return gemm_row_of_A((gemm_epilogue){ .gather = true }, t->lists, row);
    return t->half ? add(row, select(ge(r, imm(t->half)), t->count, imm64(0))) : row;
}

/* M- or N-major: neighbours copy neighbouring vectors of rows. */
static void divide_m_major(const gemm_fma_config *cfg, gemm_fma_operand *x, const gemm_fma_rows *t, int rows, val ld)
{
    const int across = rows / x->vec, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = gemm_fma_thread(cfg), k = thread_at(thread, 1, across, at_once),
        row = mul(thread_at(thread, 0, across, at_once), imm(x->vec));
    val left = min(sub(t->count, gemm_fma_row_of_half(t, row)), imm64(x->vec)); // of the vector, in the matrix
    val start = select(gt(left, imm64(0)), gemm_fma_matrix_row(t, row), imm64(0));
    x->to = tensor_address(x->sX, coord(row, k, 0));
    k = add(k, mul(gemm_fma_group(cfg), imm(cfg->depth)));
    x->step = at_once;
    x->copies = cfg->depth / x->step;
    x->k = convert(I32, k);
    x->even = gemm_fma_is_tight(cfg);
    for (int i = 0; i < x->copies; i++)
        x->from[i] = gemm_fma_bytes(i && x->even ? mul(ld, imm64(x->step))
                                           : add(mul(convert(I64, add(k, imm(i * x->step))), ld), start));
    x->to_step = BYTES * x->step * (rows + QUAD);
    x->valid = convert(U32, mul(max(left, imm64(0)), imm64(BYTES)));
    x->advance = gemm_fma_bytes(mul(ld, imm64(gemm_fma_step(cfg))));
}

/*
 * A stage's elements of K are rows apart, with a quad of padding where they are copied along M, else with a gap after
 * each four: lanes that store any of four elements along K, and as many rows as are left, have a bank each.
 */
static layout elements_of_k(const gemm_fma_config *cfg, bool k_major, int pitch)
{
    if (!k_major)
        return make_layout(leaf(cfg->depth), leaf(pitch));
    return make_layout(shape(QUAD, cfg->depth / QUAD), stride(pitch, QUAD * pitch + gemm_fma_gap(cfg)));
}

int gemm_fma_gap(const gemm_fma_config *cfg)
{
    return LANES * QUAD / cfg->depth;
}

gemm_fma_operand gemm_fma_operand_of(const gemm_fma_config *cfg, char name, const gemm_values *p, gemm_fma_rows t)
{
    const bool is_a = name == 'a', k_major = gemm_k_major(cfg->epilogue.layout, name);
    const int rows = is_a ? cfg->tile_m : cfg->tile_n, pitch = k_major ? rows : rows + QUAD,
              threads = is_a ? gemm_fma_threads_m(cfg) : cfg->tile_n / cfg->block_n,
              block = is_a ? cfg->block_m : cfg->block_n, stage = gemm_fma_stage(cfg, rows);
    gemm_fma_operand x = { .vec = cfg->vec, .stage_bytes = imm(BYTES * stage), .k_pitch = BYTES * pitch };
    const layout k = elements_of_k(cfg, k_major, pitch), stages = make_layout(leaf(cfg->stages), leaf(stage)),
                 of_all = make_layout(leaf(cfg->groups_k * cfg->stages), leaf(stage));
    const layout mine = make_layout(shape(QUAD, block / QUAD), stride(1, QUAD * threads));
    x.sX = smem_tensor(is_a ? "A" : "B", F32, layouts_of(3, (layout[]){ compact(leaf(rows)), k, of_all }), 16);
    x.sX.address = tensor_address(x.sX, coord(0, 0, mul(gemm_fma_group(cfg), imm(cfg->stages))));
    x.tCsX = tensor_with_layout(x.sX, layouts_of(3, (layout[]){ mine, k, stages }));
    x.tCsX.address =
        tensor_address(x.sX, coord(mul(is_a ? gemm_fma_place_m(cfg) : gemm_fma_place_n(cfg), imm(QUAD)), 0, 0));
    (k_major ? gemm_fma_divide_quads : divide_m_major)(cfg, &x, &t, rows, is_a ? p->lda : p->ldb);
    x.at = variable(U64, is_a ? p->a : p->b);
    if (cfg->phased && k_major)
        gemm_fma_align_quads(&x);
    return x;
}

val gemm_fma_stage_after(const gemm_fma_config *cfg, val stage)
{
    return select(eq(stage, imm(cfg->stages - 1)), imm(0), add(stage, imm(1)));
}

/* Starts the copies of the next K tile of an operand that is not K-major. */
static void start_copies(const gemm_fma_operand *x, val left, val stage)
{
    if (x->rX.regs)
        return;
    val to = add(x->to, mul(stage, x->stage_bytes)), from = x->at;
    UNROLL(i, x->copies) {
        val valid = select(lt(add(x->k, imm_as(I32, i * x->step)), left), x->valid, imm_as(U32, 0));
        from = add(x->even ? from : x->at, x->from[i]);
        cp_async(add(to, imm(i * x->to_step)), from, BYTES * x->vec, valid);
    }
    assign(x->at, add(x->at, x->advance));
}

/*
 * The elements of K of a step at which a tile of operand i goes from registers to shared memory, its next one is loaded
 * there, or its copies begin. Where registers are few, each operand has them for half of a step.
 */
typedef struct moments {
    int store, load, copy;
} moments;

static moments moments_of(const gemm_fma_config *cfg, int i)
{
    enum { LONG = 16 };
    const int half = cfg->depth / 2;
    if (!gemm_fma_is_tight(cfg) || cfg->depth < LONG)
        return (moments){ i, i, i };
    return i == 0 ? (moments){ .load = half } : (moments){ .store = half };
}

/* Tiles from the one that is multiplied to the one that is loaded. */
static int tiles_ahead(const gemm_fma_config *cfg, int i)
{
    const moments at = moments_of(cfg, i);
    return at.load < at.store ? 1 : 2;
}

/*
 * Before the first step: copies of all stages but one are under way, and of a K-major operand the first tile is in
 * shared memory, the second on its way to registers. Both are loaded at once.
 */
void gemm_fma_begin_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], val left)
{
    gemm_fma_operand first[2] = { x[0], x[1] };
    for (int s = 0; s < cfg->stages - 1; s++) {
        for (int i = 0; i < 2; i++)
            start_copies(&x[i], sub(left, imm_as(I32, s * gemm_fma_step(cfg))), imm(s));
        cp_async_commit();
    }
    tensor before[2];
    for (int i = 0; i < 2; i++) {
        if (x[i].rX.regs)
            first[i].rX = fragment_like(x[i].rX, F32);
        if (cfg->phased && x[i].rX.regs)
            before[i] = gemm_fma_load_before(&x[i], left);
        gemm_fma_load_quads(cfg, &first[i], left, false);
    }
    for (int i = 0; i < 2; i++)
        if (tiles_ahead(cfg, i) == 2)
            gemm_fma_load_quads(cfg, &x[i], sub(left, imm_as(I32, gemm_fma_step(cfg))), false);
    for (int i = 0; i < 2; i++) {
        if (cfg->phased && x[i].rX.regs)
            gemm_fma_store_before(&x[i], before[i]);
        gemm_fma_store_quads(cfg, &first[i], imm(0));
    }
    cp_async_wait(cfg->stages - 2);
    cta_sync();
}

void gemm_fma_continue_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], const gemm_fma_tile *t, int e)
{
    const int step = gemm_fma_step(cfg);
    const moments at[2] = { moments_of(cfg, 0), moments_of(cfg, 1) };
    for (int i = 0; i < 2; i++)
        if (e == at[i].store)
            gemm_fma_store_quads(cfg, &x[i], gemm_fma_stage_after(cfg, t->ready));
    for (int i = 0; i < 2; i++) {
        if (e == at[i].load)
            gemm_fma_load_quads(cfg, &x[i], sub(t->left, imm_as(I32, tiles_ahead(cfg, i) * step)), t->inside);
        if (e == at[i].copy)
            start_copies(&x[i], sub(t->left, imm_as(I32, (cfg->stages - 1) * step)), t->free);
    }
    if (e == at[1].copy)
        cp_async_commit();
}

