/*
 * gemm_fma.c - f32 products without tensor cores: tiles by cp.async, a block of D in each thread's registers.
 *
 * For each element of K the rows of A and of B^T are contiguous in shared memory, so a thread loads four at once and
 * multiplies each by each. A K-major operand is transposed on its way through registers. The speed depends on the share
 * of FMAs among the instructions, and on conflicts of register banks: bench/notes/gemm.md counts both.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/gemm/gemm_fma.h"

/*
 * The rows of a matrix that a tile has, of `count` in all; of a gated B the tile's upper half is of the last columns.
 */
typedef struct tile_rows {
    val first, count;         // i64
    int half;                 // 0: not gated
    const gemm_values *lists; // NULL, or the product whose rows of A a list takes
} tile_rows;

/* This thread's copies of an operand's tiles along K, and its partition to multiply. */
typedef struct operand {
    tensor sX;                 // (ROWS,BK,STAGES)
    tensor tCsX;               // ((QUAD,QUADS),BK,STAGES)
    int vec;                   // elements of a copy
    int copies;                // of a stage
    int step;                  // between them: elements of K, where K is not contiguous, else rows
    val k;                     // i32: of the first copy, in its tile
    bool even;                 // are copies evenly apart? That spares a thread their addresses
    val from[GEMM_FMA_COPIES]; // u64: bytes from `at`, or, of even ones but for the first, from the one before
    val rows;                  // i32: of the matrix from the first on, for even ones
    val to, stage_bytes;       // in shared memory: the first copy of stage 0
    int to_step, k_pitch;      // bytes between copies there, and between elements of K
    val ahead[GEMM_FMA_COPIES]; // i32: of rows that begin anywhere, elements from a tile's quads to the aligned ones
    val valid;                 // u32: bytes of a copy that lie in the matrix
    val at;                    // u64 variable: the K tile that is loaded next
    val advance;               // u64: bytes to the one after
    tensor rX;                 // (VEC,COPIES): of a K-major one, the tile before on its way to shared memory
    val mine;                  // predicate: this thread has some of it
} operand;

/* This thread's group, and its place there. */
static val group_of(const gemm_fma_config *cfg)
{
    return cfg->groups_k > 1 ? div(thread(), imm(gemm_fma_group_threads(cfg))) : imm(0);
}

static val thread_of_group(const gemm_fma_config *cfg)
{
    return cfg->groups_k > 1 ? rem(thread(), imm(gemm_fma_group_threads(cfg))) : thread();
}

/* Row r of a tile among those of its half, if gated; then among the matrix's, whose last one stands for later ones. */
static val row_of_half(const tile_rows *t, val r)
{
    val row = t->half ? select(ge(r, imm(t->half)), sub(r, imm(t->half)), r) : r;
    return add(t->first, convert(I64, row));
}

static val matrix_row(const tile_rows *t, val r)
{
    val row = min(row_of_half(t, r), sub(t->count, imm64(1)));
    if (t->lists)
        return gemm_row_of_A((gemm_epilogue){ .gather = true }, t->lists, row);
    return t->half ? add(row, select(ge(r, imm(t->half)), t->count, imm64(0))) : row;
}

static val bytes_of(val elements)
{
    return convert(U64, mul(elements, imm64(BYTES)));
}

/*
 * K-major: neighbours load neighbours along K, each thread the same place of every K tile, one element or four. Fewer
 * loads than threads leave the last ones idle.
 */
static void divide_k_major(const gemm_fma_config *cfg, operand *x, const tile_rows *t, int rows, val ld)
{
    const int across = cfg->depth / cfg->vec_k, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = thread_of_group(cfg), k = mul(thread_at(thread, 0, across, at_once), imm(cfg->vec_k)),
        row = thread_at(thread, 1, across, at_once);
    x->vec = cfg->vec_k;
    x->copies = rows > at_once ? rows / at_once : 1;
    x->mine = rows < at_once ? lt(row, imm(rows)) : yes();
    x->to = tensor_address(x->sX, coord(row, k, 0));
    k = add(k, mul(group_of(cfg), imm(cfg->depth)));
    x->k = convert(I32, k);
    x->rX = fragment(F32, compact(shape(x->vec, x->copies)));
    x->even = (cfg->phased || gemm_fma_is_tight(cfg)) && !t->lists && !t->half;
    x->step = at_once;
    x->rows = convert(I32, min(sub(t->count, row_of_half(t, row)), imm64(rows)));
    for (int i = 0; i < x->copies; i++) {
        val start = mul(matrix_row(t, add(row, imm(i * at_once))), ld);
        x->from[i] = bytes_of(i && x->even ? mul(ld, imm64(at_once)) : add(start, convert(I64, k)));
    }
    x->to_step = BYTES * at_once;
    x->advance = imm_as(U64, BYTES * gemm_fma_step(cfg));
}

