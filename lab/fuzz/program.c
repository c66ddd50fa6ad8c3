/* program.c - a random program from its first to its last instruction, and the kernel that a batch of them shares. */
#include "lab/fuzz/program.h"

#include <string.h>

#include "base/math.h"
#include "base/random.h"

enum { STATEMENTS_MIN = 3, STATEMENTS_MAX = 14 };

const char *const fuzz_kind_names[] = { "arithmetic", "control", "shared", "matrix", "async", NULL };

/* What is random of one thing of a set, independent of everything else. */
static uint64_t stream_of(uint64_t seed, int64_t number)
{
    uint64_t state = seed;
    state = random_next(&state) ^ (uint64_t)number;
    return random_next(&state);
}

int choose(program *p, int count)
{
    return (int)(random_next(&p->random) >> 33) % count;
}

bool chance(program *p, int one_in)
{
    return choose(p, one_in) == 0;
}

ir_type choose_type(program *p, uint32_t set)
{
    int which = choose(p, __builtin_popcount(set));
    while (which-- > 0)
        set &= set - 1;
    return (ir_type)__builtin_ctz(set);
}

/* Which statements a kind is made of, by weight. */

typedef struct statement_row {
    statement *append;
    unsigned char weight[FUZZ_KIND_COUNT];
    bool converged; // all threads of the cluster must come
    bool once;      // not in a loop: its mbarriers are new
    bool sm90;
} statement_row;

static const statement_row statements[] = {
    { do_arithmetic, .weight = { 40, 30, 20, 12, 12 } },
    { do_input_vector, .weight = { 3, 1, 2, 1, 1 } },
    { do_variable, .weight = { 2, 6, 1, 1, 1 } },
    { do_if, .weight = { 2, 8, 2, 1, 1 } },
    { do_loop, .weight = { 1, 6, 1, 1, 1 } },
    { do_special, .weight = { 1, 1, 1, 0, 1 } },
    { do_own_memory, .weight = { 0, 1, 5, 0, 1 } },
    { do_own_atomic, .weight = { 0, 1, 5, 0, 1 } },
    { do_global_sums, .weight = { 0, 1, 4, 0, 1 } },
    { do_shuffle, .weight = { 0, 6, 2, 0, 0 }, .converged = true },
    { do_vote, .weight = { 0, 4, 1, 0, 0 }, .converged = true },
    { do_redux, .weight = { 0, 4, 1, 0, 0 }, .converged = true },
    { do_elect, .weight = { 0, 2, 0, 0, 1 }, .converged = true },
    { do_warp_sync, .weight = { 0, 1, 1, 0, 0 }, .converged = true },
    { do_exchange, .weight = { 0, 1, 8, 1, 1 }, .converged = true },
    { do_pair_of_barriers, .weight = { 0, 0, 2, 0, 0 }, .converged = true },
    { do_ldmatrix, .weight = { 0, 0, 1, 6, 0 }, .converged = true },
    { do_stmatrix, .weight = { 0, 0, 1, 5, 0 }, .converged = true, .sm90 = true },
    { do_mma, .weight = { 0, 0, 0, 10, 0 }, .converged = true },
    { do_wgmma, .weight = { 0, 0, 0, 10, 0 }, .converged = true, .sm90 = true },
    { do_cp_async, .weight = { 0, 0, 2, 0, 5 }, .converged = true, .once = true },
    { do_mbarrier, .weight = { 0, 0, 1, 0, 4 }, .converged = true, .once = true },
    { do_prefetch, .weight = { 0, 0, 0, 0, 1 }, .sm90 = true },
    { do_bulk, .weight = { 0, 0, 0, 0, 6 }, .converged = true, .once = true, .sm90 = true },
    { do_tma, .weight = { 0, 0, 0, 0, 6 }, .converged = true, .once = true, .sm90 = true },
    { do_cluster_exchange, .weight = { 0, 0, 0, 0, 4 }, .converged = true, .sm90 = true },
    { do_store_async, .weight = { 0, 0, 0, 0, 3 }, .converged = true, .once = true, .sm90 = true },
    { do_multicast, .weight = { 0, 0, 0, 0, 3 }, .converged = true, .once = true, .sm90 = true },
};

static bool fits(const program *p, const statement_row *row)
{
    return (p->converged || !row->converged) && !(p->in_loop && row->once) && !(row->sm90 && p->target == IR_SM80) &&
           !(row->once && p->barriers + 2 > FUZZ_BARRIERS_MAX);
}

void do_statements(program *p, int count)
{
    for (int i = 0; i < count; i++) {
        int sum = 0;
        for (int j = 0; j < COUNT_OF(statements); j++)
            sum += fits(p, &statements[j]) ? statements[j].weight[p->batch->kind] : 0;
        int at = choose(p, sum), j = 0;
        for (;; j++) {
            at -= fits(p, &statements[j]) ? statements[j].weight[p->batch->kind] : 0;
            if (at < 0)
                break;
        }
        statements[j].append(p);
    }
}

