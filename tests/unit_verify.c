/* unit_verify.c - each rule of the verifier by itself: a right kernel, and the same one with a single thing spoiled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/math.h"
#include "ir/build.h"

static val u32(int64_t i)
{
    return ir_int(IR_U32, i);
}

static val u64(int64_t i)
{
    return ir_int(IR_U64, i);
}

/* A value that nothing is known of, the same for all threads. */
static val unknown(ir_type type)
{
    return ir_scalar_param(type, ir_type_text(type));
}

static val is_zero(val x)
{
    return ir_compare(IR_EQ, x, ir_int(x.type, 0));
}

/* Predicates of CTAs, different ones. */
static val p_of(int number)
{
    return ir_compare(IR_EQ, unknown(IR_U32), u32(number));
}

/* An instruction that is right, and what makes it wrong: `i` is the last one described, `k` the kernel. */
#define SPOILED(name, right, wrong)                     \
    static void name(bool is_right)                     \
    {                                                   \
        right;                                          \
        ir_kernel *k = ir_current();                    \
        ir_inst *i = k->inst_count ? last_of(k) : NULL; \
        (void)i;                                        \
        if (!is_right) {                                \
            wrong;                                      \
        }                                               \
    }

static ir_inst *last_of(ir_kernel *k)
{
    return &k->insts[k->inst_count - 1];
}

/* Frame and nesting */

SPOILED(kernel_name, (void)0, k->name = "a-b")
SPOILED(cluster_size, (void)0, k->cluster = 17)
SPOILED(cluster_target, (void)0, (k->cluster = 2, k->target = IR_SM80))
SPOILED(few_threads, (void)0, k->threads = 0)
SPOILED(smem_alignment, (ir_smem_alloc("a", 64, 16), ir_smem_alloc("b", 64, 32)), k->smem[1].offset = 80)
SPOILED(smem_power, ir_smem_alloc("a", 64, 16), k->smem[0].align = 48)
SPOILED(smem_negative, ir_smem_alloc("a", 64, 16), k->smem[0].offset = -16)

static void open_if(void)
{
    ir_if(p_of(0));
    ir_end_if();
}

static void open_loop(void)
{
    ir_loop();
    ir_break(p_of(0));
    ir_end_loop();
}

SPOILED(closes_other, open_if(), i->op = IR_END_LOOP)
SPOILED(else_of_loop, open_loop(), i->op = IR_ELSE)
SPOILED(no_end, open_if(), i->op = IR_WARP_SYNC)
SPOILED(break_link, open_loop(), i[-1].match = 0)
SPOILED(loop_link, open_loop(), i->match = 1)

static void nest(bool is_right)
{
    open_if();
    ir_kernel *k = ir_current();
    int begin = k->inst_count - 2;
    for (int i = 0; i < (is_right ? 0 : 300); i++)
        k->insts[begin + i] = (ir_inst){ .op = IR_IF, .in = k->insts[begin].in, .in_count = 1, .file = "kernel.c" };
    k->inst_count += is_right ? 0 : 298;
}

/* Operands */

static void sum(void)
{
    ir_binary(IR_ADD, unknown(IR_U32), unknown(IR_U32));
}

static void assign_number(void)
{
    ir_assign(ir_reg(IR_U32), u32(1));
}

SPOILED(constant_result, assign_number(), i->out[0] = u32(1))
SPOILED(no_register, sum(), i->in[1].reg = 99)
SPOILED(register_type, sum(), k->reg_types[i->out[0].reg] = CKL_F32)
SPOILED(extra_source, sum(), (i->op = IR_MOV, i->in_count = 2))
SPOILED(op_type, sum(), i->type = IR_PRED)
SPOILED(op_from, ir_convert(CKL_F32, unknown(IR_U32)), i->from = IR_F16X2)
SPOILED(op_number, sum(), i->op = IR_OP_COUNT)

/* Attributes */

static void load(ir_space space, val address, int n)
{
    val x[4];
    for (int i = 0; i < n; i++)
        x[i] = ir_reg(IR_U32);
    ir_load(space, IR_CACHE_DEFAULT, IR_U32, n, address, 0, x);
}

static void tma_load(void)
{
    val c[] = { u32(0) };
    ir_tma_load(u32(0), 0, ir_tensor_map_param("map"), u32(128), u32(0), 1, c);
}

