/*
 * unit_ptx_rows.c - what every row of the printer's table prints, line by line as committed in tests/data/ptx_rows.txt:
 * the instruction as IR, then its PTX; for sm_80 once more where it differs. --update writes the file anew, for the
 * reader of the diff to judge.
 */
#include "ptx_lines.h"

#include "golden.h"
#include "lab/assemble.h"

static const char golden_file[] = TESTDATA "/ptx_rows.txt";

/* Arithmetic, from the rules of the IR */

static bool is_f8(ir_type type)
{
    return type == CKL_E4M3 || type == CKL_E5M2;
}

static bool is_half(ir_type type)
{
    return type == CKL_F16 || type == CKL_BF16;
}

/* What the table has no row for, because no kernel needs it. */
static bool is_absent(ir_op op, ir_type type, ir_type from)
{
    if (op == IR_CONVERT && ir_type_is_pair(type))
        return !is_f8(from);
    if (op == IR_CONVERT && (is_f8(type) || is_f8(from)))
        return !(is_half(type) || is_half(from) || type == CKL_F32 || from == CKL_F32);
    if (op == IR_CONVERT)
        return type == from;
    if (op == IR_BITCAST)
        return type == from || ir_type_bytes(type) != ir_type_bytes(from);
    if (op != IR_PACK && op != IR_UNPACK)
        return false;
    ir_type whole = op == IR_PACK ? type : from, part = op == IR_PACK ? from : type;
    if (ir_type_is_pair(whole))
        return part != CKL_F32 && !is_half(part) && !(op == IR_UNPACK && ir_type_bytes(part) == 2);
    return ir_type_bytes(whole) != 2 * ir_type_bytes(part) || part == CKL_F32;
}

static ir_type letter_type(char letter, ir_type type, ir_type from)
{
    return letter == 't' || letter == 'c' ? type : letter == 'f' ? from : letter == 'p' ? IR_PRED : IR_U32;
}

static val constant(ir_type type)
{
    if (type == IR_PRED)
        return ir_int(IR_PRED, 1);
    return ir_type_is_float(type) && !ir_type_is_pair(type) ? ir_float(type, -1.5) : ir_int(type, 5);
}

typedef enum sources { REGISTERS, LAST_CONSTANT, ALL_CONSTANTS } sources;

/* Emits an op by its rule. What must be a constant is one always. */
static void by_rule(ir_op op, ir_type type, ir_type from, int mode, sources of)
{
    val out[2], in[3];
    int out_count = 0, in_count = 0;
    const char *at = ir_rule_of(op)->operands;
    for (; *at != ':'; at++)
        out[out_count++] = reg(letter_type(*at, type, from));
    for (at++; *at; at++, in_count++) {
        ir_type t = letter_type(*at, type, from);
        in[in_count] = *at == 'c'                                               ? ir_int(t, 4 + in_count)
                       : of == ALL_CONSTANTS || (of == LAST_CONSTANT && !at[1]) ? constant(t)
                                                                                : reg(t);
    }
    emit((ir_inst){ .op = op, .type = type, .from = from, .mode = mode }, out_count, out, in_count, in);
}

static int modes_of(ir_op op, ir_type type)
{
    if (op == IR_COMPARE)
        return IR_GE + 1;
    bool two = ((op == IR_MIN || op == IR_MAX) && ir_type_is_float(type)) || op == IR_EX2 || op == IR_RCP_APPROX;
    return two ? 2 : 1;
}

static void arithmetic_of(ir_op op, ir_type type, ir_type from)
{
    bool shown = (op == IR_MOV || op == IR_ADD || op == IR_SELECT) && type != IR_PRED;
    for (int mode = 0; mode < modes_of(op, type); mode++) {
        LINE((by_rule(op, type, from, mode, REGISTERS), 0));
        if (shown)
            LINE((by_rule(op, type, from, mode, LAST_CONSTANT), 0));
        listed = false;
        LINE((by_rule(op, type, from, mode, ALL_CONSTANTS), 0));
        listed = true;
    }
}