/* M- or N-major: neighbours copy neighbouring vectors of rows. */
static void divide_m_major(const gemm_fma_config *cfg, operand *x, const tile_rows *t, int rows, val ld)
{
    const int across = rows / x->vec, at_once = gemm_fma_group_threads(cfg) / across;
    val thread = thread_of_group(cfg), k = thread_at(thread, 1, across, at_once),
        row = mul(thread_at(thread, 0, across, at_once), imm(x->vec));
    val left = min(sub(t->count, row_of_half(t, row)), imm64(x->vec)); // of the vector, in the matrix
    val start = select(gt(left, imm64(0)), matrix_row(t, row), imm64(0));
    x->to = tensor_address(x->sX, coord(row, k, 0));
    k = add(k, mul(group_of(cfg), imm(cfg->depth)));
    x->step = at_once;
    x->copies = cfg->depth / x->step;
    x->k = convert(I32, k);
    x->even = gemm_fma_is_tight(cfg);
    for (int i = 0; i < x->copies; i++)
        x->from[i] = bytes_of(i && x->even ? mul(ld, imm64(x->step))
                                           : add(mul(convert(I64, add(k, imm(i * x->step))), ld), start));
    x->to_step = BYTES * x->step * (rows + QUAD);
    x->valid = convert(U32, mul(max(left, imm64(0)), imm64(BYTES)));
    x->advance = bytes_of(mul(ld, imm64(gemm_fma_step(cfg))));
}

/*
 * K-major rows that begin anywhere are read by aligned quads, each of which lies 0 to 3 elements ahead of the quad of
 * its tile. What a tile's last quads have too much is stored where the next tile begins.
 */
static void read_ahead(operand *x)
{
    for (int i = 0; i < x->copies; i++) {
        if (i && x->even) { // whole quads of rows away
            x->ahead[i] = x->ahead[0];
            continue;
        }
        val start = convert(U32, add(x->at, x->from[i]));
        val bytes = bit_and(sub(imm_as(U32, 0), start), imm_as(U32, (QUAD - 1) * BYTES));
        x->ahead[i] = convert(I32, div(bytes, imm(BYTES)));
        x->from[i] = add(x->from[i], convert(U64, bytes));
    }
}

/* Banks between rows of the elements of K of a stage after which the next ones come, so that a warp's lanes differ. */
static int gap_of(const gemm_fma_config *cfg)
{
    return LANES * QUAD / cfg->depth;
}

/*
 * The elements of K in a stage, in rows with a quad of padding: lanes that store elements along K do so in banks of
 * their own. Lanes that store vectors are four elements apart, so every eight elements have a gap as well, of as many
 * banks as the warp has rows; where these begin anywhere, every four, instead of padding.
 */
static layout elements_of_k(const gemm_fma_config *cfg, char name, int pitch)
{
    enum { APART = 8 };
    const bool gaps = gemm_k_major(cfg->epilogue.layout, name) && cfg->vec_k > 1 && cfg->depth > APART;
    const int depth = cfg->depth, run = cfg->phased && gemm_k_major(cfg->epilogue.layout, name) ? QUAD : gaps ? APART : depth;
    return make_layout(shape(run, depth / run), stride(pitch, run * pitch + gap_of(cfg)));
}