static void tma_store(void)
{
    val c[] = { u32(0) };
    ir_tma_store(ir_tensor_map_param("map"), u32(0), 0, 1, c);
}

static void matrices(void)
{
    val x[] = { ir_reg(IR_U32), ir_reg(IR_U32), ir_reg(IR_U32), ir_reg(IR_U32) };
    ir_ldmatrix(4, false, u32(0), 0, x);
}

static void store_matrices(void)
{
    val x[] = { unknown(IR_U32), unknown(IR_U32) };
    ir_stmatrix(2, false, u32(0), 0, x);
}

static void pack(void)
{
    ir_pack(IR_U64, unknown(IR_U32), unknown(IR_U32));
}

static void unpack(void)
{
    val lo, hi;
    ir_unpack(unknown(IR_U64), IR_U32, &lo, &hi);
}

SPOILED(load_count, load(IR_GLOBAL, unknown(IR_U64), 4), (i->n = 3, i->out_count = 3))
SPOILED(load_address, load(IR_GLOBAL, u64(32), 4), i->in[0].i = 40)
SPOILED(load_offset, load(IR_GLOBAL, u64(32), 4), i->offset = 4)
SPOILED(load_space, load(IR_SHARED_CLUSTER, unknown(IR_U32), 1), k->target = IR_SM80)
SPOILED(fence_scope, ir_fence(IR_SCOPE_CLUSTER), k->target = IR_SM80)
SPOILED(atomic_alignment, ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 8, unknown(IR_U32), u32(0)),
        i->offset = 2)
SPOILED(atomic_scope, ir_atomic(IR_GLOBAL, IR_SCOPE_CLUSTER, IR_RED_ADD, unknown(IR_U64), 8, unknown(IR_U32), u32(0)),
        k->target = IR_SM80)
SPOILED(atomic_target, ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 0, unknown(CKL_BF16)),
        k->target = IR_SM80)
SPOILED(red_exchange, ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 0, unknown(IR_U32)),
        i->mode = IR_RED_EXCH)
