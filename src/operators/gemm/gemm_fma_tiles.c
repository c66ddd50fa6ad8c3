/*
 * gemm_fma_tiles.c - how tiles of A and B of an f32 product come to shared memory, where the rows of a tile are
 * contiguous: by cp.async or, of K-major operands, through registers, by elements along K or by quads.
 *
 * Phased quads are the aligned ones of rows that begin anywhere. Each lies 0 to 3 elements behind the quad of its tile:
 * what a tile lacks at its end comes with the first quads of the next one, which is stored before it is multiplied.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_fma.h"

/* Row r of a tile among those of its half, if gated; then among the matrix's, whose last one stands for later ones. */
static val row_of_half(const gemm_fma_rows *t, val r)
{
    val row = t->half ? select(ge(r, imm(t->half)), sub(r, imm(t->half)), r) : r;
    return add(t->first, convert(I64, row));
}

static val matrix_row(const gemm_fma_rows *t, val r)
{
    val row = min(row_of_half(t, r), sub(t->count, imm64(1)));
    if (t->lists)
        return gemm_row_of_A((gemm_epilogue){ .gather = true }, t->lists, row);
    return t->half ? add(row, select(ge(r, imm(t->half)), t->count, imm64(0))) : row;
}

/*
 * K-major: neighbours load neighbours along K, each thread the same place of every K tile, one element or four. Fewer
 * loads than threads leave the last ones idle.
 */
static void divide_k_major(const gemm_fma_config *cfg, gemm_fma_operand *x, const gemm_fma_rows *t, int rows, val ld)
{
    const int across = cfg->depth / cfg->vec_k, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = gemm_fma_thread(cfg), k = mul(thread_at(thread, 0, across, at_once), imm(cfg->vec_k)),
        row = thread_at(thread, 1, across, at_once);
    x->vec = cfg->vec_k;
    x->copies = rows > at_once ? rows / at_once : 1;
    x->mine = rows < at_once ? lt(row, imm(rows)) : yes();
    x->to = tensor_address(x->sX, coord(row, k, 0));
    k = add(k, mul(gemm_fma_group(cfg), imm(cfg->depth)));
    x->k = convert(I32, k);
    x->rX = fragment(F32, compact(shape(x->vec, x->copies)));
    x->even = gemm_fma_is_tight(cfg) && !t->lists && !t->half;
    x->step = at_once;
    x->rows = convert(I32, min(sub(t->count, row_of_half(t, row)), imm64(rows)));
    for (int i = 0; i < x->copies; i++) {
        val start = mul(matrix_row(t, add(row, imm(i * at_once))), ld);
        x->from[i] = gemm_fma_bytes(i && x->even ? mul(ld, imm64(at_once)) : add(start, convert(I64, k)));
    }
    x->to_step = BYTES * at_once;
    x->advance = imm_as(U64, BYTES * gemm_fma_step(cfg));
}

