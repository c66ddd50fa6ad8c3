/*
 * gemm_sm90.c - a persistent, warp-specialised GEMM for Hopper.
 *
 *   warpgroup 0       producer: one thread keeps a ring of (A,B) tiles full by TMA
 *   warpgroups 1..    consumers: wgmma from shared memory into registers; the epilogue goes through staging buffers and
 *                     TMA stores
 *   a cluster         CTAs share operand tiles, or split K of a tile
 *
 * Consumers either split each tile along M (cooperative) or take tiles in turn (ping-pong: one's epilogue overlaps the
 * other's mainloop).
 */
#include "operators/gemm/gemm_sm90.h"

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
    return gemm_sm90_accumulators(c) > GEMM_EASY_ACCUMULATORS || gemm_sm90_parts(c) == 2 ? (role_registers){ 24, 240 }
                                                                                         : (role_registers){ 40, 232 };
}

/* One thread makes the barriers; the cluster waits, because peers signal them too. */
static void initialise(const sm90_kernel *k)
{
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->tmaA);
        tma_prefetch(&k->tmaB);
        if (k->cfg->ragged != GEMM_ALL_RAGGED)
            tma_prefetch(&k->tmaD);
        pipeline_init(&k->ring);
        for (int b = 0; b < k->cfg->consumers * k->size.c_arrivals; b++)
            mbarrier_init(smem_address(k->c_barriers + 8 * b), 1);
        for (int b = 0; b < k->cfg->consumers * k->size.x_arrivals; b++)
            mbarrier_init(smem_address(k->x_barriers + 8 * b), 1);
        gemm_sm90_parts_init(k);
        fence_mbarrier_init();
    }
    prefetch_early(32, k->p.early, k->p.early_bytes, 2);
    cluster_sync();
    grid_wait(); // what is above overlaps the end of the kernel before
    IF(eq(k->p.alone, imm(0)))
        launch_dependents();
}

/*
 * Thread t of a consumer releases stages to CTA t of those that share operands, if that CTA loads for this one. Stages
 * with scales, which every warp reads, are released by lane t of each warp.
 */
static void describe_release(const sm90_kernel *k, consumer_role *c)
{
    int cluster_m = k->cfg->cluster_m, sharers = k->size.sharers;
    const val thread = k->size.scales[0].boxes ? lane() : c->tid;
    c->releases = lt(thread, imm(sharers));
    if (sharers == 1)
        return;
    val peer = select(c->releases, thread, imm(0));
    if (k->cfg->cluster_m > 1 && k->cfg->cluster_n > 1)
        c->releases = logical_and(c->releases, logical_or(eq(rem(peer, imm(cluster_m)), k->rank_m),
                                                          eq(div(peer, imm(cluster_m)), k->rank_n)));
    c->peer = pipeline_peer(&k->ring, k->cfg->split == 1 ? peer : add(peer, mul(k->rank_k, imm(sharers))));
}

static consumer_role describe_consumer(const sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    consumer_role c = { .mma = gemm_sm90_mma(cfg, cfg->tile_n) };
    c.index = sub(warpgroup(), imm(1));
    c.tid = warpgroup_thread();
    c.barrier = add(c.index, imm(BARRIER_CONSUMER));
    c.first_thread = eq(c.tid, imm(0));
    describe_release(k, &c);
    val block = cfg->pingpong ? imm(0) : c.index;
    tensor sA = local_tile(k->sA, shape(k->size.consumer_rows, k->size.tile_k), coord(block, 0, _)); // (ROWS,BK,STAGES)
    c.tCrA = descriptors_A(&c.mma, sA);
    c.tCrB = descriptors_B(&c.mma, k->sB);
    c.acc = fragment_C(&c.mma, k->size.consumer_rows, cfg->tile_n);
    for (int i = 0; i < gemm_sm90_parts(cfg); i++) {
        c.partials[i] = fragment_C(&c.mma, gemm_sm90_partial_rows(cfg), cfg->tile_n);
        fill(c.partials[i], immf(0));
    }
    fill(c.acc, convert(c.acc.dtype, imm(0))); // once; the first wgmma of a tile ignores the sums
    c.sD = slice(k->sD, _, _, _, c.index);
    c.scalars = gemm_load_scalars(k->epilogue, GEMM_SCALAR_SOURCES(&k->p));
    for (int v = 0; v < GEMM_VECTORS; v++)
        if (k->size.vectors[v])
            c.sVectors[v] = slice(k->sVectors[v], _, c.index);
    if (gemm_reads_matrix(&k->epilogue))
        c.c_parity = variable(U32, imm(0));
    if (gemm_sm90_loads_ahead(cfg))
        c.buffer = (pipeline_state){ variable(U32, imm(0)), variable(U32, imm(0)), cfg->buffers };
    if (cfg->split > 1) {
        c.sPartials = slice(k->sPartials, _, _, _, _, c.index);
        c.partials_parity = variable(U32, imm(0));
    }
    return c;
}

