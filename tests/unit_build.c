/* unit_build.c - the builder folds constants, shares equal arithmetic and names what is wrong; kernels for people. */
#include "unit.h"
#include "base/math.h"
#include "device/device.h"
#include "ir/build.h"
#include "ir/ptx_rows.h"
#include "ir/rules.h"
#include "ir_blocks.h"

TEST(folding)
{
    ir_describe_begin("folding", IR_SM80);
    assert_true(ir_is_int(ir_binary(IR_ADD, u32(0xffffffff), u32(2)), 1));
    assert_true(ir_is_int(ir_binary(IR_SHR, ir_int(CKL_I32, -8), u32(1)), -4));
    assert_true(ir_is_int(ir_binary(IR_DIV, ir_int(CKL_I32, -7), ir_int(CKL_I32, 2)), -3));
    assert_true(ir_is_int(ir_compare(IR_LT, u32(3), u32(4)), 1));
    assert_true(ir_is_int(ir_select(ir_int(IR_PRED, 0), u32(5), u32(6)), 6));
    val x = unknown(IR_U32);
    assert_int_equal(ir_binary(IR_MUL, x, u32(1)).reg, x.reg);
    assert_int_equal(ir_binary(IR_ADD, u32(0), x).reg, x.reg);
    assert_true(ir_is_int(ir_binary(IR_AND, x, u32(0)), 0));
    assert_int_equal(ir_current()->inst_count, 1);
    assert_ok(ir_describe_end(NULL));
}

/* An AND_OR has one register: of two that are equal, as x and max(x, x), ptxas 13.0 makes another function. */
TEST(and_or)
{
    ir_describe_begin("and_or", IR_SM80);
    val x = unknown(IR_U32), y = ir_scalar_param(IR_U32, "y");
    assert_int_equal(ir_maker(ir_and_or(x, u32(7), u32(7)))->op, IR_AND_OR);
    assert_int_equal(ir_maker(ir_and_or(x, y, u32(7)))->op, IR_OR);
    assert_int_equal(ir_maker(ir_and_or(x, u32(7), y))->op, IR_OR);
    assert_true(ir_is_int(ir_and_or(u32(12), u32(6), u32(1)), 5));
    assert_ok(ir_describe_end(NULL));
}

/* Equal arithmetic is written once, but not on registers that change, not after control flow, and only if asked for. */
TEST(sharing)
{
    ir_describe_begin("sharing", IR_SM80);
    val x = unknown(IR_U32), variable = ir_reg(IR_U32);
    ir_assign(variable, x);
    assert_int_not_equal(ir_binary(IR_ADD, x, u32(5)).reg, ir_binary(IR_ADD, x, u32(5)).reg);
    ir_share_begin();
    val sum = ir_binary(IR_ADD, x, u32(5));
    assert_int_equal(ir_binary(IR_ADD, x, u32(5)).reg, sum.reg);
    assert_int_equal(ir_unary(IR_NOT, sum).reg, ir_unary(IR_NOT, sum).reg);
    assert_int_not_equal(ir_binary(IR_ADD, x, u32(6)).reg, sum.reg);
    assert_int_not_equal(ir_binary(IR_SUB, x, u32(5)).reg, sum.reg);
    assert_int_not_equal(ir_binary(IR_ADD, variable, u32(5)).reg, ir_binary(IR_ADD, variable, u32(5)).reg);
    ir_if(ir_compare(IR_LT, x, u32(3)));
    assert_int_not_equal(ir_binary(IR_ADD, x, u32(5)).reg, sum.reg);
    ir_end_if();
    ir_share_end();
    assert_int_not_equal(ir_binary(IR_ADD, x, u32(5)).reg, sum.reg);
    assert_ok(ir_describe_end(NULL));
}

/* A quarter of the table's places: each is known, whichever meet in one. */
TEST(sharing_of_a_thousand)
{
    val sums[1000];
    ir_describe_begin("sharing", IR_SM80);
    const val x = unknown(IR_U32);
    ir_share_begin();
    for (int i = 0; i < COUNT_OF(sums); i++)
        sums[i] = ir_binary(IR_ADD, x, u32(7 + i));
    for (int i = 0; i < COUNT_OF(sums); i++)
        assert_int_equal(ir_binary(IR_ADD, x, u32(7 + i)).reg, sums[i].reg);
    ir_share_end();
    assert_ok(ir_describe_end(NULL));
}