SPOILED(store_async, ir_store_async(u32(0), 8, u32(64), unknown(IR_U64)), i->offset = 4)
SPOILED(cp_async_bytes, ir_cp_async(u32(0), 0, unknown(IR_U64), 8, u32(8)), i->n = 2)
SPOILED(cp_async_address, ir_cp_async(u32(0), 16, unknown(IR_U64), 16, u32(16)), i->offset = 8)
SPOILED(bulk_bytes, ir_bulk_load(u32(0), 0, unknown(IR_U64), u32(32), u32(64)), i->in[2].i = 40)
SPOILED(bulk_nothing, ir_bulk_load(u32(0), 0, unknown(IR_U64), u32(32), u32(64)), i->in[2].i = 0)
SPOILED(bulk_load_place, ir_bulk_load(u32(0), 16, unknown(IR_U64), u32(32), u32(64)), i->offset = 8)
SPOILED(bulk_store_place, ir_bulk_store(unknown(IR_U64), u32(16), 0, u32(32)), i->in[1].i = 8)
SPOILED(prefetch_bytes, ir_bulk_prefetch(unknown(IR_U64), u32(32)), i->in[1].i = 8)
SPOILED(prefetch_nothing, ir_bulk_prefetch(unknown(IR_U64), u32(32)), i->in[1].i = 0)
SPOILED(multicast, tma_load(), i->in[3].i = 3)
SPOILED(tma_load_place, tma_load(), i->offset = 64)
SPOILED(tma_store_place, tma_store(), i->in[1].i = 64)
SPOILED(tma_no_rank, tma_store(), (i->n = 0, i->in_count = 2))
SPOILED(mbarrier_space, ir_mbarrier_arrive(IR_SHARED, u32(0), 0), i->space = IR_GLOBAL)
SPOILED(mbarrier_place, ir_mbarrier_init(u32(8), 0, 1), i->in[0].i = 4)
SPOILED(mbarrier_wait_place, ir_mbarrier_wait(u32(8), 0, u32(0)), i->offset = 4)
SPOILED(barrier_low, ir_bar_sync(u32(1), 64), i->in[0].i = -1)
SPOILED(barrier_count, ir_bar_arrive(u32(1), 64), i->n = 48)
SPOILED(maxnreg_low, ir_plain(IR_SETMAXNREG, 24, 0), i->n = 16)
SPOILED(maxnreg_threads, ir_plain(IR_SETMAXNREG, 24, 0), k->threads = 192)
SPOILED(ldmatrix_count, matrices(), (i->n = 3, i->out_count = 3))
SPOILED(ldmatrix_place, matrices(), i->offset = 8)
SPOILED(stmatrix_place, store_matrices(), i->in[0].i = 8)
SPOILED(shuffle_width, ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1), 16), i->n = 24)
SPOILED(shuffle_wide, ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1), 32), i->n = 64)
SPOILED(shuffle_mode, ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1), 16), i->mode = IR_SHFL_XOR + 1)
SPOILED(vote_mode, ir_vote(IR_VOTE_ALL, p_of(0)), i->mode = IR_VOTE_BALLOT)
SPOILED(vote_type, ir_vote(IR_VOTE_BALLOT, p_of(0)), i->mode = IR_VOTE_ANY)
SPOILED(redux_mode, ir_redux(IR_RED_OR, unknown(IR_U32)), i->mode = IR_RED_EXCH)
SPOILED(compare_mode, p_of(0), i->mode = IR_GE + 1)
SPOILED(sreg_mode, ir_sreg(IR_LANE), i->mode = IR_SREG_COUNT)
SPOILED(sreg_target, ir_sreg(IR_CLUSTER_RANK), k->target = IR_SM80)
SPOILED(param_number, unknown(IR_U32), i->n = 1)
SPOILED(param_type, unknown(IR_U32), k->params[0].type = CKL_F32)
SPOILED(param_map, ir_tensor_map_param("map"), k->params[0] = ((ir_param){ .name = "map", .type = CKL_F32 }))
SPOILED(cp_async_wait, ir_plain(IR_CP_ASYNC_WAIT, 7, 0), i->n = 8)
SPOILED(bulk_wait, ir_plain(IR_BULK_WAIT, 0, 0), i->n = -1)
SPOILED(wgmma_wait, ir_plain(IR_WGMMA_WAIT, 7, 0), i->n = 8)
SPOILED(bitcast_width, ir_bitcast(CKL_F32, unknown(IR_U32)),
        (i->type = CKL_F64, k->reg_types[i->out[0].reg] = CKL_F64, i->out[0].type = CKL_F64))
SPOILED(pack_width, pack(), (i->type = IR_U32, k->reg_types[i->out[0].reg] = IR_U32, i->out[0].type = IR_U32))
SPOILED(unpack_width, unpack(),
        (i->from = IR_U32, k->reg_types[i->in[0].reg] = IR_U32, i->in[0].type = IR_U32, i[-1].out[0].type = IR_U32,
         i[-1].type = IR_U32, k->params[0].type = IR_U32))

/* Registers: what two paths agree on */

static val x_of_guard(void)
{
    return ir_reg(IR_U32);
}

/* Written under p on one way and under q on the other: after it neither p nor q tells. */
static void guards_of_two_ways(bool right)
{
    val x = x_of_guard(), p = p_of(0), q = p_of(1);
    ir_if(p_of(2));
    ir_if(p);
    ir_assign(x, u32(1));
    ir_end_if();
    ir_else();
    ir_if(right ? p : q);
    ir_assign(x, u32(2));
    ir_end_if();
    ir_end_if();
    ir_if(p);
    ir_binary(IR_ADD, x, x);
    ir_end_if();
}

/* What the ELSE of p has written is not there in a later IF p. */
static void guard_of_else(bool right)
{
    val x = x_of_guard(), p = p_of(0);
    ir_if(p);
    if (!right)
        ir_else();
    ir_assign(x, u32(1));
    ir_end_if();
    ir_if(p);
    ir_binary(IR_ADD, x, x);
    ir_end_if();
}

/* The predicate changes at the end of a loop, and its beginning comes again. */
static void guard_in_loop(bool right)
{
    val x = x_of_guard(), p = ir_reg(IR_PRED);
    ir_assign(p, p_of(0));
    ir_if(p);
    ir_assign(x, u32(1));
    ir_end_if();
    ir_loop();
    ir_if(p);
    ir_binary(IR_ADD, x, x);
    ir_end_if();
    if (!right)
        ir_assign(p, ir_unary(IR_NOT, p));
    ir_break(p_of(1));
    ir_end_loop();
}