static operand describe_operand(const gemm_fma_config *cfg, char name, const gemm_values *p, tile_rows t)
{
    const bool is_a = name == 'a';
    const bool phased = cfg->phased && gemm_k_major(cfg->epilogue.layout, name);
    const int rows = is_a ? cfg->tile_m : cfg->tile_n, pitch = phased ? rows : rows + QUAD,
              threads = is_a ? gemm_fma_threads_m(cfg) : cfg->tile_n / cfg->block_n,
              block = is_a ? cfg->block_m : cfg->block_n;
    operand x = { .vec = cfg->vec };
    const int stage = gemm_fma_stage(cfg, rows);
    const layout k = elements_of_k(cfg, name, pitch), stages = make_layout(leaf(cfg->stages), leaf(stage)),
                 of_all = make_layout(leaf(cfg->groups_k * cfg->stages), leaf(stage));
    const layout mine = make_layout(shape(QUAD, block / QUAD), stride(1, QUAD * threads));
    x.sX = smem_tensor(is_a ? "A" : "B", F32, layouts_of(3, (layout[]){ compact(leaf(rows)), k, of_all }), 16);
    x.sX.address = tensor_address(x.sX, coord(0, 0, mul(group_of(cfg), imm(cfg->stages))));
    x.tCsX = tensor_with_layout(x.sX, layouts_of(3, (layout[]){ mine, k, stages }));
    x.tCsX.address =
        tensor_address(x.sX, coord(mul(is_a ? gemm_fma_place_m(cfg) : gemm_fma_place_n(cfg), imm(QUAD)), 0, 0));
    x.stage_bytes = imm(BYTES * stage);
    x.k_pitch = BYTES * pitch;
    (gemm_k_major(cfg->epilogue.layout, name) ? divide_k_major : divide_m_major)(cfg, &x, &t, rows,
                                                                                 is_a ? p->lda : p->ldb);
    x.at = variable(U64, is_a ? p->a : p->b);
    if (phased)
        read_ahead(&x);
    return x;
}

static val stage_after(const gemm_fma_config *cfg, val stage)
{
    return select(eq(stage, imm(cfg->stages - 1)), imm(0), add(stage, imm(1)));
}

/* Does this thread copy the first elements of K? */
static val is_first(const operand *x)
{
    return logical_and(x->mine, eq(x->k, imm_as(I32, 0)));
}

/* The guard of copy i, whose row the matrix may not have. */
static val guard_of(const operand *x, int i, val inside)
{
    return i && x->even ? logical_and(inside, gt(x->rows, imm_as(I32, i * x->step))) : inside;
}

/* Aligned quads: where all lie inside their rows as vectors, else by elements. */
static void load_quads(const operand *x, const vector_at quads[], val left, tensor memory)
{
    IF(lt(add(x->k, imm_as(I32, 2 * (QUAD - 1))), left))
        vectors_load(quads, x->copies, QUAD, memory, x->rX.regs, 0);
    ELSE {
        vector_at elements[GEMM_FMA_COPIES * QUAD];
        for (int i = 0; i < x->copies * QUAD; i++) {
            val k = add(add(x->k, x->ahead[i / QUAD]), imm_as(I32, i % QUAD));
            elements[i] = (vector_at){ quads[i / QUAD].address, i % QUAD * BYTES,
                                       logical_and(quads[i / QUAD].guard, lt(k, left)) };
        }
        vectors_load(elements, x->copies * QUAD, 1, memory, x->rX.regs, 0);
    }
}

/*
 * Where the elements of aligned quads belong that lie beyond the four of their tile, which begin at `to`: behind the
 * next gap or, those of the last quads, where the next tile begins: a stage on, or in the ring of the next group.
 */
static val beyond_quad(const gemm_fma_config *cfg, const operand *x, val to, val stage)
{
    const int last_group = cfg->groups_k - 1, gap = BYTES * gap_of(cfg),
              tile = cfg->depth * x->k_pitch + cfg->depth / QUAD * gap;
    val next = add(x->to, mul(stage_after(cfg, stage), x->stage_bytes));
    if (last_group) {
        val ring = mul(x->stage_bytes, imm(cfg->stages));
        next = select(eq(group_of(cfg), imm(last_group)), sub(next, mul(ring, imm(last_group))), add(to, ring));
    }
    val is_last = eq(rem(x->k, imm_as(I32, cfg->depth)), imm_as(I32, cfg->depth - QUAD));
    return add(select(is_last, sub(next, imm(tile)), to), imm(gap));
}