/* Layouts are evaluated without a kernel: nothing is left for run time. */
TEST(no_kernel)
{
    ir_describe_begin(NULL, IR_SM80);
    assert_true(ir_is_int(ir_binary(IR_ADD, u32(2), u32(3)), 5));
    ir_sreg(IR_TID_X);
    assert_fails(ir_describe_end(NULL), CKL_INVALID,
                 "a static value was expected: there is no kernel to compute sreg in");
}

/* Far more than the table of known instructions has places: what meets another in its place is not taken for it. */
TEST(sharing_of_many)
{
    static const ir_compare_kind kinds[] = { IR_EQ, IR_NE, IR_LT, IR_LE, IR_GT, IR_GE };
    static const ir_op ops[] = { IR_ADD, IR_SUB, IR_XOR, IR_DIV };
    enum { CONSTANTS = 1500, RESULTS = 2 * COUNT_OF(ops) + COUNT_OF(kinds) };
    val z[RESULTS];
    ir_describe_begin("sharing", IR_SM80);
    const val from[] = { unknown(IR_U32), unknown(CKL_I32) };
    int last = 0;
    ir_share_begin();
    for (int c = 5; c < CONSTANTS; c++)
        for (int s = 0; s < COUNT_OF(from); s++) {
            const val x = from[s], y = ir_int(x.type, 2 * c + 1);
            int count = 0;
            for (int i = 0; i < COUNT_OF(ops); i++) {
                z[count] = ir_binary(ops[i], x, y);
                z[count + 1] = ir_unary(IR_NOT, z[count]);
                count += 2;
            }
            for (int i = 0; i < COUNT_OF(kinds); i++)
                z[count++] = ir_compare(kinds[i], x, y);
            for (int i = 0; i < count; i++) {
                assert_true(z[i].reg > last);
                last = z[i].reg;
            }
        }
    assert_int_equal(ir_compare(IR_GE, from[1], ir_int(CKL_I32, 2 * CONSTANTS - 1)).reg, last);
    ir_share_end();
    assert_ok(ir_describe_end(NULL));
}

/* A loop of C without bound ends in a sentence, not in a kernel that nobody can assemble. */
TEST(length)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("long", IR_SM80);
    ir_at("long.c", 7);
    for (int64_t i = 0; i < 1 << 20 && !ir_failed(); i++)
        ir_plain(IR_WARP_SYNC, 0, 0);
    assert_fails_with(ir_describe_end(&kernel), CKL_INTERNAL,
                      "long.c:7: the kernel has grown to 65536 instructions: a loop of C should be one of the kernel");
    ir_kernel_free(kernel);
}

/* The innermost block that is open says so, at its line. */
TEST(no_end)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("open", IR_SM80);
    ir_at("open.c", 3);
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_TID_X), ir_u32(1)));
    ir_at("open.c", 4);
    ir_loop();
    assert_fails(ir_describe_end(&kernel), CKL_INTERNAL, "open.c:4: loop has no end");
    ir_kernel_free(kernel);
}

TEST(names)
{
    assert_string_equal(ir_op_text(IR_WGMMA), "wgmma");
    assert_string_equal(ir_op_text(IR_OP_COUNT), "no op");
    assert_int_equal(ir_op_class(IR_OP_COUNT), IR_CONTROL);
    assert_string_equal(ir_class_text(ir_op_class(IR_WGMMA)), "tensor");
    assert_string_equal(ir_type_text(IR_BF16X2), "bf16x2");
    assert_int_equal(ir_type_bytes(CKL_E4M3), 2);
    assert_int_equal(ir_type_bytes(IR_U64), 8);
    for (int type = 1; type < IR_TYPE_COUNT; type++) {
        const ir_type t = (ir_type)type;
        assert_true(ir_type_bytes(t) > 0);
        assert_int_equal(ir_type_is_signed(t), t == CKL_I64 || t == CKL_I32 || t == CKL_I16 || t == CKL_I8);
        assert_int_equal(ir_type_is_pair(t), t == IR_F16X2 || t == IR_BF16X2);
    }
    for (int beyond = 0; beyond < 2; beyond++) { // what is no number of the tables has its answer, too
        assert_string_equal(ir_op_text((ir_op)(IR_OP_COUNT + beyond)), "no op");
        assert_int_equal(ir_op_class((ir_op)(IR_OP_COUNT + beyond)), IR_CONTROL);
        assert_ptr_equal(ir_rule_of((ir_op)(IR_OP_COUNT + beyond)), ir_rule_of(IR_MOV));
        assert_string_equal(ir_class_text((ir_class)(IR_CLASS_COUNT + beyond)), "no class");
        assert_ptr_equal(ir_type_text((ir_type)(IR_TYPE_COUNT + beyond)), ir_type_text((ir_type)CKL_DTYPE_DEFAULT));
    }
    assert_string_equal(ptx_mode_text((ir_op)(IR_SREG + 1), -1), ""); // before a row of modes the last of another one
    assert_string_equal(ptx_mode_text((ir_op)(IR_COMPARE - 1), IR_SREG_COUNT), "");
}

