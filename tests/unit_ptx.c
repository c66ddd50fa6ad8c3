/* unit_ptx.c - every op, for every type that rules.c allows it, prints as PTX; ptxas, if there is one, assembles it. */
#include "assemble.h"
#include "ir/ptx_rows.h"
#include "ir/rules.h"

static bool seen[IR_OP_COUNT];

static val constant(ir_type type)
{
    if (type == IR_PRED)
        return ir_int(IR_PRED, 1);
    return ir_type_is_float(type) && !ir_type_is_pair(type) ? ir_float(type, 1.5) : ir_int(type, 3);
}

/* Stores a value, so that nothing is optimised away. */
static void keep(val v)
{
    if (v.type == IR_PRED)
        v = ir_select(v, ir_int(IR_U32, 1), input(IR_U32));
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, v.type, 1, global, next_output, &v);
    next_output += 16;
}

/* Ends the description: it must verify, print and assemble. */
static void finish(void)
{
    ir_kernel *kernel = NULL;
    text ptx = { 0 };
    if (ir_describe_end(&kernel) != CKL_OK || ir_verify(kernel) != CKL_OK || ir_print_ptx(kernel, &ptx) != CKL_OK)
        fail_msg("%s", ckl_error());
    for (int i = 0; i < kernel->inst_count; i++)
        seen[kernel->insts[i].op] = true;
    check_assembled(text_data(&ptx), kernel);
    text_free(&ptx);
    ir_kernel_free(kernel);
}

/* Arithmetic, from the rules */

static bool is_f8(ir_type type)
{
    return type == CKL_E4M3 || type == CKL_E5M2;
}

static bool is_half(ir_type type)
{
    return type == CKL_F16 || type == CKL_BF16;
}

/* Conversions that no kernel needs and that have no PTX, or that the verifier refuses. */
static bool is_absent(ir_op op, ir_type type, ir_type from, ir_target target)
{
    bool f8 = is_f8(type) || is_f8(from);
    if (op == IR_CONVERT && ir_type_is_pair(type))
        return target == IR_SM80 || !is_f8(from);
    if (op == IR_CONVERT && f8)
        return target == IR_SM80 || !(is_half(type) || is_half(from) || type == CKL_F32 || from == CKL_F32);
    if (op == IR_CONVERT)
        return type == from || (type == IR_PRED && (is_half(from) || from == CKL_F64));
    if (op == IR_BITCAST)
        return ir_type_bytes(type) != ir_type_bytes(from);
    ir_type whole = op == IR_PACK ? type : from, part = op == IR_PACK ? from : type;
    if (ir_type_is_pair(whole))
        return part != CKL_F32 && !is_half(part) && !(op == IR_UNPACK && ir_type_bytes(part) == 2);
    return ir_type_bytes(whole) != 2 * ir_type_bytes(part) || part == CKL_F32;
}

static ir_type letter_type(char letter, ir_type type, ir_type from)
{
    return letter == 't' || letter == 'c' ? type : letter == 'f' ? from : letter == 'p' ? IR_PRED : IR_U32;
}

/* Emits an op by its rule; constants: bit i makes source i a constant. */
static void emit_by_rule(ir_op op, ir_type type, ir_type from, int mode, unsigned constants)
{
    val out[2], in[3];
    int out_count = 0, in_count = 0;
    const char *at = ir_rule_of(op)->operands;
    for (; *at != ':'; at++)
        out[out_count++] = ir_reg(letter_type(*at, type, from));
    for (at++; *at; at++, in_count++) {
        ir_type t = letter_type(*at, type, from);
        in[in_count] = *at == 'c' || constants >> in_count & 1 ? constant(t) : input(t);
    }
    ir_emit((ir_inst){ .op = op, .type = type, .from = from, .mode = mode }, out_count, out, in_count, in);
    for (int i = 0; i < out_count; i++)
        keep(out[i]);
}

static void emit_type(ir_op op, ir_type type, ir_type from, ir_target target)
{
    bool two_types = ir_rule_of(op)->from != 0;
    int modes = op == IR_COMPARE ? IR_GE + 1 : op == IR_MIN || op == IR_MAX ? 2 : 1;
    if (two_types && is_absent(op, type, from, target))
        return;
    for (int mode = 0; mode < modes; mode++)
        for (unsigned constants = 0; constants < 4; constants++)
            emit_by_rule(op, type, from, mode, constants);
}