/* The elements before the first aligned quads of rows that begin anywhere, on their way to the first stage. */
static tensor load_before(const operand *x, val left)
{
    tensor rX = fragment(F32, compact(shape(QUAD, x->copies)));
    vector_at from[GEMM_FMA_COPIES * QUAD] = { 0 };
    val row = x->at;
    for (int i = 0; i < x->copies; i++) {
        row = add(x->even ? row : x->at, x->from[i]);
        val first = sub(row, convert(U64, mul(x->ahead[i], imm_as(I32, BYTES))));
        val count = select(is_first(x), min(x->ahead[i], left), imm_as(I32, 0));
        for (int k = 0; k < QUAD; k++)
            from[i * QUAD + k] = (vector_at){ first, k * BYTES, guard_of(x, i, lt(imm_as(I32, k), count)) };
    }
    vectors_load(from, x->copies * QUAD, 1, gmem_tensor(x->at, F32, compact(leaf(1))), rX.regs, 0);
    return rX;
}

static void store_before(const operand *x, tensor rX)
{
    for (int i = 0; i < x->copies * QUAD; i++)
        IF(logical_and(is_first(x), lt(imm_as(I32, i % QUAD), x->ahead[i / QUAD])))
            store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, 1, x->to, i / QUAD * x->to_step + i % QUAD * x->k_pitch,
                     (val[]){ at(rX, i) });
}

/*
 * A K tile's way through registers, of a K-major operand: loads, where elements beyond `left` of K are 0, and stores.
 * Nothing for others.
 */
static void load_registers(const gemm_fma_config *cfg, const operand *x, val left)
{
    if (!x->rX.regs)
        return;
    vector_at from[GEMM_FMA_COPIES] = { 0 };
    for (int i = 0; i < x->copies; i++) {
        val inside = cfg->phased ? x->mine : logical_and(x->mine, lt(x->k, left));
        from[i].guard = guard_of(x, i, inside);
        from[i].address = add(i && x->even ? from[i - 1].address : x->at, x->from[i]);
    }
    const tensor memory = gmem_tensor(x->at, F32, compact(leaf(1)));
    if (!cfg->phased)
        vectors_load(from, x->copies, x->vec, memory, x->rX.regs, 0);
    else
        load_quads(x, from, left, memory);
    warp_sync(); // ptxas, which does not see that stores of the next step wait for them, would let them begin late
    assign(x->at, add(x->at, x->advance));
}

static void store_registers(const gemm_fma_config *cfg, const operand *x, val stage)
{
    if (!x->rX.regs)
        return;
    val to = add(x->to, mul(stage, x->stage_bytes)), quad = to, beyond = to;
    IF(x->mine)
        for (int i = 0; i < x->copies; i++) {
            if (cfg->phased && (i == 0 || !x->even)) {
                val ahead = mul(convert(U32, x->ahead[i]), imm(x->k_pitch));
                quad = add(to, ahead);
                beyond = add(beyond_quad(cfg, x, to, stage), ahead);
            }
            for (int k = 0; k < x->vec; k++) {
                val address = cfg->phased && k ? select(ge(x->ahead[i], imm_as(I32, QUAD - k)), beyond, quad) : quad;
                store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, 1, address, i * x->to_step + k * x->k_pitch,
                         (val[]){ at(x->rX, k, i) });
            }
        }
}

/* Starts the copies of the next K tile of an operand that is not K-major. */
static void start_copies(const operand *x, val left, val stage)
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
static void begin_tiles(const gemm_fma_config *cfg, const operand x[2], val left)
{
    operand first[2] = { x[0], x[1] };
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
            before[i] = load_before(&x[i], left);
        load_registers(cfg, &first[i], left);
    }
    for (int i = 0; i < 2; i++)
        if (tiles_ahead(cfg, i) == 2)
            load_registers(cfg, &x[i], sub(left, imm_as(I32, gemm_fma_step(cfg))));
    for (int i = 0; i < 2; i++) {
        if (cfg->phased && x[i].rX.regs)
            store_before(&x[i], before[i]);
        store_registers(cfg, &first[i], imm(0));
    }
    cp_async_wait(cfg->stages - 2);
    cta_sync();
}