/* A kernel keeps the names that it is given, whatever becomes of their memory. */
TEST(names_are_copied)
{
    char name[] = "before";
    ir_kernel *kernel = NULL;
    ir_describe_begin(name, IR_SM80);
    ir_scalar_param(IR_U32, name);
    ir_add_ring(name, ir_smem_alloc(name, 8, 8), 8, 1);
    memset(name, 'x', strlen(name));
    assert_ok(ir_describe_end(&kernel));
    assert_string_equal(kernel->name, "before");
    assert_string_equal(kernel->params[0].name, "before");
    assert_string_equal(kernel->smem[0].name, "before");
    assert_string_equal(kernel->rings[0].name, "before");
    ir_kernel_free(kernel);
}

/* Something of each: parameters, shared memory, blocks, constants, lists of registers, attributes, lines. */
static void describe_listing(void)
{
    ir_current()->threads = 128;
    ir_current()->cluster = 2;
    ir_current()->note = "for people";
    ir_smem_alloc("tile", 64, 16);
    ir_smem_alloc("again", 32, 16);
    val x[4], n = ir_scalar_param(IR_U32, "n");
    ir_tensor_map_param("map");
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, CKL_F32, 4, n, 16,
            (val[]){ x[0] = ir_reg(CKL_F32), x[1] = ir_reg(CKL_F32), x[2] = ir_reg(CKL_F32), x[3] = ir_reg(CKL_F32) });
    ir_at("kernel.c", 7);
    ir_if(ir_compare(IR_LT, n, u32(9)));
    ir_loop();
    ir_break(ir_compare(IR_EQ, n, u32(1)));
    ir_end_loop();
    ir_else();
    val kept[] = { x[3], ir_float(CKL_F32, 0.1), x[0], x[1] };
    ir_store(IR_GLOBAL, IR_CACHE_EVICT_LAST, CKL_F32, 4, ir_int(IR_U64, -16), 0, kept);
    ir_end_if();
    ir_at("kernel.c", 0);
    ir_convert(CKL_I64, x[2]);
}

/* Cuts "   ; kernel.c:7" off each line; it must begin in column 90. */
static void drop_locations(char *listing)
{
    char *to = listing;
    for (char *line = listing, *end; (end = strchr(line, '\n')); line = end + 1) {
        char *comment = strstr(line, "; kernel.c:7\n"), *stop = comment && comment < end ? comment : end;
        assert_true(stop == end || stop - line == 90);
        while (stop > line && stop[-1] == ' ')
            stop--;
        memmove(to, line, (size_t)(stop - line));
        to += stop - line;
        *to++ = '\n';
    }
    *to = '\0';
}

TEST(print)
{
    static const char *const listing = "kernel printed for sm_90a: for people\n"
                                       "128 threads, clusters of 2, 96 bytes of shared memory\n"
                                       "param 0 n: u32\n"
                                       "param 1 map: tensor map\n"
                                       "smem 0 tile: 64 bytes\n"
                                       "smem 64 again: 32 bytes\n"
                                       "    %0:u32 = param.u32\n"
                                       "    %1:u64 = param.u64 n=1\n"
                                       "    %2..%5:f32 = ld.shared.f32 n=4 offset=16 %0\n"
                                       "    %6:pred = compare.u32 mode=2 %0, 9\n"
                                       "    if.pred %6\n"
                                       "        loop\n"
                                       "            %7:pred = compare.u32 %0, 1\n"
                                       "            break.pred %7\n"
                                       "        end_loop\n"
                                       "    else\n"
                                       "        st.f32 n=4 cache=2 -16, %5, 0.100000001, %2, %3\n"
                                       "    end_if\n"
                                       "    %8:i64 = convert.i64.f32 %4\n";
    ir_kernel *kernel = NULL;
    text out = { 0 };
    ir_describe_begin("printed", IR_SM90A);
    describe_listing();
    assert_ok(ir_describe_end(&kernel));
    ir_print(kernel, &out);
    drop_locations(out.data);
    assert_string_equal(text_data(&out), listing);
    text_free(&out);
    ir_kernel_free(kernel);
}

RUN_TESTS(NULL, NULL)
