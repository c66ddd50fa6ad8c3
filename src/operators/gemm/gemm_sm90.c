/*
 * gemm_sm90.c - a persistent, warp-specialised GEMM for Hopper.
 *
 *   warpgroup 0       producer: one thread keeps a ring of (A,B) tiles full by TMA
 *   warpgroups 1..    consumers: wgmma from shared memory into registers, one group kept in flight; the epilogue goes through
 *                     staging buffers and TMA stores, so that stores overlap the next tile
 *   a cluster         CTAs side by side share operand tiles: each loads some rows and multicasts them to the others
 *
 * Consumers either split each tile along M (cooperative) or take tiles in turn (ping-pong: one's epilogue runs under the other's
 * mainloop).
 */
#include <stdio.h>

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    WARPGROUP = 128,
    ELEMENTS_AT_ONCE = 4, // of a thread, where D is stored by elements
    BARRIER_CONSUMER = 1, // named barriers, + consumer: its 128 threads round the staging buffers
    BARRIER_ORDER = 4,    // ping-pong, + consumer: it may begin its mainloop; it waits, the other one arrives
};

static int rows_of_consumer(const gemm_sm90_config *c)
{
    return c->pingpong ? c->tile_m : c->tile_m / c->consumers;
}

int gemm_sm90_accumulators(const gemm_sm90_config *c)
{
    return rows_of_consumer(c) * c->tile_n / WARPGROUP;
}

gemm_sm90_shape gemm_sm90_shape_of(const gemm_sm90_config *c)
{
    int d_bytes = (int)ckl_dtype_bytes(c->epilogue.d), span = 128 / d_bytes; // columns of a 128-byte row
    while (c->tile_n % span)
        span /= 2;
    gemm_sm90_shape s = {
        .consumer_rows = rows_of_consumer(c),
        .box_a = c->tile_m / c->cluster_n,
        .box_b = c->tile_n / c->cluster_m,
        .cluster = c->cluster_m * c->cluster_n,
        .threads = WARPGROUP * (1 + c->consumers),
        .d_rows = 64,
        .d_cols = span,
        .stage_bytes = (int64_t)(c->tile_m + c->tile_n) * GEMM_TILE_K * 2,
    };
    int64_t staging = (int64_t)c->consumers * c->buffers * s.d_rows * s.d_cols * d_bytes;
    int64_t bias = c->epilogue.bias ? (int64_t)c->consumers * c->tile_n * 4 : 0;
    int64_t barriers = 16 * (int64_t)c->stages + (c->epilogue.c ? 8 * (int64_t)c->consumers : 0);
    s.smem_bytes = c->stages * s.stage_bytes + staging + bias + barriers;
    return s;
}

/* Registers of a thread by role, together no more than the 64K of an SM; 0: as the kernel starts. */
typedef struct role_registers {
    int producer, consumer;
} role_registers;

static role_registers registers_of(const gemm_sm90_config *c)
{
    if (c->consumers == 1) // every thread may have 255 from the start
        return (role_registers){ 0, 0 };
    if (c->consumers == 3)
        return (role_registers){ 32, 160 };
    return gemm_sm90_accumulators(c) > GEMM_EASY_ACCUMULATORS ? (role_registers){ 24, 240 }
                                                              : (role_registers){ 40, 232 };
}

/* Everything the roles share. Letters: A (M,K), B (N,K), C and D (M,N). */
typedef struct sm90_kernel {
    const gemm_sm90_config *cfg;
    gemm_epilogue epilogue;
    gemm_sm90_shape size;
    gemm_sm90_values p;
    tma_copy tmaA, tmaB, tmaC, tmaD;
    tensor sA, sB; // (BM,BK,STAGES), (BN,BK,STAGES)
    tensor sD;     // (ROWS,COLS,BUFFERS,CONSUMERS)
    tensor sBias;  // (BN,CONSUMERS) f32
    pipeline ring;
    int64_t c_barriers; // one per consumer: its next C has arrived
    val k_tiles;
    tile_schedule tiles;
    val first_tile, clusters;
    val rank_m, rank_n; // of this CTA in its cluster
} sm90_kernel;