/* A way that ends does not count, the first or the second one. */
static void way_that_ends(bool right, ir_op end)
{
    val x = ir_reg(IR_U32), y = ir_reg(IR_U32);
    ir_if(p_of(0));
    if (right)
        ir_plain(end, 0, 0);
    ir_else();
    ir_assign(x, u32(1));
    ir_end_if();
    ir_if(p_of(0));
    ir_assign(y, u32(1));
    ir_else();
    ir_plain(end, 0, 0);
    ir_end_if();
    ir_binary(IR_ADD, x, y);
}

/* Nothing comes after a loop that has no break. */
static void loop_without_break(bool right)
{
    val x = ir_reg(IR_U32);
    ir_loop();
    ir_if(p_of(0));
    ir_plain(IR_EXIT, 0, 0);
    ir_end_if();
    if (!right)
        ir_break(p_of(1));
    ir_end_loop();
    ir_binary(IR_ADD, x, x);
}

static void way_that_exits(bool right)
{
    way_that_ends(right, IR_EXIT);
}

static void way_that_traps(bool right)
{
    way_that_ends(right, IR_TRAP);
}

/* Of two breaks the first one comes too early. */
static void two_breaks(bool right)
{
    val x = ir_reg(IR_U32);
    ir_loop();
    if (right)
        ir_assign(x, u32(1));
    ir_break(p_of(0));
    ir_assign(x, u32(1));
    ir_break(p_of(1));
    ir_end_loop();
    ir_binary(IR_ADD, x, x);
}

/* Registers of WGMMA */

enum { N = 16 };

static void accumulators(val d[N / 2])
{
    for (int i = 0; i < N / 2; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
}

static void fence(void)
{
    ir_plain(IR_WGMMA_FENCE, 0, 0);
}

static void multiply(val *d)
{
    ir_wgmma(CKL_F16, N, d, u64(0), u64(0), ir_int(IR_PRED, 1), false, false);
}

static void commit(void)
{
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
}

static void wait_for(int groups)
{
    ir_plain(IR_WGMMA_WAIT, groups, 0);
}

static void use(val x)
{
    ir_binary(IR_ADD, x, x);
}

static void product(void)
{
    val d[N / 2];
    accumulators(d);
    fence();
    multiply(d);
}

SPOILED(wgmma_threads, product(), k->threads = 192)
SPOILED(wgmma_in_place, product(), i->out[1] = i->out[0])

/* On one way an accumulator was touched after the fence. */
static void touched_on(bool right, bool second)
{
    val d[N / 2];
    accumulators(d);
    fence();
    ir_if(p_of(0));
    if (second)
        ir_else();
    ir_assign(d[2], ir_float(CKL_F32, 1));
    if (!second)
        ir_else();
    ir_end_if();
    if (right)
        fence();
    multiply(d);
}

static void touched_on_first(bool right)
{
    touched_on(right, false);
}

static void touched_on_second(bool right)
{
    touched_on(right, true);
}

/* Reading counts as well. */
static void read_after_fence(bool right)
{
    val d[N / 2];
    accumulators(d);
    if (!right)
        fence();
    use(d[3]);
    if (right)
        fence();
    multiply(d);
}

/* So does A in registers. */
static void a_after_fence(bool right)
{
    val d[N / 2], a[4];
    accumulators(d);
    for (int i = 0; i < 4; i++)
        a[i] = ir_reg(IR_U32);
    if (!right)
        fence();
    for (int i = 0; i < 4; i++)
        ir_assign(a[i], u32(i));
    if (right)
        fence();
    ir_wgmma_rs(CKL_F16, N, d, a, u64(0), ir_int(IR_PRED, 1), false);
}

/* At the end of a loop, before its beginning comes again. */
static void touched_in_loop(bool right)
{
    val d[N / 2];
    accumulators(d);
    fence();
    ir_loop();
    if (right)
        fence();
    multiply(d);
    commit();
    wait_for(0);
    ir_assign(d[0], ir_float(CKL_F32, 1));
    ir_break(p_of(0));
    ir_end_loop();
}

/* On one way a product is in flight. */
static void in_flight_on(bool right, bool second)
{
    val d[N / 2];
    accumulators(d);
    fence();
    ir_if(p_of(0));
    if (second)
        ir_else();
    multiply(d);
    commit();
    if (!second)
        ir_else();
    ir_end_if();
    if (right)
        wait_for(0);
    use(d[0]);
}

static void in_flight_on_first(bool right)
{
    in_flight_on(right, false);
}

static void in_flight_on_second(bool right)
{
    in_flight_on(right, true);
}

/* On one way another group follows, so that only there one group in flight may be it. */
static void younger_on(bool right, bool second)
{
    val d[N / 2];
    accumulators(d);
    fence();
    multiply(d);
    commit();
    ir_if(p_of(0));
    if (second)
        ir_else();
    commit();
    if (!second)
        ir_else();
    ir_end_if();
    wait_for(right ? 0 : 1);
    use(d[0]);
}

static void younger_on_first(bool right)
{
    younger_on(right, false);
}

static void younger_on_second(bool right)
{
    younger_on(right, true);
}

static void second_group(bool right)
{
    val d[N / 2], e[N / 2];
    accumulators(d);
    accumulators(e);
    fence();
    multiply(d);
    commit();
    multiply(e);
    commit();
    wait_for(1);
    use(right ? d[0] : e[0]);
}

/* A wait does not wait for the open group. */
static void open_group(bool right)
{
    val d[N / 2];
    accumulators(d);
    fence();
    multiply(d);
    if (right)
        commit();
    wait_for(0);
    use(d[0]);
}

static void accumulator_written(bool right)
{
    val d[N / 2];
    accumulators(d);
    fence();
    multiply(d);
    commit();
    if (right)
        wait_for(0);
    ir_assign(d[7], ir_float(CKL_F32, 1));
}

/* A product that does not add to them needs no accumulators before. */
static void unwritten_accumulators(bool right)
{
    val d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = ir_reg(CKL_F32);
    fence();
    ir_wgmma(CKL_F16, N, d, u64(0), u64(0), ir_int(IR_PRED, right ? 0 : 1), false, false);
}

/* Convergence */

static void shuffle(void)
{
    ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1), 32);
}