/* M- or N-major: neighbours copy neighbouring vectors of rows. */
static void divide_m_major(const gemm_fma_config *cfg, gemm_fma_operand *x, const gemm_fma_rows *t, int rows, val ld)
{
    const int across = rows / x->vec, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = gemm_fma_thread(cfg), k = thread_at(thread, 1, across, at_once),
        row = mul(thread_at(thread, 0, across, at_once), imm(x->vec));
    val left = min(sub(t->count, row_of_half(t, row)), imm64(x->vec)); // of the vector, in the matrix
    val start = select(gt(left, imm64(0)), matrix_row(t, row), imm64(0));
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

/* All of a thread's rows are whole quads apart. */
static void align_quads(gemm_fma_operand *x)
{
    val bytes = bit_and(convert(U32, add(x->at, x->from[0])), imm_as(U32, (QUAD - 1) * BYTES));
    x->behind = convert(I32, div(bytes, imm(BYTES)));
    x->from[0] = sub(x->from[0], convert(U64, bytes));
}

/* Banks between runs of elements of K, as many as rows of which a warp stores quads. */
static int gap_of(const gemm_fma_config *cfg)
{
    return LANES * QUAD / cfg->depth;
}

/*
 * A stage's elements of K are rows apart, with a quad of padding: lanes that store elements along K have a bank each.
 * Those that store quads are four elements apart, and have one by gaps after every eight; phased ones store any of four
 * elements in any row at once, and have gaps after each four instead of padding.
 */
static layout elements_of_k(const gemm_fma_config *cfg, bool k_major, int pitch)
{
    enum { APART = 8 };
    const int depth = cfg->depth, whole = k_major && cfg->vec_k == QUAD && depth > APART ? APART : depth,
              run = k_major && cfg->phased ? QUAD : whole;
    return make_layout(shape(run, depth / run), stride(pitch, run * pitch + gap_of(cfg)));
}

gemm_fma_operand gemm_fma_operand_of(const gemm_fma_config *cfg, char name, const gemm_values *p, gemm_fma_rows t)
{
    const bool is_a = name == 'a', k_major = gemm_k_major(cfg->epilogue.layout, name);
    const int rows = is_a ? cfg->tile_m : cfg->tile_n, pitch = k_major && cfg->phased ? rows : rows + QUAD,
              threads = is_a ? gemm_fma_threads_m(cfg) : cfg->tile_n / cfg->block_n,
              block = is_a ? cfg->block_m : cfg->block_n, stage = gemm_fma_stage(cfg, rows);
    gemm_fma_operand x = {
        .vec = cfg->vec, .length = convert(I32, p->k), .stage_bytes = imm(BYTES * stage), .k_pitch = BYTES * pitch
    };
    const layout k = elements_of_k(cfg, k_major, pitch), stages = make_layout(leaf(cfg->stages), leaf(stage)),
                 of_all = make_layout(leaf(cfg->groups_k * cfg->stages), leaf(stage));
    const layout mine = make_layout(shape(QUAD, block / QUAD), stride(1, QUAD * threads));
    x.sX = smem_tensor(is_a ? "A" : "B", F32, layouts_of(3, (layout[]){ compact(leaf(rows)), k, of_all }), 16);
    x.sX.address = tensor_address(x.sX, coord(0, 0, mul(gemm_fma_group(cfg), imm(cfg->stages))));
    x.tCsX = tensor_with_layout(x.sX, layouts_of(3, (layout[]){ mine, k, stages }));
    x.tCsX.address =
        tensor_address(x.sX, coord(mul(is_a ? gemm_fma_place_m(cfg) : gemm_fma_place_n(cfg), imm(QUAD)), 0, 0));
    (k_major ? divide_k_major : divide_m_major)(cfg, &x, &t, rows, is_a ? p->lda : p->ldb);
    x.at = variable(U64, is_a ? p->a : p->b);
    if (cfg->phased && k_major)
        align_quads(&x);
    return x;
}

val gemm_fma_stage_after(const gemm_fma_config *cfg, val stage)
{
    return select(eq(stage, imm(cfg->stages - 1)), imm(0), add(stage, imm(1)));
}

/* The guard of copy i, whose row the matrix may not have. */
static val guard_of(const gemm_fma_operand *x, int i, val inside)
{
    return i && x->even ? logical_and(inside, gt(x->rows, imm_as(I32, i * x->step))) : inside;
}

/* Quads that may reach beyond their rows, by elements: those of K alone, by a comparison of unsigned numbers. */
static void load_elements(const gemm_fma_operand *x, const vector_at quads[], val left, tensor memory)
{
    vector_at elements[GEMM_FMA_COPIES * QUAD];
    val first = sub(add(sub(x->length, left), x->k), x->behind);
    for (int i = 0; i < x->copies * QUAD; i++) {
        val there = lt(convert(U32, add(first, imm_as(I32, i % QUAD))), convert(U32, x->length));
        elements[i] =
            (vector_at){ quads[i / QUAD].address, i % QUAD * BYTES, logical_and(quads[i / QUAD].guard, there) };
    }
    vectors_load(elements, x->copies * QUAD, 1, memory, x->rX.regs, 0);
}

/*
 * Where the elements of aligned quads belong that lie before the four of their tile, which begin at `to`: before the
 * last gap or, those of the first quads, where the tile before ends.
 */
static val before_quad(const gemm_fma_config *cfg, const gemm_fma_operand *x, val to, val before)
{
    const int gap = BYTES * gap_of(cfg), tile = cfg->depth * x->k_pitch + cfg->depth / QUAD * gap;
    val end = add(add(x->to, mul(before, x->stage_bytes)), imm(tile));
    return sub(select(eq(x->k, imm_as(I32, 0)), end, to), imm(gap));
}

static void load_quads(const gemm_fma_config *cfg, const gemm_fma_operand *x, val left, bool inside)
{
    if (!x->rX.regs)
        return;
    vector_at from[GEMM_FMA_COPIES] = { 0 };
    for (int i = 0; i < x->copies; i++) {
        val there = inside || cfg->phased ? x->mine : logical_and(x->mine, lt(x->k, left));
        from[i].guard = guard_of(x, i, there);
        from[i].address = add(i && x->even ? from[i - 1].address : x->at, x->from[i]);
    }
    const tensor memory = gmem_tensor(x->at, F32, compact(leaf(1)));
    if (inside || !cfg->phased)
        vectors_load(from, x->copies, x->vec, memory, x->rX.regs, 0);
    else
        load_elements(x, from, left, memory);
    warp_sync(); // ptxas, which does not see that stores of the next step wait for them, would let them begin late
    assign(x->at, add(x->at, x->advance));
}

/* Into the stage after one, where phased quads have what the tile before lacks. */
static void store_quads(const gemm_fma_config *cfg, const gemm_fma_operand *x, val before)
{
    if (!x->rX.regs)
        return;
    val to = add(x->to, mul(gemm_fma_stage_after(cfg, before), x->stage_bytes)), quad = to, last = to;
    if (cfg->phased) {
        val behind = mul(convert(U32, x->behind), imm(x->k_pitch));
        quad = sub(to, behind);
        last = sub(before_quad(cfg, x, to, before), behind);
    }
    IF(x->mine)
        for (int i = 0; i < x->copies * x->vec; i++) {
            const int k = i % x->vec;
            const bool may_be_before = cfg->phased && k < QUAD - 1;
            val address = may_be_before ? select(gt(x->behind, imm_as(I32, k)), last, quad) : quad;
            store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, 1, address, i / x->vec * x->to_step + k * x->k_pitch,
                     (val[]){ at(x->rX, i) });
        }
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
    return (at.load < at.store ? 1 : 2) + cfg->phased;
}