static void consume_tile(const sm90_kernel *k, consumer_role *c, val tile, pipeline_state *stage)
{
    const tile_place at = gemm_sm90_own_tile(k, c, tile);
    const epilogue_vectors vectors = gemm_sm90_load_vectors(k, c, &at);
    if (gemm_sm90_loads_rows(k))
        gemm_sm90_load_rows(k, c, &at);
    gemm_sm90_mainloop(k, c, &at, stage);
    if (k->cfg->split == 1) {
        gemm_sm90_epilogue(k, c, &at, &vectors);
        return;
    }
    gemm_sm90_add_split(k, c);
    IF(lt(k->rank_k, imm(k->size.finishers)))
        gemm_sm90_epilogue(k, c, &at, &vectors);
}

static void consumer(const sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    consumer_role c = describe_consumer(k);
    pipeline_state stage = consumer_state(&k->ring);
    int sharers = cfg->pingpong ? 2 : 1; // consumers that take this CTA's tiles in turn
    val first = k->first_tile, step = mul(k->clusters, imm(sharers));
    if (cfg->pingpong) {
        first = add(first, mul(c.index, k->clusters));
        pipeline_advance_by(&stage, mul(c.index, k->k_tiles));
        IF(eq(c.index, imm(1)))
            gemm_sm90_order_arrive(k, &c); // consumer 0 begins
    }
    c.tile_step = step;
    if (gemm_sm90_loads_ahead(cfg))
        gemm_sm90_begin_ahead(k, &c, first);
    LOOP_FROM(tile, first, k->count, step) {
        consume_tile(k, &c, tile, &stage);
        if (cfg->pingpong)
            pipeline_advance_by(&stage, mul(k->k_tiles, imm(sharers - 1)));
    }
    gemm_leave_amax(k->epilogue, c.scalars, k->p.amax, true);
    IF(c.first_thread)
        tma_store_wait(0);
    gemm_sm90_parts_leave(k, &c);
}

/* This CTA's place in its cluster, and the tiles of all clusters. */
static void describe_schedule(sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    k->rank_m = rem(cluster_rank(), imm(cfg->cluster_m));
    k->rank_n = imm(0);
    if (cfg->cluster_n > 1) {
        val rank = cfg->split == 1 ? cluster_rank() : rem(cluster_rank(), imm(k->size.sharers));
        k->rank_n = div(rank, imm(cfg->cluster_m));
    }
    const val columns = k->size.shear ? add(k->p.n, imm(k->size.shear)) : k->p.n;
    k->tiles =
        make_tile_schedule(k->p.m, columns, cfg->tile_m * cfg->cluster_m, k->size.tile_n * cfg->cluster_n, cfg->group);
    if (cfg->groups) {
        *(cfg->swap ? &k->tiles.tiles_n : &k->tiles.tiles_m) = gemm_sm90_group_rows(k);
        k->tiles.count = mul(k->tiles.tiles_m, k->tiles.tiles_n);
    }
    k->count = cfg->batched ? mul(k->tiles.count, k->p.batch) : k->tiles.count;
    k->first_tile = div(cta_x(), imm(k->size.cluster));
    k->clusters = div(grid_x(), imm(k->size.cluster));
    if (cfg->stays || cfg->b_stays) { // a share of neighbours
        val all = k->count, before = mul(k->first_tile, all);
        k->count = div(add(before, all), k->clusters);
        k->first_tile = div(before, k->clusters);
        k->clusters = imm(1);
    }
}

void gemm_sm90(const void *config, int kernel)
{
    const gemm_sm90_config *cfg = config;
    (void)kernel;
    sm90_kernel k = { .cfg = cfg, .epilogue = cfg->epilogue, .size = gemm_sm90_shape_of(cfg) };
    role_registers registers = registers_of(cfg);
    launch_bounds(k.size.threads, cfg->ctas); // also lets setmaxnreg move registers between the roles
    cluster_size(k.size.cluster);
    k.rank_k = cfg->split == 1 ? imm(0) : div(cluster_rank(), imm(k.size.sharers));
    gemm_sm90_parameters(&k);
    gemm_sm90_memory(&k);
    if (!cfg->groups)
        describe_schedule(&k);
    initialise(&k);
    if (cfg->groups) {
        gemm_sm90_scan_groups(&k);
        describe_schedule(&k);
    }
    IF(lt(warp(), imm(WARPGROUP / 32))) {
        if (registers.producer)
            warpgroup_reg_dealloc(registers.producer);
        gemm_sm90_producer(&k);
    }
    ELSE
    {
        if (registers.consumer)
            warpgroup_reg_alloc(registers.consumer);
        consumer(&k);
    }
}