static void shuffle_where(val p)
{
    ir_if(p);
    shuffle();
    ir_end_if();
}

static void warpgroup_where(val p)
{
    ir_if(p);
    fence();
    ir_end_if();
}

static val tid(void)
{
    return ir_sreg(IR_TID_X);
}

/* A constant added keeps the steps of the threads if it is whole warpgroups; else nothing is sure. */
static void shifted(bool right)
{
    val x = ir_binary(IR_ADD, tid(), u32(128));
    shuffle_where(ir_compare(IR_LT, x, u32(right ? 192 : 200)));
    shuffle_where(ir_compare(IR_LT, ir_binary(IR_ADD, tid(), u32(8)), u32(40)));   // tid < 32
    shuffle_where(ir_compare(IR_LT, ir_binary(IR_SUB, u32(256), tid()), u32(33))); // tid >= 224
}

static void shifted_group(bool right)
{
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_SUB, tid(), u32(128)), u32(right ? 128 : 64)));
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_ADD, tid(), u32(96)), u32(224))); // tid < 128
}

static void right_shifted(bool right)
{
    shuffle_where(ir_compare(IR_EQ, ir_binary(IR_SHR, tid(), u32(right ? 5 : 4)), u32(1)));
    shuffle_where(is_zero(ir_binary(IR_SHR, tid(), u32(32)))); // all of them
}

static void divided(bool right)
{
    warpgroup_where(ir_compare(IR_EQ, ir_binary(IR_DIV, tid(), u32(right ? 64 : 32)), u32(2))); // unsure: it is not
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_DIV, tid(), u32(32)), u32(4)));
}

static void masked(bool right)
{
    shuffle_where(is_zero(ir_binary(IR_AND, tid(), u32(right ? 96 : 31))));
}

static void constant_before(bool right)
{
    shuffle_where(ir_compare(IR_GT, u32(right ? 64 : 40), tid()));
    shuffle_where(ir_compare(IR_GE, u32(63), tid()));
}

static void constant_before_closed(bool right)
{
    shuffle_where(ir_compare(IR_LT, u32(right ? 63 : 64), tid()));
}