const fuzz_absence fuzz_absent[] = {
    { IR_RSQRT, "approximate: each GPU has its own last bits" },
    { IR_RCP_APPROX, "approximate" },
    { IR_EX2, "approximate" },
    { IR_LG2, "approximate" },
    { IR_SIN, "approximate" },
    { IR_COS, "approximate" },
    { IR_SETMAXNREG, "what may be given up depends on how many registers the assembler took" },
    { IR_DISCARD, "what its line holds is undefined until it is written" },
    { IR_OP_COUNT, NULL },
};

/* The frame of a program */

static void cluster_barrier(const program *p)
{
    if (p->cluster == 1)
        return;
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
}

static void begin(program *p)
{
    static const ir_type first[] = { CKL_I32, IR_U32, CKL_F32, IR_U64 };
    ir_at("begin", 1);
    val tid = ir_sreg(IR_TID_X);
    p->thread = tid;
    p->rank = p->cluster > 1 ? ir_sreg(IR_CLUSTER_RANK) : ir_u32(0);
    p->leader = ir_compare(IR_EQ, tid, ir_u32(0));
    val place = ir_binary(IR_ADD, ir_binary(IR_MUL, p->rank, ir_u32(p->threads)), tid);
    val wide = ir_convert(IR_U64, place);
    p->input = element_at(p->base, wide, 8);
    p->own = element_at(ir_binary(IR_ADD, p->base, ir_int(IR_U64, FUZZ_OWN)), wide, 16);
    p->smem = ir_smem_address(0);
    cluster_barrier(p);
    for (int i = 0; i < COUNT_OF(first); i++)
        keep(p, load_input(p, first[i]));
    keep(p, ir_sreg(IR_LANE));
}

/* Stores every value, each thread beside the others; an early end of some threads may fall in between. */
static void end(program *p, int64_t *bytes)
{
    val place = ir_binary(IR_ADD, ir_binary(IR_MUL, p->rank, ir_u32(p->threads)), p->thread);
    val wide = ir_convert(IR_U64, place), address[9] = { 0 };
    int64_t at = FUZZ_OUTPUT;
    for (int size = 2; size <= 8; size *= 2)
        address[size] = element_at(p->base, wide, size);
    ir_at("end", 1);
    cluster_barrier(p);
    int leave = chance(p, 4) ? choose(p, p->count) : -1;
    for (int i = 0; i < p->count; i++) {
        val v = p->pool[i];
        if (v.type == IR_PRED)
            v = ir_select(v, ir_u32(1), ir_u32(0));
        int size = ir_type_bytes(v.type);
        ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, v.type, 1, address[size], at, &v);
        at += size * FUZZ_THREADS_MAX;
        if (i == leave)
            do_exit(p);
    }
    ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0);
    *bytes = max_i64(*bytes, at);
}

/* Appends program `number` of the batch; its slice needs at least *bytes. */
static void append(const fuzz_batch *batch, int number, val memory, val slice, const val maps[2], int64_t *bytes)
{
    program p = { .batch = batch, .target = ir_current()->target, .threads = ir_current()->threads, .converged = true };
    p.random = stream_of(batch->set.seed, batch->first + number);
    p.cluster = ir_current()->cluster;
    p.number = ir_int(CKL_I32, number);
    p.maps[0] = maps[0];
    p.maps[1] = maps[1];
    p.base = ir_binary(IR_ADD, memory, ir_binary(IR_MUL, slice, ir_int(IR_U64, number)));
    begin(&p);
    do_statements(&p, STATEMENTS_MIN + choose(&p, STATEMENTS_MAX - STATEMENTS_MIN + 1));
    end(&p, bytes);
}

/* The kernel of a batch */

fuzz_kind fuzz_kind_of(fuzz_set set, int64_t number)
{
    return (fuzz_kind)(set.kind == FUZZ_KINDS_ALL ? number / FUZZ_BATCH % FUZZ_KIND_COUNT : set.kind);
}

/* Every fourth batch of a kind is for sm_80. */
ir_target fuzz_target_of(fuzz_set set, int64_t number)
{
    int64_t turn = number / FUZZ_BATCH / (set.kind == FUZZ_KINDS_ALL ? FUZZ_KIND_COUNT : 1);
    return turn % 4 == 3 ? IR_SM80 : IR_SM90A;
}

/* A box of the tensors: rows of at least 16 bytes, at most the swizzle's span, and 2 to 16 of them. */
static void choose_map(fuzz_batch *batch)
{
    static const ckl_dtype dtypes[] = { CKL_I32, CKL_I16, CKL_I64, CKL_U8, CKL_I32 };
    static const int spans[] = { 0, 32, 64, 128 };
    uint64_t state = stream_of(batch->set.seed + 1, batch->first / FUZZ_BATCH);
    batch->map_type = dtypes[random_next(&state) % COUNT_OF(dtypes)];
    batch->map_span = spans[random_next(&state) % COUNT_OF(spans)];
    int row = batch->map_span ? batch->map_span : 16 << random_next(&state) % 4;
    batch->map_box[0] = row / (int)ckl_dtype_bytes(batch->map_type);
    batch->map_box[1] = 2 + (int)(random_next(&state) % (FUZZ_ROWS - 1));
}