static void emit_all_types(ir_op op, ir_target target)
{
    const ir_rule *rule = ir_rule_of(op);
    for (int type = 0; type < IR_TYPE_COUNT; type++)
        for (int from = 0; from < IR_TYPE_COUNT; from++) {
            bool from_allowed = rule->from ? (rule->from & TYPE_SET(from)) != 0 : from == 0;
            if (from_allowed && (rule->types & TYPE_SET(type)))
                emit_type(op, (ir_type)type, (ir_type)from, target);
        }
}

static void arithmetic(ir_target target)
{
    for (int op = IR_MOV; op <= IR_COS; op++) {
        begin("arithmetic", target);
        emit_all_types((ir_op)op, target);
        finish();
    }
}

static void special_registers(ir_target target)
{
    begin("special_registers", target);
    for (int i = 0; i < IR_SREG_COUNT; i++)
        if (i != IR_CLUSTER_RANK || target == IR_SM90A)
            keep(ir_sreg((ir_sreg_kind)i));
    finish();
}

static void memory(ir_target target)
{
    static const ir_space spaces[] = { IR_GLOBAL, IR_SHARED, IR_SHARED_CLUSTER };
    static const ir_cache caches[] = { IR_CACHE_DEFAULT, IR_CACHE_EVICT_FIRST, IR_CACHE_EVICT_LAST, IR_CACHE_READONLY };
    begin("memory", target);
    val shared = ir_smem_address(ir_smem_alloc("all", 4096, 1024));
    for (int space = 0; space < (target == IR_SM80 ? 2 : 3); space++)
        for (int type = 1; type < IR_TYPE_COUNT; type++) {
            int64_t bytes =
                type < CKL_DTYPE_COUNT ? (int64_t)ckl_dtype_bytes((ckl_dtype)type) : ir_type_bytes((ir_type)type);
            for (int n = 1; n <= 4 && n * bytes <= 16 && (ir_type)type != IR_PRED; n *= 2) {
                val address = space == IR_GLOBAL ? global : shared, v[4];
                for (int i = 0; i < n; i++)
                    v[i] = ir_reg((ir_type)type);
                ir_load(spaces[space], caches[(n + type) % 4], (ir_type)type, n, address, -16, v);
                v[0] = n == 2 ? constant((ir_type)type) : v[0];
                ir_store(spaces[space], caches[(n + type) % 4], (ir_type)type, n, address, 1024, v);
            }
        }
    finish();
}

static void atomics(ir_target target)
{
    begin("atomics", target);
    val shared = ir_smem_address(ir_smem_alloc("all", 4096, 1024));
    for (int mode = IR_RED_ADD; mode <= IR_RED_CAS; mode++)
        for (int type = 1; type < IR_TYPE_COUNT; type++) {
            bool word = type == CKL_I32 || type == CKL_I64 || (ir_type)type == IR_U32 || (ir_type)type == IR_U64;
            bool half = is_half((ir_type)type) || ir_type_is_pair((ir_type)type);
            bool brain = type == CKL_BF16 || (ir_type)type == IR_BF16X2;
            bool adds =
                mode == IR_RED_ADD && (type == CKL_F32 || type == CKL_F64 || (half && (!brain || target == IR_SM90A)));
            if (!word && !adds && !(mode == IR_RED_EXCH && type == CKL_F32))
                continue;
            val x = input((ir_type)type), y = constant((ir_type)type);
            keep(ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, (ir_reduction)mode, global, 8, x, y));
            keep(ir_atomic(IR_SHARED, IR_SCOPE_CTA, (ir_reduction)mode, shared, 8, x, x));
            if (mode < IR_RED_EXCH) {
                ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, (ir_reduction)mode, global, 0, y);
                ir_reduce(IR_SHARED, IR_SCOPE_CTA, (ir_reduction)mode, shared, 0, x);
            }
        }
    ir_fence(IR_SCOPE_CTA);
    ir_fence(IR_SCOPE_GPU);
    finish();
}