static void arithmetic(void)
{
    for (int op = IR_MOV; op <= IR_COS; op++) {
        const ir_rule *rule = ir_rule_of((ir_op)op);
        for (int type = 0; type < IR_TYPE_COUNT; type++)
            for (int from = 0; from < IR_TYPE_COUNT; from++)
                if ((rule->types & TYPE_SET(type)) && (rule->from ? rule->from & TYPE_SET(from) : from == 0) &&
                    !is_absent((ir_op)op, (ir_type)type, (ir_type)from))
                    arithmetic_of((ir_op)op, (ir_type)type, (ir_type)from);
    }
}

static void special(void)
{
    for (int i = 0; i < IR_SREG_COUNT; i++)
        LINE(ir_sreg((ir_sreg_kind)i));
    for (int type = 1; type < IR_TYPE_COUNT; type++)
        if (ir_rule_of(IR_PARAM)->types & TYPE_SET(type))
            LINE(ir_scalar_param((ir_type)type, "scalar"));
    LINE(ir_tensor_map_param("map"));
}

/* Memory */

static void load(ir_space space, ir_cache cache, ir_type type, int n, int64_t offset)
{
    val v[4];
    for (int i = 0; i < n; i++)
        v[i] = reg(type);
    ir_load(space, cache, type, n, reg(space == IR_GLOBAL ? IR_U64 : IR_U32), offset, v);
}

static void store(ir_space space, ir_cache cache, ir_type type, int n, int64_t offset)
{
    val v[4], address = reg(space == IR_GLOBAL ? IR_U64 : IR_U32);
    for (int i = 0; i < n; i++)
        v[i] = i == 1 ? constant(type) : reg(type);
    ir_store(space, cache, type, n, address, offset, v);
}

static void memory(void)
{
    for (int type = 1; type < IR_TYPE_COUNT; type++)
        for (int n = 1; n <= 4 && n * ir_memory_bytes((ir_type)type) <= 16 && ir_rule_of(IR_LD)->types & TYPE_SET(type);
             n *= 2) {
            LINE((load(IR_GLOBAL, IR_CACHE_DEFAULT, (ir_type)type, n, 0), 0));
            LINE((store(IR_GLOBAL, IR_CACHE_DEFAULT, (ir_type)type, n, 0), 0));
        }
    for (int cache = IR_CACHE_DEFAULT; cache <= IR_CACHE_READONLY; cache++) {
        LINE((load(IR_GLOBAL, (ir_cache)cache, IR_U32, 2, -16), 0));
        LINE((load(IR_SHARED, (ir_cache)cache, CKL_F32, 1, 16), 0));
        LINE((load(IR_SHARED_CLUSTER, (ir_cache)cache, CKL_F16, 4, 16), 0));
        if (cache == IR_CACHE_READONLY)
            break;
        LINE((store(IR_GLOBAL, (ir_cache)cache, IR_U64, 1, 8), 0));
        LINE((store(IR_SHARED, (ir_cache)cache, IR_F16X2, 1, -4), 0));
        LINE((store(IR_SHARED_CLUSTER, (ir_cache)cache, CKL_U8, 1, 1), 0));
    }
}

static void atomics(void)
{
    for (int op = IR_RED_ADD; op <= IR_RED_EXCH; op++)
        for (int t = 1; t < IR_TYPE_COUNT; t++) {
            ir_type type = (ir_type)t;
            ir_reduction how = (ir_reduction)op;
            const bool has_float = how == IR_RED_ADD || how == IR_RED_EXCH;
            if (!(ir_rule_of(IR_ATOM)->types & TYPE_SET(type)) || (type == CKL_F32 && !has_float))
                continue;
            LINE((MAKE(IR_U64, type, type), ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, how, a, 8, b)));
            if (op <= IR_RED_OR)
                LINE((MAKE(IR_U64, type), ir_reduce(IR_SCOPE_CTA, how, a, 0, b), 0));
        }
    LINE((MAKE(IR_U64, CKL_I64), ir_reduce(IR_SCOPE_GPU, IR_RED_MAX, a, -8, b), 0));
    LINE((MAKE(IR_U32, IR_U32, CKL_F32), ir_store_async(a, 4, b, c), 0));
    LINE((MAKE(IR_U32, IR_U32), ir_store_async(a, 8, b, ir_int(IR_U64, -7)), 0));
}