static val declare_map(const fuzz_batch *batch, const char *name)
{
    val map = ir_tensor_map_param(name);
    ir_tensor_map_set(map, (ir_tensor_map){ .dtype = batch->map_type,
                                            .rank = 4,
                                            .box = { batch->map_box[0], batch->map_box[1], 1, 1 },
                                            .swizzle_bytes = batch->map_span });
    return map;
}

static void describe(fuzz_batch *batch)
{
    bool cluster = batch->kind == FUZZ_ASYNC && ir_current()->target == IR_SM90A;
    ir_current()->threads = 128;
    ir_current()->cluster = cluster ? 2 : 1;
    ir_smem_alloc("tile", FUZZ_TILE_BYTES, 1024);
    ir_smem_alloc("exchange", FUZZ_BARRIERS - FUZZ_EXCHANGE, 16);
    ir_smem_alloc("barriers", FUZZ_SMEM_BYTES - FUZZ_BARRIERS, 8);
    ir_at("batch", 1);
    if (ir_current()->target == IR_SM90A &&
        batch->first / FUZZ_BATCH % 2) // before any access: the batch's, not a program's
        ir_plain(IR_GRID_WAIT, 0, 0);
    val memory = ir_scalar_param(IR_U64, "memory"), slice = ir_scalar_param(IR_U64, "slice"), maps[2] = { 0 };
    if (cluster) {
        maps[0] = declare_map(batch, "inputs");
        maps[1] = declare_map(batch, "copies");
    }
    val number = ir_binary(IR_DIV, ir_sreg(IR_CTA_X), ir_u32(ir_current()->cluster));
    for (int i = 0; i < batch->count; i++) {
        if (batch->count > 1)
            ir_if(ir_compare(IR_EQ, number, ir_u32(i)));
        append(batch, i, memory, slice, maps, &batch->slice_bytes);
        if (batch->count > 1)
            ir_end_if();
    }
    batch->slice_bytes = round_up(batch->slice_bytes, 256);
}

ckl_status fuzz_describe(fuzz_set set, int64_t first, int count, fuzz_batch *batch)
{
    *batch = (fuzz_batch){ .set = set, .first = first, .count = count, .kind = fuzz_kind_of(set, first) };
    choose_map(batch);
    ir_describe_begin("fuzz", fuzz_target_of(set, first));
    describe(batch);
    TRY(ir_describe_end(&batch->kernel));
    return ir_verify(batch->kernel);
}

void fuzz_batch_free(fuzz_batch *batch)
{
    ir_kernel_free(batch->kernel);
    batch->kernel = NULL;
}

/* Inputs: 8 bytes of one kind after the other. Halves, words and doubles are all the same bytes. */
static uint64_t input_word(uint64_t *state)
{
    static const uint32_t special[] = { 0,          0x80000000, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000,
                                        0x00000001, 0x807fffff, 0x7f7fffff, 0x7fffffff, 0xffffffff, 0x00008000,
                                        0x3c003c00, 0x7c00fbff, 0x80000001, 0x3f803f80, 0x4b000001, 0x477ff000 };
    static const uint64_t wide[] = { 0x3ff0000000000000, 0x7ff0000000000000, 0x8000000000000000, 0x0000000000000001,
                                     0x7fffffffffffffff, 0x43e0000000000000, 0xc1e0000000000000, 0x41dfffffffc00000 };
    uint64_t x = random_next(state), y = random_next(state);
    switch (x % 8) {
    case 0:
        return y % 32 << 32 | y >> 32 % 32;
    case 1:
        return special[y % COUNT_OF(special)] | (uint64_t)special[(y >> 32) % COUNT_OF(special)] << 32;
    case 2:
        return wide[y % COUNT_OF(wide)];
    case 3: // f32 and f64 near 1
        return (y & 0x807fffff83ffffff) | 0x3f8000003c000000;
    case 4: // f64 of all sizes that f32 has
        return (y & 0x8fffffffffffffff) | 0x3000000000000000;
    default:
        return y;
    }
}

void fuzz_fill(const fuzz_batch *batch, unsigned char *memory)
{
    memset(memory, 0, (size_t)(batch->slice_bytes * batch->count));
    for (int i = 0; i < batch->count; i++) {
        uint64_t state = stream_of(batch->set.seed + 2, batch->first + i);
        for (int at = 0; at < FUZZ_INPUT_BYTES; at += 8) {
            uint64_t word = input_word(&state);
            memcpy(memory + i * batch->slice_bytes + at, &word, sizeof word);
        }
    }
}