/* The same at element e of the tile that begins with `left` elements of K. */
static void continue_tiles(const gemm_fma_config *cfg, const operand x[2], int e, val left, val ready, val free)
{
    const moments at[2] = { moments_of(cfg, 0), moments_of(cfg, 1) };
    for (int i = 0; i < 2; i++)
        if (e == at[i].store)
            store_registers(cfg, &x[i], stage_after(cfg, ready));
    for (int i = 0; i < 2; i++) {
        if (e == at[i].load)
            load_registers(cfg, &x[i], sub(left, imm_as(I32, tiles_ahead(cfg, i) * gemm_fma_step(cfg))));
        if (e == at[i].copy)
            start_copies(&x[i], sub(left, imm_as(I32, (cfg->stages - 1) * gemm_fma_step(cfg))), free);
    }
    if (e == at[1].copy)
        cp_async_commit();
}

/* The factors of a thread at one element of K; the next ones are loaded meanwhile. */
typedef struct fragments {
    tensor rA, rB; // ((QUAD,QUADS))
} fragments;

static void load_fragments(const fragments *f, const operand x[2], int k, val stage)
{
    copy(slice(x[0].tCsX, _, k, stage), f->rA, QUAD * BYTES);
    copy(slice(x[1].tCsX, _, k, stage), f->rB, QUAD * BYTES);
}

/*
 * The order of a thread's multiply-adds: along rows or columns of its block, one by one or in squares of four, to and
 * fro or always forth. A neighbour in it shares an operand, which then needs no bank. The orders that ptxas makes the
 * fewest conflicts of: bench/notes/gemm.md has others.
 */
typedef struct fma_order {
    bool by_rows, back;
    int side; // of a square
} fma_order;

static fma_order order_of(const gemm_fma_config *cfg)
{
    enum { QUADS_OF_THREE = 12 };
    if (cfg->block_m == QUADS_OF_THREE)
        return (fma_order){ .side = 2 };
    if (cfg->block_n == QUADS_OF_THREE)
        return (fma_order){ .by_rows = true, .back = true, .side = 1 };
    if (gemm_fma_is_tight(cfg))
        return (fma_order){ .back = true, .side = 2 };
    return (fma_order){ .by_rows = cfg->block_m >= cfg->block_n, .back = true, .side = 1 };
}

static void multiply(const gemm_fma_config *cfg, const fragments *f, tensor acc)
{
    const fma_order order = order_of(cfg);
    const int side = order.side, outer = order.by_rows ? cfg->block_m : cfg->block_n,
              inner = order.by_rows ? cfg->block_n : cfg->block_m;
    for (int o = 0; o < outer; o += side)
        for (int step = 0; step < inner; step += side)
            for (int corner = 0; corner < side * side; corner++) {
                const int n = order.back && o / side % 2 ? inner - side - step : step;
                const int i = (order.by_rows ? o : n) + (corner == 1 || corner == 2);
                const int j = (order.by_rows ? n : o) + (corner >= 2);
                set(acc, coord(i, j), fma(at(f->rA, i), at(f->rB, j), at(acc, i, j)));
            }
}

/*
 * acc = A tile * B tile over all of K. The first factors of a K tile are loaded while the last ones of the tile before
 * are multiplied, after a wait for what arrives; by then no warp reads the tile before.
 */
static void mainloop(const gemm_fma_config *cfg, const operand x[2], val k, tensor acc)
{
    val left = variable(I32, convert(I32, k)); // elements of K from the tile on that is multiplied
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 1)); // stages
    fragments f[2];
    for (int i = 0; i < 2; i++)
        f[i] = (fragments){ fragment(F32, compact(shape(shape(QUAD, cfg->block_m / QUAD)))),
                            fragment(F32, compact(shape(shape(QUAD, cfg->block_n / QUAD)))) };
    begin_tiles(cfg, x, left);
    load_fragments(&f[0], x, 0, ready);
    LOOP(kt, convert(U32, div_up(k, gemm_fma_step(cfg)))) {
        for (int e = 0; e < cfg->depth; e++) {
            if (e == cfg->depth - 1) {
                cp_async_wait(cfg->stages - 2);
                cta_sync();
                assign(free, ready);
                assign(ready, stage_after(cfg, ready));
                assign(left, sub(left, imm_as(I32, gemm_fma_step(cfg))));
            }
            load_fragments(&f[(e + 1) % 2], x, (e + 1) % cfg->depth, ready);
            continue_tiles(cfg, x, e, left, ready, free);
            multiply(cfg, &f[e % 2], acc);
        }
    }
    cp_async_wait(0);
}