/* Strong accesses and fences at every scope. */
static void strong(ir_target target)
{
    begin("strong", target);
    for (int scope = IR_SCOPE_CTA; scope <= IR_SCOPE_SYS; scope++) {
        if (scope == IR_SCOPE_CLUSTER && target == IR_SM80)
            continue;
        ir_scope at = (ir_scope)scope;
        for (int type = 1; type < IR_TYPE_COUNT; type++)
            if ((ir_type)type != IR_PRED && type < CKL_DTYPE_COUNT) {
                keep(ir_load_strong(IR_ORDER_RELAXED, at, (ir_type)type, global, 16));
                keep(ir_load_strong(IR_ORDER_ACQUIRE, at, (ir_type)type, global, 0));
            }
        ir_store_strong(IR_ORDER_RELAXED, at, IR_U32, global, 0, ir_int(IR_U32, 1));
        ir_store_strong(IR_ORDER_RELEASE, at, IR_U64, global, -8, input(IR_U64));
        for (int order = IR_ORDER_RELAXED; order <= IR_ORDER_ACQ_REL; order++)
            keep(ir_atomic_ordered((ir_order)order, at, IR_RED_CAS, global, 0, input(IR_U32), input(IR_U32)));
        keep(ir_atomic_ordered(IR_ORDER_ACQ_REL, at, IR_RED_ADD, global, 8, input(CKL_F32), input(CKL_F32)));
        ir_reduce_ordered(IR_ORDER_RELEASE, at, IR_RED_MAX, global, 0, input(CKL_I32));
        ir_fence(at);
    }
    finish();
}

static void cooperation(ir_target target)
{
    begin("cooperation", target);
    ir_current()->threads = 256;
    val x = input(IR_U32), f = input(CKL_F32), p = input(IR_PRED);
    for (int mode = IR_SHFL_IDX; mode <= IR_SHFL_XOR; mode++)
        for (int width = 1; width <= 32; width *= 2) {
            keep(ir_shuffle((ir_shuffle_kind)mode, f, ir_int(IR_U32, 1), width));
            keep(ir_shuffle((ir_shuffle_kind)mode, x, x, width));
        }
    keep(ir_vote(IR_VOTE_ANY, p));
    keep(ir_vote(IR_VOTE_ALL, p));
    keep(ir_vote(IR_VOTE_BALLOT, p));
    for (int mode = IR_RED_ADD; mode <= IR_RED_OR; mode++) {
        keep(ir_redux((ir_reduction)mode, x));
        keep(ir_redux((ir_reduction)mode, input(CKL_I32)));
    }
    keep(ir_elect());
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_bar_sync(ir_int(IR_U32, 0), 256);
    ir_bar_arrive(ir_int(IR_U32, 1), 128);
    ir_bar_sync(ir_binary(IR_AND, x, ir_int(IR_U32, 7)), 64);
    finish();
}

static void matrices(ir_target target)
{
    begin("matrices", target);
    val shared = ir_smem_address(ir_smem_alloc("all", 4096, 1024));
    val r[6], d[4];
    for (int n = 1; n <= 4; n *= 2)
        for (int transpose = 0; transpose < 2; transpose++) {
            for (int i = 0; i < 6; i++)
                r[i] = ir_reg(IR_U32);
            ir_ldmatrix(n, transpose, shared, 16, r);
            for (int i = 0; i < n; i++)
                keep(r[i]);
            if (target == IR_SM90A)
                ir_stmatrix(n, transpose, shared, 32, r);
        }
    for (int i = 0; i < 4; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), constant(CKL_F32));
    for (int i = 0; i < 6; i++)
        r[i] = i % 2 ? input(IR_U32) : constant(IR_U32);
    ir_mma(CKL_F16, CKL_F16, d, r, r + 4);
    ir_mma(CKL_BF16, CKL_BF16, d, r, r + 4);
    for (int i = 0; i < 4; i++)
        keep(d[i]);
    finish();
}