/* Accesses with an order, and what the system's scope adds to fences. */
static void strong(void)
{
    for (int scope = IR_SCOPE_CTA; scope <= IR_SCOPE_SYS; scope++) {
        ir_scope at = (ir_scope)scope;
        for (int order = IR_ORDER_RELAXED; order <= IR_ORDER_ACQ_REL; order++)
            LINE((MAKE(IR_U64, IR_U32), ir_atomic((ir_order)order, at, IR_RED_EXCH, a, 8, b)));
        LINE((MAKE(IR_U64), ir_load_strong(IR_ORDER_RELAXED, at, IR_U64, a, 0)));
        LINE((MAKE(IR_U64), ir_load_strong(IR_ORDER_ACQUIRE, at, CKL_F32, a, 8)));
        LINE((MAKE(IR_U64), ir_store_strong(IR_ORDER_RELAXED, at, IR_U32, a, -4, u32(1)), 0));
        LINE((MAKE(IR_U64, CKL_F16), ir_store_strong(IR_ORDER_RELEASE, at, CKL_F16, a, 0, b), 0));
    }
    LINE((MAKE(IR_U64, IR_U32), ir_atomic(IR_ORDER_ACQ_REL, IR_SCOPE_GPU, IR_RED_ADD, a, 0, b)));
    LINE((ir_fence(IR_SCOPE_SYS), 0));
    LINE((ir_plain(IR_FENCE_PROXY_ASYNC, 0, 1), 0));
}

static void plain(ir_op op, int n, int mode)
{
    LINE((ir_plain(op, n, mode), 0));
}

static void fences(void)
{
    LINE((ir_fence(IR_SCOPE_CTA), 0));
    LINE((ir_fence(IR_SCOPE_CLUSTER), 0));
    LINE((ir_fence(IR_SCOPE_GPU), 0));
    static const ir_op ops[] = {
        IR_FENCE_PROXY_ASYNC, IR_FENCE_MBARRIER_INIT, IR_CP_ASYNC_COMMIT, IR_BULK_COMMIT,  IR_CLUSTER_ARRIVE,
        IR_CLUSTER_WAIT,      IR_WARP_SYNC,           IR_WGMMA_FENCE,     IR_WGMMA_COMMIT, IR_EXIT,
        IR_GRID_WAIT,         IR_LAUNCH_DEPENDENTS
    };
    for (int i = 0; i < COUNT_OF(ops); i++)
        plain(ops[i], 0, 0);
    plain(IR_CP_ASYNC_WAIT, 2, 0);
    plain(IR_BULK_WAIT, 3, 0);
    plain(IR_BULK_WAIT, 3, 1);
    plain(IR_WGMMA_WAIT, 1, 0);
    plain(IR_SETMAXNREG, 40, 0);
    plain(IR_SETMAXNREG, 232, 1);
}

/* Copies */

static void tma(bool store, int rank, ir_cache cache, int mode, val mask)
{
    val in[12] = { 0 };
    int count = 0;
    in[count++] = reg(store ? IR_U64 : IR_U32);
    in[count++] = reg(store ? IR_U32 : IR_U64);
    if (!store) {
        in[count++] = reg(IR_U32);
        in[count++] = mask;
    }
    for (int i = 0; !store && mode == 1 && i < rank - 2; i++) // offsets of im2col mode
        in[count++] = i == 1 ? u32(3) : reg(IR_U32);
    for (int i = 0; i < rank; i++)
        in[count++] = i == 1 ? ir_int(CKL_I32, -3) : reg(CKL_I32);
    emit((ir_inst){ .op = store ? IR_TMA_STORE : IR_TMA_LOAD, .n = rank, .cache = cache, .mode = mode, .offset = 1024 },
         0, NULL, count, in);
}