/* The first group adds the others' sums to its own. */
static void add_groups(const gemm_fma_config *cfg, tensor acc)
{
    const int block = cfg->block_m * cfg->block_n, threads = gemm_fma_group_threads(cfg);
    tensor sSums = smem_tensor("groups", F32, compact(shape(threads, block, cfg->groups_k - 1)), 16);
    val thread = thread_of_group(cfg), group = group_of(cfg);
    IF(gt(group, imm(0)))
        for (int i = 0; i < block; i++)
            set(sSums, coord(thread, i, sub(group, imm(1))), at(acc, i));
    cta_sync();
    IF(eq(group, imm(0)))
        for (int g = 0; g < cfg->groups_k - 1; g++)
            for (int i = 0; i < block; i++)
                set(acc, i, add(at(acc, i), at(sSums, thread, i, g)));
}

/* A slice of the K of a tile; unset: it is not shared. */
typedef struct tile_slice {
    val tile, slice; // u32: number among those that are shared
    val shared;      // predicate: is this one of them?
} tile_slice;

/*
 * This thread's sums of a slice of a tile in the workspace: (BLOCK_M,BLOCK_N). They are stored one by one, since a
 * vector's would have neighbouring registers, whose banks meet those of the factors in nearly half of the FMAs.
 */
static tensor parts_of(const gemm_fma_config *cfg, const gemm_values *p, val tile, val slice)
{
    const int threads = gemm_fma_group_threads(cfg);
    val number = add(mul(convert(U64, tile), convert(U64, p->slices)), convert(U64, slice));
    val of_tile = mul(number, imm64((int64_t)BYTES * cfg->tile_m * cfg->tile_n));
    return gmem_tensor(add(p->parts, add(of_tile, convert(U64, mul(thread(), imm(BYTES))))), F32,
                       make_layout(shape(cfg->block_m, cfg->block_n), stride(threads, threads * cfg->block_m)));
}

/* One tile of D, or the sums of a slice of it. */
static void compute_tile(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col,
                         const tile_slice *slice)
{
    const int columns = gemm_fma_columns(cfg);
    val row = mul(convert(I64, tile_row), imm64(cfg->tile_m)), col = mul(convert(I64, tile_col), imm64(columns));
    const operand x[2] = {
        describe_operand(cfg, 'a', p, (tile_rows){ row, p->m, 0, cfg->epilogue.gather ? p : NULL }),
        describe_operand(cfg, 'b', p, (tile_rows){ col, p->n, cfg->epilogue.gated ? columns : 0, NULL }),
    };
    tensor acc = fragment(F32, compact(shape(cfg->block_m, cfg->block_n))); // (BLOCK_M,BLOCK_N)
    fill(acc, immf(0));
    mainloop(cfg, x, p->k, acc);
    if (cfg->groups_k > 1)
        add_groups(cfg, acc);
    IF(eq(group_of(cfg), imm(0))) {
        if (cfg->sliced)
            IF(slice->shared)
                copy(acc, parts_of(cfg, p, slice->tile, slice->slice), BYTES);
        IF(cfg->sliced ? logical_not(slice->shared) : yes())
            gemm_fma_store_block(cfg, p, row, col, acc);
    }
}

/* The same where rows are in groups; there may be fewer tiles than CTAs. */
static void compute_tile_of_group(const gemm_fma_config *cfg, const gemm_values *all, val tile, val col)
{
    val group = gemm_find_group(all, gemm_fma_threads(cfg), cfg->tile_m, &tile);
    IF(lt(group, all->groups)) {
        const gemm_values p = gemm_group_of(cfg->epilogue, all, group);
        compute_tile(cfg, &p, tile, col, NULL);
    }
}