static void copies(ir_target target)
{
    begin("copies", target);
    val shared = ir_smem_address(ir_smem_alloc("all", 4096, 1024));
    val bar = ir_smem_address(ir_smem_alloc("bar", 8, 8)), bytes = input(IR_U32);
    ir_mbarrier_init(bar, 0, 1);
    for (int n = 4; n <= 16; n *= 2) {
        ir_cp_async(shared, 16, global, n, ir_int(IR_U32, n));
        ir_cp_async(shared, 32, global, n, bytes);
    }
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_plain(IR_CP_ASYNC_WAIT, 1, 0);
    ir_emit((ir_inst){ .op = IR_CP_ASYNC_ARRIVE }, 0, NULL, 1, &bar);
    ir_mbarrier_arrive(IR_SHARED, bar, 0);
    ir_mbarrier_wait(bar, 0, ir_int(IR_U32, 0));
    keep(ir_mbarrier_test(bar, 0, bytes));
    finish();
}

static void control(ir_target target)
{
    begin("control", target);
    ir_plain(IR_GRID_WAIT, 0, 0);
    val n = input(IR_U32), i = ir_reg(IR_U32), sum = ir_reg(IR_U32), p = input(IR_PRED);
    ir_assign(i, ir_int(IR_U32, 0));
    ir_assign(sum, i);
    ir_loop();
    ir_break(ir_compare(IR_GE, i, n));
    ir_if(p);
    ir_assign(sum, ir_binary(IR_ADD, sum, input(IR_U32)));
    ir_else();
    ir_break(ir_compare(IR_EQ, sum, i));
    ir_assign(sum, ir_binary(IR_XOR, sum, i));
    ir_end_if();
    ir_assign(i, ir_binary(IR_ADD, i, ir_int(IR_U32, 1)));
    ir_end_loop();
    ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0);
    ir_if(p);
    ir_plain(IR_TRAP, 0, 0);
    ir_end_if();
    ir_if(ir_compare(IR_EQ, sum, ir_int(IR_U32, 7)));
    ir_plain(IR_EXIT, 0, 0);
    ir_end_if();
    keep(sum);
    finish();
}

/* What only sm_90a has */

static void tma(ir_target target)
{
    begin("tma", target);
    ir_current()->cluster = 2;
    val map = ir_tensor_map_param("map"), shared = ir_smem_address(ir_smem_alloc("box", 4096, 1024));
    val bar = ir_smem_address(ir_smem_alloc("bar", 16, 8)), mask = input(IR_U32), zero = ir_int(IR_U32, 0), c[5];
    ir_tma_prefetch(map);
    ir_mbarrier_init(bar, 8, 1);
    ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
    for (int n = 1; n <= 5; n++) {
        c[n - 1] = n % 2 ? input(CKL_I32) : ir_int(CKL_I32, 64);
        ir_tma_load(shared, 1024, map, bar, zero, n, c);
        ir_tma_load(shared, 0, map, bar, ir_int(IR_U32, 3), n, c);
        ir_tma_load(shared, 0, map, bar, mask, n, c);
        ir_tma_store(map, shared, 2048, n, c);
        val load[] = { shared, map, bar, n % 2 ? mask : zero, c[0] };
        ir_emit((ir_inst){ .op = IR_TMA_LOAD, .n = 1, .cache = IR_CACHE_EVICT_FIRST }, 0, NULL, 5, load);
        val store[] = { map, shared, c[0] };
        ir_emit((ir_inst){ .op = IR_TMA_STORE, .n = 1, .mode = 1 }, 0, NULL, 3, store);
    }
    ir_bulk_load(shared, 16, global, mask, bar);
    ir_bulk_store(global, shared, 16, ir_int(IR_U32, 256));
    ir_bulk_prefetch(global, mask);
    ir_bulk_prefetch(global, ir_int(IR_U32, 256));
    ir_prefetch(global);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_BULK_COMMIT, 0, 0);
    ir_plain(IR_BULK_WAIT, 1, 1);
    ir_plain(IR_BULK_WAIT, 0, 0);
    ir_mbarrier_expect(bar, 8, ir_int(IR_U32, 4096));
    ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(bar, ir_int(IR_U32, 1)), 8);
    val peer = ir_mapa(shared, ir_int(IR_U32, 1)), peer_bar = ir_mapa(bar, ir_int(IR_U32, 1));
    ir_store_async(peer, 4, peer_bar, input(CKL_F32));
    ir_store_async(peer, 8, peer_bar, input(IR_U64));
    ir_store_async(peer, 16, peer_bar, ir_int(CKL_I32, -7));
    val wait[] = { bar, mask };
    ir_emit((ir_inst){ .op = IR_MBARRIER_WAIT, .scope = IR_SCOPE_CLUSTER }, 0, NULL, 2, wait);
    ir_fence(IR_SCOPE_CLUSTER);
    finish();
}