static void describe_parameters(sm90_kernel *k)
{
    ckl_dtype ab = k->epilogue.ab, d = k->epilogue.d;
    int d_span = k->size.d_cols * (int)ckl_dtype_bytes(d);
    k->p = params_of(gemm_sm90);
    k->tmaA = make_tma(k->p.A, ab, 2, k->size.box_a, GEMM_TILE_K, 128);
    k->tmaB = make_tma(k->p.B, ab, 2, k->size.box_b, GEMM_TILE_K, 128);
    k->tmaD = make_tma(k->p.D, d, 2, k->size.d_rows, k->size.d_cols, d_span);
    if (k->epilogue.c)
        k->tmaC = make_tma(k->p.C, d, 2, k->size.d_rows, k->size.d_cols, d_span);
    k->k_tiles = div(add(k->p.k, imm(GEMM_TILE_K - 1)), imm(GEMM_TILE_K));
}

/* (ROWS,COLS,COUNT...) tiles, each as TMA writes and wgmma reads it. */
static layout tiles_layout(ckl_dtype dtype, int rows, int cols, int span, int count, int count_outer)
{
    layout tile = tma_tile_layout(dtype, rows, cols, span);
    int64_t elements = (int64_t)rows * cols;
    layout plain = make_layout(shape(rows, cols, count, count_outer), stride(cols, 1, elements, elements * count));
    return with_swizzle(tile.sw, plain);
}

static void describe_shared_memory(sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    const gemm_sm90_shape *s = &k->size;
    int d_span = s->d_cols * (int)ckl_dtype_bytes(k->epilogue.d);
    layout ring_A = tiles_layout(k->epilogue.ab, cfg->tile_m, GEMM_TILE_K, 128, cfg->stages, 1);
    layout ring_B = tiles_layout(k->epilogue.ab, cfg->tile_n, GEMM_TILE_K, 128, cfg->stages, 1);
    k->sA = slice(smem_tensor("A", k->epilogue.ab, ring_A, 1024), _, _, _, 0); // (BM,BK,STAGES)
    k->sB = slice(smem_tensor("B", k->epilogue.ab, ring_B, 1024), _, _, _, 0); // (BN,BK,STAGES)
    k->sD = smem_tensor("D", k->epilogue.d,
                        tiles_layout(k->epilogue.d, s->d_rows, s->d_cols, d_span, cfg->buffers, cfg->consumers), 1024);
    if (k->epilogue.bias)
        k->sBias = smem_tensor("bias", F32, compact(shape(cfg->tile_n, cfg->consumers)), 16);
    int consumers = cfg->pingpong ? 1 : cfg->consumers; // that use a stage
    k->ring = make_pipeline("ring", cfg->stages, 1, consumers * (cfg->cluster_m + cfg->cluster_n - 1));
    if (k->epilogue.c)
        k->c_barriers = smem_alloc("C arrived", 8 * (int64_t)cfg->consumers, 8);
}

/* One thread makes the barriers; the cluster waits for it, because peers signal them too. */
static void initialise(const sm90_kernel *k)
{
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->tmaA);
        tma_prefetch(&k->tmaB);
        tma_prefetch(&k->tmaD);
        pipeline_init(&k->ring);
        for (int b = 0; k->epilogue.c && b < k->cfg->consumers; b++)
            mbarrier_init(smem_address(k->c_barriers + 8 * b), 1);
        fence_mbarrier_init();
    }
    cluster_sync();
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
}

/* Element coordinates of this CTA's tile in D. */
static void tile_origin(const sm90_kernel *k, val tile, val *row, val *col)
{
    val tile_row, tile_col;
    tile_at(&k->tiles, tile, &tile_row, &tile_col);
    *row = mul(add(mul(tile_row, imm(k->cfg->cluster_m)), k->rank_m), imm(k->cfg->tile_m));
    *col = mul(add(mul(tile_col, imm(k->cfg->cluster_n)), k->rank_n), imm(k->cfg->tile_n));
}

/* Producer */

/* The CTAs that share an operand with this one, as a multicast mask; 0 where it is alone. */
static val mask_A(const sm90_kernel *k)
{
    int cluster_m = k->cfg->cluster_m, mask = 0;
    for (int j = 0; j < k->cfg->cluster_n; j++)
        mask |= 1 << (cluster_m * j);
    return k->cfg->cluster_n == 1 ? imm(0) : shift_left(variable(U32, imm(mask)), k->rank_m);
}

static val mask_B(const sm90_kernel *k)
{
    int cluster_m = k->cfg->cluster_m, mask = (1 << cluster_m) - 1;
    return cluster_m == 1 ? imm(0) : shift_left(variable(U32, imm(mask)), mul(k->rank_n, imm(cluster_m)));
}