static void copies(void)
{
    for (int bytes = 4; bytes <= 16; bytes *= 2) {
        LINE((MAKE(IR_U32, IR_U64), ir_cp_async(a, 16, b, bytes, u32(bytes)), 0));
        LINE((MAKE(IR_U32, IR_U64, IR_U32), ir_cp_async(a, 0, b, bytes, c), 0));
    }
    LINE((MAKE(IR_U32, IR_U64), ir_cp_async_alone(a, 16, b, 16, u32(16)), 0));
    LINE((MAKE(IR_U32, IR_U64, IR_U32, IR_U32), ir_bulk_load(a, 16, b, c, d), 0));
    LINE((MAKE(IR_U64, IR_U32), ir_bulk_store(a, b, 16, u32(256)), 0));
    LINE((MAKE(IR_U64), ir_bulk_prefetch(a, u32(256)), 0));
    LINE((MAKE(IR_U64), ir_prefetch(a), 0));
    LINE((MAKE(IR_U64), ir_discard(a), 0));
    LINE((MAKE(IR_U64), ir_tma_prefetch(a), 0));
    for (int rank = 1; rank <= 5; rank++) {
        LINE((tma(false, rank, IR_CACHE_DEFAULT, 0, u32(0)), 0));
        LINE((tma(true, rank, IR_CACHE_DEFAULT, 0, u32(0)), 0));
        LINE((tma(true, rank, IR_CACHE_DEFAULT, 1, u32(0)), 0));
    }
    for (int rank = 3; rank <= 5; rank++) {
        LINE((tma(false, rank, IR_CACHE_DEFAULT, 1, u32(0)), 0));
        LINE((tma(false, rank, IR_CACHE_EVICT_LAST, 1, reg(IR_U32)), 0));
    }
    for (int cache = IR_CACHE_DEFAULT; cache <= IR_CACHE_EVICT_LAST; cache++) {
        LINE((tma(false, 2, (ir_cache)cache, 0, u32(3)), 0));
        LINE((tma(false, 2, (ir_cache)cache, 0, reg(IR_U32)), 0));
        LINE((tma(false, 2, (ir_cache)cache, 0, u32(0)), 0));
    }
}

static void wait_at(ir_scope scope, val parity)
{
    MAKE(IR_U32);
    const val in[] = { a, parity };
    emit((ir_inst){ .op = IR_MBARRIER_WAIT, .scope = scope, .offset = 8 }, 0, NULL, 2, in);
}

static void mbarriers(void)
{
    LINE((MAKE(IR_U32), ir_mbarrier_init(a, 8, 128), 0));
    LINE((MAKE(IR_U32), ir_mbarrier_arrive(IR_SHARED, a, 8), 0));
    LINE((MAKE(IR_U32), ir_mbarrier_arrive(IR_SHARED_CLUSTER, a, 8), 0));
    LINE((MAKE(IR_U32), ir_mbarrier_expect(a, 8, u32(4096)), 0));
    LINE((MAKE(IR_U32, IR_U32), ir_mbarrier_expect(a, 0, b), 0));
    LINE((wait_at(IR_SCOPE_CTA, reg(IR_U32)), 0));
    LINE((wait_at(IR_SCOPE_CLUSTER, u32(1)), 0));
}

/* Threads together */

static void cooperation(void)
{
    for (int how = IR_SHFL_IDX; how <= IR_SHFL_XOR; how++)
        for (int known = 0; known < 2; known++)
            LINE((MAKE(CKL_F32, IR_U32), ir_shuffle((ir_shuffle_kind)how, a, known ? u32(1) : b)));
    LINE((MAKE(IR_BF16X2), ir_shuffle(IR_SHFL_XOR, a, u32(16))));
    for (int how = IR_VOTE_ANY; how <= IR_VOTE_BALLOT; how++)
        LINE((MAKE(IR_PRED), ir_vote((ir_vote_kind)how, a)));
    for (int how = IR_RED_ADD; how <= IR_RED_OR; how++) {
        LINE((MAKE(IR_U32), ir_redux((ir_reduction)how, a)));
        LINE((MAKE(CKL_I32), ir_redux((ir_reduction)how, a)));
    }
    LINE(ir_elect());
    LINE((ir_bar_sync(u32(3), 96), 0));
    LINE((MAKE(IR_U32), ir_bar_sync(a, 256), 0));
    LINE((ir_bar_arrive(u32(3), 96), 0));
    LINE((MAKE(IR_U32), ir_mapa(a, u32(1))));
    LINE((MAKE(IR_U32, IR_U32), ir_mapa(a, b)));
}

/* Matrices */

static void registers(int count, ir_type type, val *v)
{
    for (int i = 0; i < count; i++)
        v[i] = reg(type);
}

