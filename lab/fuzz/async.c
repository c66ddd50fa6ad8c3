/*
 * async.c - copies by others than the thread: cp.async, bulk copies, TMA, clusters. Each statement has mbarriers of its
 * own, which complete one phase, or two where it says so.
 */
#include "lab/fuzz/program.h"

#include "ir/rules.h"

enum { ROW = 16 };

static void load_tile(program *p, val address, int64_t offset)
{
    val v[4];
    for (int i = 0; i < 4; i++)
        v[i] = ir_reg(IR_U32);
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, address, offset, v);
    for (int i = 0; i < 4; i++)
        keep(p, v[i]);
}

/* A barrier of all threads that may use shared memory next, in whichever CTA. */
static void settle_cluster(program *p)
{
    if (p->cluster == 1) {
        settle_smem(p);
        return;
    }
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
}

/* A new mbarrier that all threads of the cluster, and copies, may use. */
static val new_mbarrier(program *p, int count)
{
    val bar = barrier_address(p);
    ir_if(p->leader);
    ir_mbarrier_init(bar, 0, count);
    if (p->target == IR_SM90A)
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_end_if();
    settle_cluster(p);
    return bar;
}

static void wait(val bar, int parity)
{
    ir_mbarrier_wait(bar, 0, ir_u32(parity));
}

/* What a copy brought to the tile, 16 bytes a thread; one thread after the last begins again. */
static void keep_copied(program *p, int64_t at, int bytes)
{
    val chunk = ir_binary(IR_REM, p->thread, ir_u32(bytes / ROW));
    load_tile(p, element_at(p->smem, chunk, ROW), at);
}

/* Each thread copies to its own place. */
void do_cp_async(program *p)
{
    ir_at("cp_async", 1);
    int bytes = 4 << choose(p, 3), shift = chance(p, 2) ? choose(p, p->threads) : 0;
    val read = ir_binary(IR_ADD, p->own, ir_int(IR_U64, 16 * choose(p, 200) - FUZZ_OWN));
    val write = element_at(p->smem, p->thread, ROW), valid = ir_u32(bytes);
    if (chance(p, 2))
        valid = ir_binary(IR_REM, pick_register(p, IR_U32), ir_u32(bytes + 1));
    const val zero[] = { ir_u32(0), ir_u32(0), ir_u32(0), ir_u32(0) };
    settle_smem(p);
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, write, 0, zero);
    ir_cp_async(write, 0, read, bytes, valid);
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    settle_smem(p);
    val other = ir_binary(IR_XOR, p->thread, ir_u32(shift));
    load_tile(p, element_at(p->smem, other, ROW), 0);
}

/* Two phases of a barrier at which all threads arrive, with an exchange in each. */
void do_mbarrier(program *p)
{
    ir_at("mbarrier", 1);
    val bar = new_mbarrier(p, p->threads), place = element_at(p->smem, p->thread, 4), got = ir_reg(IR_U32);
    val other = ir_binary(IR_XOR, p->thread, ir_u32(choose(p, p->threads)));
    other = element_at(p->smem, other, 4);
    for (int phase = 0; phase < 2; phase++) {
        val x = pick(p, IR_U32), v = ir_reg(IR_U32);
        int64_t offset = FUZZ_EXCHANGE + 1024 * phase;
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, place, offset, &x);
        ir_mbarrier_arrive(IR_SHARED, bar, 0);
        wait(bar, phase);
        ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, other, offset, &v);
        ir_assign(got, v);
        keep(p, got);
    }
}

/* Hints that change nothing. */
void do_prefetch(program *p)
{
    ir_at("prefetch", 1);
    if (p->maps[0].type == IR_U64 && chance(p, 2))
        ir_tma_prefetch(p->maps[0]);
    else if (chance(p, 2))
        ir_prefetch(p->base);
    else
        ir_bulk_prefetch(p->base, ir_u32(16 * (1 + choose(p, 32))));
}

/* One thread copies inputs in, and from shared memory out, each in 16-byte multiples. */
void do_bulk(program *p)
{
    int half = FUZZ_INPUT_BYTES / 2, bytes = ROW * (1 + choose(p, 128));
    int64_t to = ROW * choose(p, 512), from = ROW * choose(p, (half - bytes) / ROW + 1);
    int64_t out = ROW * choose(p, (half - bytes) / ROW + 1);
    ir_at("bulk", 1);
    val bar = new_mbarrier(p, 1);
    ir_if(p->leader);
    ir_mbarrier_expect(bar, 0, ir_u32(bytes));
    val source = ir_binary(IR_ADD, element_at(p->base, p->rank, half), ir_int(IR_U64, from));
    ir_bulk_load(p->smem, to, source, ir_u32(bytes), bar);
    ir_end_if();
    wait(bar, 0);
    keep_copied(p, to, bytes);
    settle_smem(p);
    ir_if(p->leader);
    val target = ir_binary(IR_ADD, element_at(p->base, p->rank, half), ir_int(IR_U64, FUZZ_BULK + out));
    ir_bulk_store(target, p->smem, to, ir_u32(bytes));
    ir_plain(IR_BULK_COMMIT, 0, 0);
    if (chance(p, 2))
        ir_plain(IR_BULK_WAIT, 0, 1);
    ir_plain(IR_BULK_WAIT, 0, 0);
    ir_end_if();
}