void gemm_fma_begin_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], val left)
{
    const int step = gemm_fma_step(cfg), stored = 1 + cfg->phased;
    gemm_fma_operand first[2][2] = { { x[0], x[1] }, { x[0], x[1] } };
    for (int s = 0; s < cfg->stages - 1; s++) {
        for (int i = 0; i < 2; i++)
            start_copies(&x[i], sub(left, imm_as(I32, s * step)), imm(s));
        cp_async_commit();
    }
    for (int tile = 0; tile < stored; tile++)
        for (int i = 0; i < 2; i++) {
            if (x[i].rX.regs)
                first[tile][i].rX = fragment_like(x[i].rX, F32);
            load_quads(cfg, &first[tile][i], sub(left, imm_as(I32, tile * step)), false);
        }
    for (int i = 0; i < 2; i++)
        if (tiles_ahead(cfg, i) > stored)
            load_quads(cfg, &x[i], sub(left, imm_as(I32, stored * step)), false);
    for (int tile = 0; tile < stored; tile++)
        for (int i = 0; i < 2; i++)
            store_quads(cfg, &first[tile][i], imm(tile ? tile - 1 : cfg->stages - 1));
    cp_async_wait(cfg->stages - 2);
    cta_sync();
}

void gemm_fma_continue_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], const gemm_fma_tile *t, int e)
{
    const int step = gemm_fma_step(cfg);
    const moments at[2] = { moments_of(cfg, 0), moments_of(cfg, 1) };
    for (int i = 0; i < 2; i++)
        if (e == at[i].store)
            store_quads(cfg, &x[i], cfg->phased ? gemm_fma_stage_after(cfg, t->ready) : t->ready);
    for (int i = 0; i < 2; i++) {
        if (e == at[i].load)
            load_quads(cfg, &x[i], sub(t->left, imm_as(I32, tiles_ahead(cfg, i) * step)), t->inside);
        if (e == at[i].copy)
            start_copies(&x[i], sub(t->left, imm_as(I32, (cfg->stages - 1) * step)), t->free);
    }
    if (e == at[1].copy)
        cp_async_commit();
}