/* Fills one stage: this CTA's rows of A and of B go to all CTAs that use them, so that every CTA receives both tiles. */
static void load_stage(const sm90_kernel *k, const pipeline_state *at, val row, val col, val depth, val a_mask,
                       val b_mask)
{
    tensor sA = slice(k->sA, _, _, at->stage), sB = slice(k->sB, _, _, at->stage);          // (BM,BK), (BN,BK)
    tensor sA_box = local_tile(sA, shape(k->size.box_a, GEMM_TILE_K), coord(k->rank_n, 0)); // (BOX_A,BK)
    tensor sB_box = local_tile(sB, shape(k->size.box_b, GEMM_TILE_K), coord(k->rank_m, 0)); // (BOX_B,BK)
    val full = pipeline_full_barrier(&k->ring, at);
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm((int)k->size.stage_bytes));
    tma_load(&k->tmaA, sA_box, add(row, mul(k->rank_n, imm(k->size.box_a))), depth, full, a_mask);
    tma_load(&k->tmaB, sB_box, add(col, mul(k->rank_m, imm(k->size.box_b))), depth, full, b_mask);
}

static void producer(const sm90_kernel *k)
{
    role_registers r = registers_of(k->cfg);
    if (r.producer)
        warpgroup_reg_dealloc(r.producer);
    IF(eq(warp(), imm(0))) {
        IF(elect()) {
            pipeline_state stage = producer_state(&k->ring);
            val a_mask = mask_A(k), b_mask = mask_B(k);
            LOOP_FROM(tile, k->first_tile, k->tiles.count, k->clusters) {
                val row, col;
                tile_origin(k, tile, &row, &col);
                LOOP(kt, k->k_tiles) {
                    load_stage(k, &stage, row, col, mul(kt, imm(GEMM_TILE_K)), a_mask, b_mask);
                    pipeline_advance(&stage);
                }
            }
            for (int s = 0; s < k->ring.stages;
                 s++) { // stay until every stage is released: peers still signal this CTA
                pipeline_wait_empty(&k->ring, &stage);
                pipeline_advance(&stage);
            }
        }
    }
}

/* Consumers */

/* One consumer's view: its thread, its accumulators, and what it reads and writes. */
typedef struct consumer_role {
    val index;          // 0..consumers-1
    val tid;            // 0..127
    val barrier;        // the named barrier of its threads
    val first_thread;   // predicate: the thread that issues its TMA
    val releases, peer; // predicate: this thread frees stages; of the CTA whose empty barriers these are
    tiled_mma mma;
    tensor acc;        // (MMA,MMA_M,MMA_N)
    tensor tCrA, tCrB; // (MMA_M,MMA_K,STAGES), (MMA_N,MMA_K,STAGES)
    tensor sD;         // (ROWS,COLS,BUFFERS)
    tensor sBias;      // (BN)
    val c_parity;      // of the next phase of its C barrier
} consumer_role;

/* Thread t of a consumer frees the stages of CTA t of the cluster, if that CTA loads for this one. */
static void describe_release(const sm90_kernel *k, consumer_role *c)
{
    int cluster_m = k->cfg->cluster_m, cluster = k->size.cluster;
    c->releases = lt(c->tid, imm(cluster));
    if (cluster == 1)
        return;
    val peer = select(c->releases, c->tid, imm(0));
    if (k->cfg->cluster_m > 1 && k->cfg->cluster_n > 1)
        c->releases = logical_and(c->releases, logical_or(eq(rem(peer, imm(cluster_m)), k->rank_m),
                                                          eq(div(peer, imm(cluster_m)), k->rank_n)));
    c->peer = pipeline_peer(&k->ring, peer);
}

/* One warpgroup's wgmma over 64 x n. */
static tiled_mma warpgroup_mma(ckl_dtype dtype, int n)
{
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%dx16_F32%s_SS", n, dtype == F16 ? "F16F16" : "BF16BF16");
    return make_tiled_mma(atom, 1, 1);
}