/* Which tile, and which slice of it. */
static val take_slice(const gemm_values *all, tile_slice *t)
{
    val beyond = sub(cta_x(), all->whole);
    t->shared = ge(cta_x(), all->whole);
    t->tile = select(t->shared, div(beyond, all->slices), imm(0));
    t->slice = select(t->shared, rem(beyond, all->slices), imm(0));
    return select(t->shared, add(all->whole, t->tile), cta_x());
}

/* The part of K of a slice; the others' addresses and lengths stay. */
static void cut_K(const gemm_fma_config *cfg, const tile_slice *t, gemm_values *p)
{
    const ckl_gemm_layout lies = cfg->epilogue.layout;
    val first = mul(convert(I64, t->slice), p->slice_k);
    val apart_a = gemm_k_major(lies, 'a') ? imm64(1) : p->lda, apart_b = gemm_k_major(lies, 'b') ? imm64(1) : p->ldb;
    p->a = add(p->a, bytes_of(mul(first, apart_a)));
    p->b = add(p->b, bytes_of(mul(first, apart_b)));
    p->k = select(t->shared, min(p->slice_k, sub(p->k, first)), p->k);
}

/* The product that a tile is of, and where it lies there. */
static gemm_values find_tile(const gemm_fma_config *cfg, const gemm_values *all, val tile, val *row, val *col)
{
    enum { GROUP = 8 };
    const tile_schedule tiles = make_tile_schedule(all->m, all->n, cfg->tile_m, gemm_fma_columns(cfg), GROUP);
    tile_at(&tiles, rem(tile, tiles.count), row, col);
    return gemm_product_of(cfg->epilogue, cfg->grouped, all, div(tile, tiles.count));
}

/*
 * A CTA for each row of the blocks of a shared tile: adds the sums of all slices in their order, finishes and stores.
 */
static void add_slices(const gemm_fma_config *cfg, const gemm_values *all)
{
    enum { AT_ONCE = 32 }; // elements on their way
    const int n = cfg->block_n, at_once = AT_ONCE / n;
    val tile = div(cta_x(), imm(cfg->block_m)), i = rem(cta_x(), imm(cfg->block_m)), tile_row, tile_col;
    tensor acc = fragment(F32, compact(shape(1, n))); // (1,BLOCK_N)
    fill(acc, immf(0));
    LOOP_FROM(s, imm(0), all->slices, imm(at_once)) {
        tensor rPart[AT_ONCE / QUAD];
        for (int k = 0; k < at_once; k++) {
            rPart[k] = fragment_like(acc, F32);
            fill(rPart[k], immf(0));
            IF(lt(add(s, imm(k)), all->slices))
                copy(slice(parts_of(cfg, all, tile, add(s, imm(k))), i, _), rPart[k], BYTES);
        }
        for (int j = 0; j < n; j++)
            for (int k = 0; k < at_once; k++)
                set(acc, j, add(at(acc, j), at(rPart[k], j)));
    }
    const gemm_values p = find_tile(cfg, all, add(all->whole, tile), &tile_row, &tile_col);
    gemm_fma_store_row(cfg, &p, tile_row, tile_col, i, acc);
}

void gemm_fma(const void *config, int kernel)
{
    const gemm_fma_config *cfg = config;
    launch_bounds(kernel == 0 ? gemm_fma_threads(cfg) : gemm_fma_group_threads(cfg), kernel == 0 ? cfg->ctas : 0);
    gemm_values all = params_of(gemm);
    grid_wait();
    launch_dependents();
    if (kernel == 1) {
        add_slices(cfg, &all);
        return;
    }
    if (cfg->grouped == GEMM_GROUPED_M) {
        val across = convert(U32, div_up(all.n, gemm_fma_columns(cfg)));
        compute_tile_of_group(cfg, &all, div(cta_x(), across), rem(cta_x(), across));
        return;
    }
    tile_slice slice;
    val tile = cfg->sliced ? take_slice(&all, &slice) : cta_x(), row, col;
    gemm_values p = find_tile(cfg, &all, tile, &row, &col);
    if (cfg->sliced)
        cut_K(cfg, &slice, &p);
    compute_tile(cfg, &p, row, col, &slice);
}