/* Coordinates of a box of this program and CTA. It may end outside; one that is loaded may begin there, too. */
static void choose_box(program *p, bool loaded, val c[4])
{
    int columns = FUZZ_ROW_BYTES / (int)ckl_dtype_bytes(p->batch->map_type);
    int align = ROW / (int)ckl_dtype_bytes(p->batch->map_type); // stores write whole chunks
    int before = loaded ? columns / 4 / align : 0, above = loaded ? 6 : 0;
    c[0] = ir_int(CKL_I32, (choose(p, 5 * columns / 4 / align + before) - before) * align);
    c[1] = ir_int(CKL_I32, choose(p, FUZZ_ROWS + 2 + above) - above);
    c[2] = ir_convert(CKL_I32, p->rank);
    c[3] = p->number;
}

static int box_bytes(const program *p)
{
    return p->batch->map_box[0] * p->batch->map_box[1] * (int)ckl_dtype_bytes(p->batch->map_type);
}

void do_tma(program *p)
{
    val c[4];
    int64_t at = 1024 * choose(p, 14); // a box has at most 2 kB
    ir_at("tma", 1);
    val bar = new_mbarrier(p, 1), none = ir_u32(0);
    choose_box(p, true, c);
    ir_if(p->leader);
    ir_mbarrier_expect(bar, 0, ir_u32(box_bytes(p)));
    ir_tma_load(p->smem, at, p->maps[0], bar, none, 4, c);
    ir_end_if();
    wait(bar, 0);
    keep_copied(p, at, box_bytes(p));
    settle_smem(p);
    choose_box(p, false, c);
    ir_if(p->leader);
    bool adds = p->batch->map_type == CKL_I32 && chance(p, 2);
    ir_tma_store(adds ? IR_TMA_ADD : IR_TMA_WRITE, p->maps[1], p->smem, at, 4, c);
    ir_plain(IR_BULK_COMMIT, 0, 0);
    ir_plain(IR_BULK_WAIT, 0, 0);
    ir_end_if();
}

/* Both CTAs get the box that one of them loads. */
void do_multicast(program *p)
{
    val c[4];
    if (p->cluster == 1)
        return;
    int64_t at = 1024 * choose(p, 14);
    ir_at("multicast", 1);
    val bar = new_mbarrier(p, 1);
    choose_box(p, true, c);
    ir_if(p->leader);
    ir_mbarrier_expect(bar, 0, ir_u32(box_bytes(p)));
    ir_end_if();
    settle_cluster(p);
    ir_if(ir_binary(IR_AND, p->leader, ir_compare(IR_EQ, p->rank, ir_u32(choose(p, 2)))));
    ir_tma_load(p->smem, at, p->maps[0], bar, ir_u32(3), 4, c);
    ir_end_if();
    wait(bar, 0);
    keep_copied(p, at, box_bytes(p));
}

static val peer_of(const program *p)
{
    return ir_binary(IR_XOR, p->rank, ir_u32(1));
}

/* Stores into the other CTA, or reads from it what it stored. */
void do_cluster_exchange(program *p)
{
    if (p->cluster == 1)
        return;
    ir_at("cluster_exchange", 1);
    val x = pick(p, IR_U32), got = ir_reg(IR_U32), mine = element_at(p->smem, p->thread, 4);
    val theirs = ir_mapa(mine, peer_of(p));
    bool push = chance(p, 2);
    settle_cluster(p);
    ir_store(push ? IR_SHARED_CLUSTER : IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, push ? theirs : mine, FUZZ_EXCHANGE,
             &x);
    settle_cluster(p);
    ir_load(push ? IR_SHARED : IR_SHARED_CLUSTER, IR_CACHE_DEFAULT, IR_U32, 1, push ? mine : theirs, FUZZ_EXCHANGE,
            &got);
    keep(p, got);
    settle_cluster(p);
}

/* Every thread sends a word to the other CTA, whose mbarrier counts the bytes; or only arrives there. */
void do_store_async(program *p)
{
    static const ir_type types[] = { IR_U32, CKL_I32, IR_U64, CKL_F32 };
    if (p->cluster == 1)
        return;
    ir_at("store_async", 1);
    ir_type type = types[choose(p, 4)];
    int size = ir_type_bytes(type);
    val bar = new_mbarrier(p, 1), peer = peer_of(p), got = ir_reg(type), peer_bar = ir_mapa(bar, peer);
    val mine = element_at(p->smem, p->thread, size), theirs = ir_mapa(mine, peer);
    ir_if(p->leader);
    ir_mbarrier_expect(bar, 0, ir_u32(size * p->threads));
    ir_end_if();
    settle_cluster(p);
    ir_store_async(theirs, FUZZ_EXCHANGE, peer_bar, pick(p, type));
    const val in[] = { bar, ir_u32(0) };
    ir_emit((ir_inst){ .op = IR_MBARRIER_WAIT, .scope = IR_SCOPE_CLUSTER }, 0, NULL, 2, in);
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, type, 1, mine, FUZZ_EXCHANGE, &got);
    keep(p, got);
    val go = new_mbarrier(p, p->threads);
    ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(go, peer), 0);
    ir_emit((ir_inst){ .op = IR_MBARRIER_WAIT, .scope = IR_SCOPE_CLUSTER }, 0, NULL, 2, (val[]){ go, ir_u32(0) });
}