static consumer_role describe_consumer(const sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    consumer_role c = { .mma = warpgroup_mma(k->epilogue.ab, cfg->tile_n) };
    c.index = sub(div(warp(), imm(WARPGROUP / 32)), imm(1));
    c.tid = rem(thread(), imm(WARPGROUP));
    c.barrier = add(c.index, imm(BARRIER_CONSUMER));
    c.first_thread = eq(c.tid, imm(0));
    describe_release(k, &c);
    val block = cfg->pingpong ? imm(0) : c.index;
    tensor sA = local_tile(k->sA, shape(k->size.consumer_rows, GEMM_TILE_K), coord(block, 0, _)); // (ROWS,BK,STAGES)
    c.tCrA = descriptors_A(&c.mma, sA);
    c.tCrB = descriptors_B(&c.mma, k->sB);
    c.acc = fragment_C(&c.mma, k->size.consumer_rows, cfg->tile_n);
    fill(c.acc, immf(0)); // once: the first wgmma of a tile ignores them
    c.sD = slice(k->sD, _, _, _, c.index);
    if (k->epilogue.bias)
        c.sBias = slice(k->sBias, _, c.index);
    if (k->epilogue.c)
        c.c_parity = variable(U32, imm(0));
    return c;
}

static void release(const sm90_kernel *k, const consumer_role *c, val stage)
{
    if (k->size.cluster == 1)
        pipeline_release(&k->ring, stage);
    else
        pipeline_release_at(&k->ring, stage, c->peer);
}

/*
 * Ping-pong: the mainloops follow each other. Without that a consumer could wait for a stage's second filling before the first one
 * has come, which the parity of a barrier cannot tell from the filling before.
 */
static void order_wait(const sm90_kernel *k, const consumer_role *c)
{
    if (k->cfg->pingpong)
        named_sync(add(c->index, imm(BARRIER_ORDER)), 2 * WARPGROUP);
}

static void order_arrive(const sm90_kernel *k, const consumer_role *c)
{
    if (k->cfg->pingpong)
        named_arrive(sub(imm(BARRIER_ORDER + 1), c->index), 2 * WARPGROUP);
}

/* acc = A tile * B tile over all of K. A stage is released when the wgmmas of the stage after it are under way. */
static void mainloop(const sm90_kernel *k, const consumer_role *c, pipeline_state *stage)
{
    val before = variable(U32, stage->stage);
    order_wait(k, c);
    LOOP(kt, k->k_tiles) {
        val not_first = ne(kt, imm(0));
        pipeline_wait_full(&k->ring, stage);
        mma_fence();
        gemm(&c->mma, slice(c->tCrA, _, _, stage->stage), slice(c->tCrB, _, _, stage->stage), c->acc, not_first);
        mma_commit();
        mma_wait(1);
        IF(logical_and(c->releases, not_first))
            release(k, c, before);
        assign(before, stage->stage);
        pipeline_advance(stage);
    }
    order_arrive(k, c);
    mma_wait(0);
    IF(c->releases)
        release(k, c, before);
}

enum { BIAS_MAX = 256 / WARPGROUP }; // elements of a thread

/* This thread's elements of the tile's bias: loads that nothing waits for before the epilogue. */
static void load_bias(const sm90_kernel *k, const consumer_role *c, val col, val bias[BIAS_MAX])
{
    tensor gBias = gmem_tensor(k->p.bias, k->epilogue.d, make_layout(dynamic(k->p.n), leaf(1))); // (N)
    for (int i = 0; i * WARPGROUP < k->cfg->tile_n; i++) {
        val j = add(col, add(c->tid, imm(i * WARPGROUP)));
        bias[i] = variable(k->epilogue.d, ir_float(k->epilogue.d, 0));
        IF(lt(j, k->p.n))
            assign(bias[i], at(gBias, j));
    }
}

/* The bias into shared memory, as f32; read after the epilogue's first barrier. */
static void share_bias(const sm90_kernel *k, const consumer_role *c, const val bias[BIAS_MAX])
{
    for (int i = 0; i * WARPGROUP < k->cfg->tile_n; i++) {
        val j = add(c->tid, imm(i * WARPGROUP));
        IF(lt(j, imm(k->cfg->tile_n)))
            set(c->sBias, j, convert(F32, bias[i]));
    }
}

/* What one staging buffer holds of the consumer's rows. */
typedef struct subtile {
    int rows, cols; // where it starts in them
    int buffer;
    int stores_pending; // that may still be reading their buffers, so that this one is free
    tiled_mma mma;      // of its columns
    tensor acc;         // (MMA,1,1)
    tensor sD;          // (ROWS,COLS)
} subtile;