static void move_matrices(bool store, int n, bool transpose)
{
    val v[4], address = reg(IR_U32);
    registers(n, IR_U32, v);
    if (store)
        ir_stmatrix(n, transpose, address, 32, v);
    else
        ir_ldmatrix(n, transpose, address, 32, v);
}

static ir_type sum_of(ir_type from)
{
    return ir_type_is_float(from) ? CKL_F32 : CKL_I32;
}

static void mma(ir_type from, ir_type from_b)
{
    val sum[4], left[4], right[2];
    registers(4, sum_of(from), sum);
    registers(4, IR_U32, left);
    registers(2, IR_U32, right);
    left[0] = right[1] = constant(IR_U32);
    ir_mma(from, from_b, sum, left, right);
}

static void wgmma_of(ir_type from, ir_type from_b, int n, bool in_registers, bool a_m_major, bool b_n_major, val scale)
{
    val sum[128], left[4];
    registers(n / 2, sum_of(from), sum);
    registers(4, IR_U32, left);
    MAKE(IR_U64, IR_U64);
    if (in_registers)
        ir_wgmma_rs(from, from_b, n, sum, left, a, scale, b_n_major);
    else
        ir_wgmma(from, from_b, n, sum, a, b, scale, a_m_major, b_n_major);
}

static void wgmma(ir_type from, int n, bool in_registers, bool a_m_major, bool b_n_major, val scale)
{
    wgmma_of(from, from, n, in_registers, a_m_major, b_n_major, scale);
}

/* The rows of operands that are not 16 bits wide. */
static void other_widths(void)
{
    static const ir_type pairs[][2] = { { CKL_F32, CKL_F32 },   { CKL_E4M3, CKL_E4M3 }, { CKL_E4M3, CKL_E5M2 },
                                        { CKL_E5M2, CKL_E4M3 }, { CKL_E5M2, CKL_E5M2 }, { CKL_I8, CKL_I8 },
                                        { CKL_U8, CKL_U8 } };
    for (int i = 0; i < COUNT_OF(pairs); i++) {
        for (int registers = 0; registers < 2; registers++)
            LINE((wgmma_of(pairs[i][0], pairs[i][1], 16, registers, false, false, reg(IR_PRED)), 0));
        if (!(pairs[i][0] == CKL_E4M3 || pairs[i][0] == CKL_E5M2))
            LINE((mma(pairs[i][0], pairs[i][1]), 0));
    }
}

static void matrices(void)
{
    for (int n = 1; n <= 4; n *= 2)
        for (int transpose = 0; transpose < 2; transpose++) {
            LINE((move_matrices(false, n, transpose), 0));
            LINE((move_matrices(true, n, transpose), 0));
        }
    for (int bf16 = 0; bf16 < 2; bf16++) {
        ir_type from = bf16 ? CKL_BF16 : CKL_F16;
        LINE((mma(from, from), 0));
        for (int major = 0; major < 4; major++)
            LINE((wgmma(from, 8, false, major & 1, major & 2, reg(IR_PRED)), 0));
        for (int major = 0; major < 2; major++)
            LINE((wgmma(from, 16, true, false, major, reg(IR_PRED)), 0));
    }
    LINE((wgmma(CKL_F16, 8, false, false, false, ir_int(IR_PRED, 0)), 0));
    LINE((wgmma(CKL_F16, 8, true, false, false, ir_int(IR_PRED, 1)), 0));
    other_widths();
}

/* A whole kernel: its frame, its control flow, statements under a predicate. */