/* A producer and a consumer warpgroup, which holds the accumulators of a 64 x n tile: no wgmma may be serialised. */
static void wgmma(int n, bool registers_a)
{
    enum { STAGES = 4, K_TILES = 16 };
    begin("wgmma_pipeline", IR_SM90A);
    ir_current()->threads = 256;
    val bars = ir_smem_address(ir_smem_alloc("bars", STAGES * 8, 8));
    val group = ir_binary(IR_SHR, ir_sreg(IR_WARP), ir_int(IR_U32, 2)), d[128], a[4];
    ir_if(ir_compare(IR_EQ, group, ir_int(IR_U32, 0)));
    ir_plain(IR_SETMAXNREG, 40, 0);
    ir_else();
    ir_plain(IR_SETMAXNREG, 232, 1);
    val k = ir_reg(IR_U32), desc = input(IR_U64);
    ir_assign(k, ir_int(IR_U32, 0));
    for (int i = 0; i < 4; i++)
        a[i] = input(IR_U32);
    for (int i = 0; i < n / 2; i++)
        d[i] = ir_reg(CKL_F32);
    ir_loop();
    ir_mbarrier_wait(ir_binary(IR_ADD, bars, ir_binary(IR_SHL, k, ir_int(IR_U32, 3))), 0, ir_int(IR_U32, 0));
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    val accumulate = ir_compare(IR_NE, k, ir_int(IR_U32, 0));
    if (registers_a)
        ir_wgmma_rs(CKL_BF16, CKL_BF16, n, d, a, desc, accumulate, true);
    else
        ir_wgmma(CKL_F16, CKL_F16, n, d, desc, desc, accumulate, false, true);
    if (registers_a)
        ir_wgmma_rs(CKL_BF16, CKL_BF16, n, d, a, desc, ir_int(IR_PRED, 1), false);
    else
        ir_wgmma(CKL_F16, CKL_F16, n, d, desc, desc, ir_int(IR_PRED, 1), true, false);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 1, 0);
    ir_assign(k, ir_binary(IR_ADD, k, ir_int(IR_U32, 1)));
    ir_break(ir_compare(IR_EQ, k, ir_int(IR_U32, K_TILES)));
    ir_end_loop();
    ir_plain(IR_WGMMA_WAIT, 0, 0);
    for (int i = 0; i < n / 2; i++)
        keep(d[i]);
    ir_end_if();
    finish();
}

/* The tests */

static void test_portable(void **unused)
{
    static void (*const kernels[])(ir_target) = { arithmetic,  special_registers, memory, atomics, strong,
                                                  cooperation, matrices,          copies, control };
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        kernels[i](IR_SM80);
        kernels[i](IR_SM90A);
    }
}

static void test_sm90(void **unused)
{
    tma(IR_SM90A);
    for (int n = 8; n <= 256; n += getenv("CKL_TEST_FULL") ? 8 : 48)
        wgmma(n, n % 32 == 24);
}

static void test_every_op_was_printed(void **unused)
{
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (!seen[op])
            fail_msg("%s is in no kernel", ir_op_text((ir_op)op));
}

/* A number that is no mode has no text. */
static void test_no_mode(void **unused)
{
    for (int op = 0; op < IR_OP_COUNT; op++) {
        assert_string_equal(ptx_mode_text((ir_op)op, -1), "");
        assert_string_equal(ptx_mode_text((ir_op)op, IR_SREG_COUNT), "");
    }
}

int main(void)
{
    look_for_ptxas();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_portable),
        cmocka_unit_test(test_no_mode),
        cmocka_unit_test(test_sm90),
        cmocka_unit_test(test_every_op_was_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