/* C into the staging buffer by TMA, then to registers in the order of the accumulators. beta = 0 leaves zeros. */
static tensor load_C(const sm90_kernel *k, const consumer_role *c, const subtile *h, val row, val col)
{
    tensor rC = fragment_like(h->acc, F32);
    tensor tCsC = partition_C(&h->mma, h->sD, c->tid); // (MMA,1,1)
    val barrier = add(smem_address(k->c_barriers), mul(c->index, imm(8)));
    fill(rC, immf(0));
    IF(ne(k->p.beta, immf(0))) {
        IF(c->first_thread) {
            mbarrier_expect(barrier, imm((int)tma_bytes(&k->tmaC)));
            tma_load(&k->tmaC, h->sD, row, col, barrier, imm(0));
        }
        mbarrier_wait(barrier, c->c_parity);
        copy(tCsC, rC, 2 * (int)ckl_dtype_bytes(k->epilogue.d));
    }
    return rC;
}

/* Where this thread's elements are in a subtile. */
static tensor coordinates_of_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    return partition_C(&h->mma, identity_tensor(shape(k->size.d_rows, k->size.d_cols)), c->tid); // (MMA,1,1)
}

/* The bias of this thread's columns of a subtile: (2,COLS/8), a pair in every group of 8 columns. */
static tensor read_bias(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    tensor cD = coordinates_of_subtile(k, c, h);
    tensor columns = slice(c->sBias, add(coordinate(cD, 1, 0), imm(h->cols)));
    columns.layout = make_layout(shape(2, k->size.d_cols / 8), stride(1, 8));
    tensor rBias = fragment(F32, compact(shape(2, k->size.d_cols / 8)));
    copy(columns, rBias, 8);
    return rBias;
}

static void finish_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, tensor rC)
{
    layout columns = coordinate_distances(coordinates_of_subtile(k, c, h), 1); // from the thread's first
    gemm_scalars scalars = { k->p.alpha, k->p.beta };
    tensor rBias = { 0 };
    if (k->epilogue.bias)
        rBias = read_bias(k, c, h);
    tensor rD = fragment_like(h->acc, F32);
    for (int i = 0; i < static_size(rD.layout) && !ir_failed(); i++) {
        int64_t column = index_at(columns, i);
        val bias = k->epilogue.bias ? at(rBias, coord(column % 8, column / 8)) : immf(0);
        set(rD, i, gemm_finish(k->epilogue, scalars, at(h->acc, i), k->epilogue.c ? at(rC, i) : immf(0), bias));
    }
    if (ckl_dtype_bytes(k->epilogue.d) == 2)
        stmatrix_C(&h->mma, rD, h->sD, c->tid);
    else
        copy(rD, partition_C(&h->mma, h->sD, c->tid), 8);
}

/*
 * A staging buffer to D element by element, where it reaches past a ragged end of the rows: a TMA store would write whole
 * 16-byte chunks there.
 */
static void store_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h, val row, val col)
{
    const ckl_dtype type = k->epilogue.d;
    const int across = k->size.d_cols, down = WARPGROUP / across;
    int_tuple step = shape(ELEMENTS_AT_ONCE * down, across), all = shape(k->p.m, k->p.n);
    layout threads = compact_right(shape(down, across));
    tiled_copy each = make_tiled_copy(universal_copy(type, 1), type, threads, compact(shape(1, 1)));
    tensor gD = gmem_tensor(k->p.d, type, make_layout(all, stride(k->p.ldd, 1)));         // (M,N)
    tensor cD = coordinates_from(identity_tensor(shape(k->size.d_rows, across)), 0, row); // (ROWS,COLS)
    cD = coordinates_from(cD, 1, col);
    LOOP(e, imm(k->size.d_rows / (ELEMENTS_AT_ONCE * down))) {
        tensor cStep = partition_S(&each, local_tile(cD, step, coord(e, 0)), c->tid);    // (1,STEPS,1)
        tensor sStep = partition_S(&each, local_tile(h->sD, step, coord(e, 0)), c->tid); // (1,STEPS,1)
        tensor rStep = fragment_like(cStep, type);                                       // (1,STEPS,1)
        copy_tiled(&each, sStep, rStep);
        copy_if(&each, cStep, all, rStep, tensor_at_coordinates(gD, cStep), 0);
    }
}