static void whole_kernel(ir_target target)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("frame", target);
    ir_current()->threads = 96;
    ir_current()->ctas_per_sm = target == IR_SM80 ? 3 : 0;
    ir_current()->note = "a note";
    ir_smem_alloc("all", 64, 16);
    ir_at("first.c", 7);
    val x = ir_scalar_param(IR_U64, "x"), n = ir_scalar_param(CKL_I32, "n"), i = reg(CKL_I32), v = reg(CKL_F32);
    if (target == IR_SM90A)
        ir_tma_prefetch(ir_tensor_map_param("map"));
    ir_assign(i, ir_int(CKL_I32, 0));
    ir_loop();
    ir_break(ir_compare(IR_GE, i, n));
    ir_at("second.c", 9);
    ir_if(ir_compare(IR_EQ, i, ir_int(CKL_I32, 2)));
    ir_load(IR_GLOBAL, IR_CACHE_EVICT_FIRST, CKL_F32, 1, x, 4, &v);
    ir_end_if();
    ir_if(ir_vote(IR_VOTE_ANY, ir_compare(IR_LT, i, ir_int(CKL_I32, 3))));
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_else();
    ir_break(ir_compare(IR_NE, n, i));
    ir_end_if();
    ir_assign(i, ir_binary(IR_ADD, i, ir_int(CKL_I32, 1)));
    ir_end_loop();
    assert_ok(ir_describe_end(&kernel));
    assert_ok(ir_print_ptx(kernel, &golden));
    ir_kernel_free(kernel);
}

/* The tests */

static int make_golden(void **state)
{
    static void (*const sections[])(void) = { arithmetic, special, memory,    atomics,     strong,
                                              fences,     copies,  mbarriers, cooperation, matrices };
    for (int i = 0; i < COUNT_OF(sections); i++)
        sections[i]();
    whole_kernel(IR_SM90A);
    whole_kernel(IR_SM80);
    return 0;
}

static int free_golden(void **state)
{
    text_free(&golden);
    text_free(&last_body);
    text_free(&modules[IR_SM80]);
    text_free(&modules[IR_SM90A]);
    return 0;
}

TEST(every_line_is_as_committed)
{
    golden_compare(golden_file, &golden);
}

/* All lines in one kernel each, whose registers were never written; ptxas looks at the syntax all the same. */
static void assemble(ir_target target)
{
    static const char registers[] =
        ".reg .pred %%p<16>, %%cp<4>, %%tp<2>; .reg .b16 %%h<16>, %%ch<4>, %%th<2>;\n"
        ".reg .b32 %%r<16>, %%cr<4>, %%tr<2>; .reg .b64 %%d<16>, %%cd<4>;\n"
        ".reg .f32 %%f<16>, %%cf<4>, %%tf<2>;\n"
        ".reg .b32 %%uniform_warp; .reg .b64 %%evict_first, %%evict_last; .reg .b16 %%o<3>;\n";
    char path[] = "/tmp/unit_ptx_rows_XXXXXX", command[512];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fprintf(file, ".version 8.3\n.target %s\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n",
            target == IR_SM80 ? "sm_80" : "sm_90a");
    fprintf(file, ".visible .entry rows()\n.maxntid 256, 1, 1\n.minnctapersm 1\n{\n");
    fprintf(file, registers);
    fprintf(file, "%sret;\n}\n", text_data(&modules[target]));
    fclose(file);
    snprintf(command, sizeof command, "%s -arch=%s -o /dev/null %s", assemble_tool(),
             target == IR_SM80 ? "sm_80" : "sm_90a", path);
    int status = system(command);
    unlink(path);
    assert_int_equal(status, 0);
}

TEST(every_line_assembles)
{
    if (!assemble_tool()) {
        print_message("skipped: nothing is assembled, ptxas is not installed\n");
        skip();
    }
    assemble(IR_SM80);
    assemble(IR_SM90A);
}

TEST(every_row_was_printed)
{
    for (int op = 0; op < IR_OP_COUNT; op++) {
        const ptx_row *rows = ptx_rows((ir_op)op);
        for (int i = 0; rows && rows[i].text; i++)
            if (!printed[op][i])
                fail_msg("row %d of %s is in no line: %s", i, ir_op_text((ir_op)op), rows[i].text);
    }
}

/* A number that is no mode has no text. */
TEST(no_mode)
{
    for (int op = 0; op < IR_OP_COUNT; op++) {
        assert_string_equal(ptx_mode_text((ir_op)op, -1), "");
        assert_string_equal(ptx_mode_text((ir_op)op, IR_SREG_COUNT), "");
    }
}

int main(int argc, char **argv)
{
    if (golden_update_wanted(argc, argv))
        return make_golden(NULL) || !golden_write(golden_file, &golden) || free_golden(NULL);
    return run_enlisted(make_golden, free_golden);
}