static void closed_comparison(bool right)
{
    shuffle_where(ir_compare(IR_LE, tid(), u32(right ? 63 : 64)));
}

static void equal_out_of_range(bool right)
{
    shuffle_where(ir_compare(IR_EQ, tid(), u32(right ? 256 : 255)));
}

static void below_out_of_range(bool right)
{
    shuffle_where(ir_compare(IR_LT, tid(), u32(right ? 300 : 250)));
}

static void both_predicates(bool right)
{
    shuffle_where(ir_binary(IR_AND, is_zero(ir_sreg(right ? IR_WARP : IR_LANE)), p_of(0)));
}

static void converted(bool right)
{
    shuffle_where(is_zero(ir_convert(CKL_I64, ir_sreg(right ? IR_WARP : IR_LANE))));
}

/* Two writers of different kinds leave nothing sure, whichever comes last. */
static void two_writers(bool right)
{
    val x = ir_reg(IR_U32), y = ir_reg(IR_U32);
    ir_if(p_of(0));
    ir_assign(x, u32(0));
    ir_assign(y, ir_sreg(IR_LANE));
    ir_else();
    ir_assign(x, ir_sreg(IR_LANE));
    ir_assign(y, right ? u32(0) : ir_sreg(IR_LANE));
    ir_end_if();
    shuffle_where(is_zero(x));
    shuffle_where(is_zero(y));
}

/* Two writers of one kind: a predicate between them that parts the threads leaves nothing sure either. */
static void written_under(bool right)
{
    val lane = ir_sreg(IR_LANE), x = ir_reg(IR_U32);
    val whole_groups = ir_compare(IR_EQ, ir_binary(IR_DIV, tid(), u32(128)), u32(1));
    ir_assign(x, lane);
    ir_if(right ? ir_vote(IR_VOTE_ANY, is_zero(tid())) : whole_groups);
    ir_assign(x, lane);
    ir_end_if();
    shuffle_where(is_zero(x));
}

/* An inner IF does not make a warp whole again, its end does. */
static void after_if(bool right)
{
    ir_if(is_zero(ir_sreg(IR_LANE)));
    ir_if(p_of(0));
    if (!right)
        shuffle();
    ir_end_if();
    ir_end_if();
    shuffle();
}

static void on_else(bool right)
{
    ir_if(is_zero(ir_sreg(right ? IR_WARP : IR_LANE)));
    ir_else();
    shuffle();
    ir_end_if();
}

/* The break stands behind, but the second turn is divergent. */
static void before_break(bool right)
{
    ir_loop();
    shuffle();
    ir_break(is_zero(ir_sreg(right ? IR_WARP : IR_LANE)));
    ir_end_loop();
    shuffle();
}

#define IN_FLIGHT "belongs to the wgmma of line 7 until a wgmma_wait"
#define FENCED    "was used after the last wgmma_fence"
#define LANES     "wants a converged warp, but its lanes diverge at the if of line 7"
#define THREADS   "wants a converged warpgroup, but its threads diverge at the if of line 7"
#define WANTED(f) #f, f