/* Registers -> staging buffer -> TMA store of one subtile. */
static void store_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, val row, val col)
{
    tensor rC = { 0 };
    staged_store staged = { c->barrier, WARPGROUP, c->first_thread };
    staging_wait(&staged, h->stores_pending);
    if (k->epilogue.c)
        rC = load_C(k, c, h, row, col);
    finish_subtile(k, c, h, rC);
    val inside = k->cfg->ragged ? ge(k->p.n, add(col, imm(k->size.d_cols))) : yes();
    STAGED_STORE(&staged) // an empty one too: the buffers are counted by stores
        IF(inside)
            tma_store(&k->tmaD, h->sD, row, col);
    if (k->cfg->ragged)
        IF(logical_not(inside))
            store_elements(k, c, h, row, col);
}

static void epilogue(const sm90_kernel *k, const consumer_role *c, val row, val col)
{
    const gemm_sm90_config *cfg = k->cfg;
    const gemm_sm90_shape *s = &k->size;
    subtile h = { .mma = warpgroup_mma(k->epilogue.ab, s->d_cols) };
    int blocks = s->consumer_rows / s->d_rows, columns = cfg->tile_n / s->d_cols, count = blocks * columns;
    for (int i = 0; i < count && !ir_failed(); i++) {
        h.rows = i / columns * s->d_rows;
        h.cols = i % columns * s->d_cols;
        h.buffer = i % cfg->buffers;
        h.stores_pending = i == 0 && count % cfg->buffers ? 0 : cfg->buffers - 1;
        h.acc = slice(accumulator_columns(c->acc, h.cols, s->d_cols), _, i / columns, _);
        h.sD = slice(c->sD, _, _, h.buffer);
        store_subtile(k, c, &h, add(row, imm(h.rows)), add(col, imm(h.cols)));
        if (k->epilogue.c)
            assign(c->c_parity, bit_xor(c->c_parity, imm(1)));
    }
}

static void consumer(const sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    role_registers r = registers_of(cfg);
    if (r.consumer)
        warpgroup_reg_alloc(r.consumer);
    consumer_role c = describe_consumer(k);
    pipeline_state stage = consumer_state(&k->ring);
    int sharers = cfg->pingpong ? 2 : 1; // consumers among which this CTA's tiles are dealt out
    val first = k->first_tile, step = mul(k->clusters, imm(sharers));
    if (cfg->pingpong) {
        first = add(first, mul(c.index, k->clusters));
        pipeline_advance_by(&stage, mul(c.index, k->k_tiles));
        IF(eq(c.index, imm(1)))
            order_arrive(k, &c); // consumer 0 begins
    }
    LOOP_FROM(tile, first, k->tiles.count, step) {
        val row, col;
        tile_origin(k, tile, &row, &col);
        if (!cfg->pingpong)
            row = add(row, mul(c.index, imm(k->size.consumer_rows)));
        val bias[BIAS_MAX];
        if (k->epilogue.bias)
            load_bias(k, &c, col, bias);
        mainloop(k, &c, &stage);
        if (k->epilogue.bias)
            share_bias(k, &c, bias);
        epilogue(k, &c, row, col);
        if (cfg->pingpong)
            pipeline_advance_by(&stage, mul(k->k_tiles, imm(sharers - 1)));
    }
    IF(c.first_thread)
        tma_store_wait(0);
}

void gemm_sm90(const void *config, int kernel)
{
    const gemm_sm90_config *cfg = config;
    (void)kernel;
    sm90_kernel k = { .cfg = cfg, .epilogue = cfg->epilogue, .size = gemm_sm90_shape_of(cfg) };
    launch_bounds(k.size.threads, cfg->ctas); // also lets setmaxnreg move registers between the roles
    cluster_size(k.size.cluster);
    describe_parameters(&k);
    describe_shared_memory(&k);
    k.rank_m = rem(cluster_rank(), imm(cfg->cluster_m));
    k.rank_n = cfg->cluster_n == 1 ? imm(0) : div(cluster_rank(), imm(cfg->cluster_m));
    k.tiles = make_tile_schedule(k.p.m, k.p.n, cfg->tile_m * cfg->cluster_m, cfg->tile_n * cfg->cluster_n, cfg->group);
    k.first_tile = div(cta_x(), imm(k.size.cluster));
    k.clusters = div(grid_x(), imm(k.size.cluster));
    initialise(&k);
    IF(lt(warp(), imm(WARPGROUP / 32))) {
        producer(&k);
    }
    ELSE
    {
        consumer(&k);
    }
}