static const struct {
    const char *name;
    void (*describe)(bool right);
    const char *sentence; // a part of it
} cases[] = {
    { WANTED(kernel_name), "the name is not an identifier" },
    { WANTED(cluster_size), "cluster=17 is not in 1..16" },
    { WANTED(cluster_target), "cluster=2 needs sm_90a" },
    { WANTED(few_threads), "threads=0 is not a multiple of 32 in 32..1024" },
    { WANTED(smem_alignment), "shared memory b at 80 is not aligned to 32" },
    { WANTED(smem_power), "shared memory a at 0 is not aligned to 48" },
    { WANTED(smem_negative), "shared memory a ends at 48, beyond the kernel's 64" },
    { WANTED(closes_other), "end_loop: does not close the innermost loop" },
    { WANTED(else_of_loop), "else: does not close the innermost if" },
    { WANTED(no_end), "if: has no end" },
    { WANTED(break_link), "break: is linked to another loop than its own" },
    { WANTED(loop_link), "end_loop: is linked to another loop than its own" },
    { WANTED(nest), "if: nested more than 256 deep" },
    { WANTED(constant_result), "mov: a result is a constant" },
    { WANTED(no_register), "add: register 99 does not exist" },
    { WANTED(register_type), "add: register 2 is f32, used as u32" },
    { WANTED(extra_source), "mov: has 2 sources, 1 belong to it" },
    { WANTED(op_type), "add: does not exist for pred" },
    { WANTED(op_from), "convert: does not exist from f16x2" },
    { WANTED(op_number), "does not exist" },
    { WANTED(load_count), "ld: n=3 elements of u32 are not 1, 2 or 4 in at most 16 bytes" },
    { WANTED(load_address), "ld: address 40 is not a multiple of the 16 bytes accessed" },
    { WANTED(load_offset), "ld: address 36 is not a multiple of the 16 bytes accessed" },
    { WANTED(load_space), "ld: shared memory of a cluster needs sm_90a" },
    { WANTED(fence_scope), "fence: cluster scope needs sm_90a" },
    { WANTED(atomic_alignment), "atom: offset 2 is not a multiple of the 4 bytes accessed" },
    { WANTED(atomic_scope), "atom: cluster scope needs sm_90a" },
    { WANTED(atomic_target), "red: mode=0 does not exist for bf16" },
    { WANTED(red_exchange), "red: mode=5 does not exist for u32" },
    { WANTED(store_async), "address 4 is not a multiple of the 8 bytes accessed" },
    { WANTED(cp_async_bytes), "cp_async: n=2 bytes is none of 4, 8, 16" },
    { WANTED(cp_async_address), "cp_async: address 8 is not a multiple of the 16 bytes accessed" },
    { WANTED(bulk_bytes), "bulk_load: 40 bytes is not a multiple of 16 above 0" },
    { WANTED(bulk_nothing), "bulk_load: 0 bytes is not a multiple of 16 above 0" },
    { WANTED(bulk_load_place), "bulk_load: address 8 is not a multiple of the 16 bytes accessed" },
    { WANTED(bulk_store_place), "bulk_store: address 8 is not a multiple of the 16 bytes accessed" },
    { WANTED(prefetch_bytes), "bulk_prefetch: 8 bytes is not a multiple of 16 above 0" },
    { WANTED(prefetch_nothing), "bulk_prefetch: 0 bytes is not a multiple of 16 above 0" },
    { WANTED(multicast), "tma_load: multicast in a kernel without clusters" },
    { WANTED(tma_load_place), "tma_load: address 64 is not a multiple of the 128 bytes accessed" },
    { WANTED(tma_store_place), "tma_store: address 64 is not a multiple of the 128 bytes accessed" },
    { WANTED(tma_no_rank), "tma_store: n=0 coordinates are not in 1..5" },
    { WANTED(mbarrier_space), "mbarrier_arrive: " },
    { WANTED(mbarrier_place), "mbarrier_init: address 4 is not a multiple of the 8 bytes accessed" },
    { WANTED(mbarrier_wait_place), "mbarrier_wait: address 12 is not a multiple of the 8 bytes accessed" },
    { WANTED(barrier_low), "bar_sync: id=-1 is not in 0..15" },
    { WANTED(barrier_count), "bar_arrive: n=48 threads is not a multiple of 32 in 32..256" },
    { WANTED(maxnreg_low), "setmaxnreg: n=16 registers is not a multiple of 8 in 24..256" },
    { WANTED(maxnreg_threads), "setmaxnreg: threads=192 of the kernel are not whole warpgroups" },
    { WANTED(ldmatrix_count), "ldmatrix: n=3 matrices is none of 1, 2, 4" },
    { WANTED(ldmatrix_place), "ldmatrix: address 8 is not a multiple of the 16 bytes accessed" },
    { WANTED(stmatrix_place), "stmatrix: address 8 is not a multiple of the 16 bytes accessed" },
    { WANTED(shuffle_width), "shuffle: n=24 lanes is not a power of two up to 32" },
    { WANTED(shuffle_wide), "shuffle: n=64 lanes is not a power of two up to 32" },
    { WANTED(shuffle_mode), "shuffle: mode=4 is no way to shuffle" },
    { WANTED(vote_mode), "vote: mode=2 does not give pred" },
    { WANTED(vote_type), "vote: mode=0 does not give u32" },
    { WANTED(redux_mode), "redux: mode=5 is no reduction over a warp" },
    { WANTED(compare_mode), "mode=6 is no comparison" },
    { WANTED(sreg_mode), "sreg: mode=12 is no special register" },
    { WANTED(sreg_target), "sreg: the rank in a cluster needs sm_90a" },
    { WANTED(param_number), "param: n=1 is not one of the 1 parameters" },
    { WANTED(param_type), "param: parameter u32 is f32, read as u32" },
    { WANTED(param_map), "param: parameter map is f32, read as u64" },
    { WANTED(cp_async_wait), "cp_async_wait: n=8 groups is not in 0..7" },
    { WANTED(bulk_wait), "bulk_wait: n=-1 groups is not in 0..7" },
    { WANTED(wgmma_wait), "wgmma_wait: n=8 groups is not in 0..7" },
    { WANTED(bitcast_width), "bitcast: f64 and u32 differ in width" },
    { WANTED(pack_width), "pack: two u32 are not one u32" },
    { WANTED(unpack_width), "unpack: two u32 are not one u32" },
    { WANTED(guards_of_two_ways), "is read before it is written" },
    { WANTED(guard_of_else), "is read after it: it needs a value on every path" },
    { WANTED(guard_in_loop), "is read after it: it needs a value on every path" },
    { WANTED(way_that_exits), "is read after it: it needs a value on every path" },
    { WANTED(way_that_traps), "is read after it: it needs a value on every path" },
    { WANTED(loop_without_break), "is read before it is written" },
    { WANTED(two_breaks), "is read after it: it needs a value on every path" },
    { WANTED(wgmma_threads), "wgmma: threads=192 of the kernel are not whole warpgroups" },
    { WANTED(wgmma_in_place), "wgmma: accumulator 1 is not updated in place" },
    { WANTED(touched_on_first), FENCED },
    { WANTED(touched_on_second), FENCED },
    { WANTED(read_after_fence), FENCED },
    { WANTED(a_after_fence), FENCED },
    { WANTED(touched_in_loop), FENCED },
    { WANTED(in_flight_on_first), IN_FLIGHT },
    { WANTED(in_flight_on_second), IN_FLIGHT },
    { WANTED(younger_on_first), IN_FLIGHT },
    { WANTED(younger_on_second), IN_FLIGHT },
    { WANTED(second_group), IN_FLIGHT },
    { WANTED(open_group), IN_FLIGHT },
    { WANTED(accumulator_written), IN_FLIGHT },
    { WANTED(unwritten_accumulators), "is read before it is written" },
    { WANTED(shifted), LANES },
    { WANTED(shifted_group), THREADS },
    { WANTED(right_shifted), LANES },
    { WANTED(divided), THREADS },
    { WANTED(masked), LANES },
    { WANTED(constant_before), LANES },
    { WANTED(constant_before_closed), LANES },
    { WANTED(closed_comparison), LANES },
    { WANTED(equal_out_of_range), LANES },
    { WANTED(below_out_of_range), LANES },
    { WANTED(both_predicates), LANES },
    { WANTED(converted), LANES },
    { WANTED(two_writers), LANES },
    { WANTED(written_under), LANES },
    { WANTED(after_if), LANES },
    { WANTED(on_else), "wants a converged warp, but its lanes diverge" },
    { WANTED(before_break), "wants a converged warp, but its lanes diverge at the loop of line 7" },
};

static ckl_status verify(int number, bool right)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin(cases[number].name, IR_SM90A);
    ir_current()->threads = 256;
    ir_at("kernel.c", 7);
    cases[number].describe(right);
    if (ir_describe_end(&kernel) != CKL_OK)
        fail_msg("%s: cannot be described: %s", cases[number].name, ckl_error());
    ckl_status status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status;
}

static void test_every_rule(void **state)
{
    int wrong = 0;
    (void)state;
    for (int i = 0; i < COUNT_OF(cases); i++) {
        if (verify(i, true) != CKL_OK) {
            print_error("%s: the right kernel is refused: %s\n", cases[i].name, ckl_error());
            wrong++;
        }
        bool refused = verify(i, false) == CKL_INTERNAL;
        if (!refused || !strstr(ckl_error(), cases[i].sentence)) {
            print_error("%s: %s\n", cases[i].name, refused ? ckl_error() : "the wrong kernel is taken");
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_rule) };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
