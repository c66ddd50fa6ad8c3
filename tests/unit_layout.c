/* unit_layout.c - the layout algebra against NVIDIA's Python CuTe, with run-time integers, and the layouts of atoms. */
#include "unit.h"
#include "cute/atoms.h"
#include "lab/layout_expr.h"

/* Every test describes nothing but static values, unless it asks for a kernel. */
static int begin(void **state)
{
    ir_describe_begin(NULL, IR_SM80);
    return 0;
}

static int begin_kernel(void **state)
{
    ir_describe_begin("layouts", IR_SM80);
    return 0;
}

static int end(void **state)
{
    return ir_describe_end(NULL) == CKL_OK ? 0 : (print_error("%s\n", ckl_error()), 1);
}

static layout parsed(const char *literal)
{
    layout_value value;
    if (!layout_evaluate(literal, &value))
        fail_msg("%s is no layout", literal);
    return value.layout;
}

static int64_t product_of(int_tuple t)
{
    return tuple_product(t).i;
}

static char *printed(layout a, text *out)
{
    text_clear(out);
    layout_print(a, out);
    return out->data;
}

/* The given cases */

enum { STRINGS_MAX = 8 };

/* The strings of a flat JSON object, in order; cut out of the line in place. */
static int split_strings(char *line, char *strings[STRINGS_MAX])
{
    int count = 0;
    for (char *open = strchr(line, '"'); open && count < STRINGS_MAX;) {
        char *close = strchr(open + 1, '"');
        *close = '\0';
        strings[count++] = open + 1;
        open = strchr(close + 1, '"');
    }
    return count;
}

static void assert_same_function(const char *expression, const char *expect, bool same_rank)
{
    layout_value value;
    if (!layout_evaluate(expression, &value)) {
        ir_describe_end(NULL);
        fail_msg("%s: %s", expression, ckl_error());
    }
    text got = { 0 };
    layout_value_print(&value, &got);
    bool same = true;
    if (value.kind == VALUE_NUMBER) {
        same = strcmp(got.data, expect) == 0;
    } else {
        layout want = parsed(expect), have = value.layout;
        same = static_size(have) == static_size(want) && (!same_rank || rank(have) == rank(want));
        for (int64_t i = 0; same && i < static_size(want); i++)
            same = index_at(have, i) == index_at(want, i);
    }
    if (!same)
        fail_msg("%s is %s, not %s", expression, got.data, expect);
    text_free(&got);
}

static void run_case(char *line)
{
    char *strings[STRINGS_MAX] = { 0 }, expression[512];
    int count = split_strings(line, strings); // op OP args A [B] expect E
    assert_in_range(count, 6, 7);
    const char *op = strings[1], *expect = strings[count - 1];
    snprintf(expression, sizeof expression, "%s(%s%s%s)", op, strings[3], count == 7 ? ", " : "",
             count == 7 ? strings[4] : "");
    assert_same_function(expression, expect, strstr(op, "divide") || strstr(op, "product"));
}

TEST_BETWEEN(cases, begin, end)
{
    FILE *file = fopen(TESTDATA "/layout_cases.jsonl", "r");
    assert_non_null(file);
    char line[1024];
    int count = 0;
    for (; fgets(line, sizeof line, file); count++)
        run_case(line);
    fclose(file);
    assert_int_equal(count, 300);
}

/* Expressions and the text they give */

TEST_BETWEEN(expressions, begin, end)
{
    static const char *const rows[][2] = {
        { "(4,(2,2)):(1,(4,8))", "(4,(2,2)):(1,(4,8))" },
        { " ( 4 , 8 ) ", "(4,8):(1,4)" },
        { "(_4,_8):(_8,_1)", "(4,8):(8,1)" },
        { "size((4,8):(1,4))", "32" },
        { "size(coalesce(logical_divide((4,8):(1,4), 4:1)))", "32" },
        { "cosize((4,8):(16,1))", "56" },
        { "cosize((4,3):(-2,5))", "11" },
        { "rank((4,(2,2)))", "2" },
        { "depth((4,(2,2)))", "2" },
        { "mode((4,(2,2)), 1)", "(2,2):(4,8)" },
        { "flatten((4,(2,2)))", "(4,2,2):(1,4,8)" },
        { "logical_divide((4,8):(1,4), 4:1)", "(4,8):(1,4)" },
        { "logical_divide((8,8):(1,8), <4:1,2:1>)", "((4,2),(2,4)):((1,4),(8,16))" },
        { "zipped_divide((8,8):(1,8), <4,2>)", "((4,2),(2,4)):((1,8),(4,16))" },
        { "flat_divide((8,8,3), <4,2>)", "(4,2,2,4,3):(1,8,4,16,64)" },
        { "flat_product((2,3):(1,2), (4,2):(1,4))", "(2,3,4,2):(1,2,6,24)" },
        { "tiled_product((2,3):(1,2), (4,2):(1,4))", "((2,3),4,2):((1,2),6,24)" },
        { "composition((8,8):(1,8), <4:2,2>)", "(4,2):(2,8)" },
        { "blocked_product((2,5):(5,1), (3,4):(1,3))", "((2,3),(5,4)):((5,10),(1,30))" },
        { "raked_product((2,5):(5,1), (3,4):(1,3))", "((3,2),(4,5)):((10,5),(30,1))" },
        { "crd2idx((3,(1,0)), (4,(2,2)):(1,(4,8)))", "7" },
        { "crd2idx((3,2), (4,(2,2)):(1,(4,8)))", "11" },
        { "crd2idx(idx2crd(11, (4,(2,2))), (4,(2,2)))", "11" },
        { "idx2crd(17, (4,(2,3)))", "(1,(0,2))" },
        { "composition(Sw<3,4,3>, (8,64):(64,1))", "Sw<3,4,3>o(8,64):(64,1)" },
        { "Sw<3,4,3>o0o(8,64):(64,1)", "Sw<3,4,3>o(8,64):(64,1)" },
        { "crd2idx((1,0), Sw<3,3,3>o(8,64):(64,1))", "72" },
        { "crd2idx((1,0), Sw<2,0,-3>o(8,64):(1,8))", "9" },
        { "recast(Sw< 3, 4 , 3>o(8,64):(64,1), 16, 128)", "Sw<3,1,3>o(8,8):(8,1)" },
        { "recast((4,8):(-1,4), 32, 16)", "(8,8):(-1,8)" },
        { "recast((4,8):(8,2), 16, 16)", "(4,8):(8,2)" },
        { "tile_to_shape(Sw<3,4,3>o(8,64):(64,1), (16,128))", "Sw<3,4,3>o((8,2),(64,2)):((64,512),(1,1024))" },
        { "max_common_layout((8,4):(1,8), (16,2):(1,100))", "16:1" },
        { "max_common_layout(4:1, 6:1)", "4:1" },
        { "max_common_layout((8,2):(2,1), (8,8):(10,1))", "1:0" },
        { "complement((2,2):(1,6), 24)", "(3,2):(2,12)" },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        layout_value value;
        text got = { 0 };
        if (!layout_evaluate(rows[i][0], &value))
            fail_msg("%s is refused", rows[i][0]);
        layout_value_print(&value, &got);
        if (strcmp(got.data, rows[i][1]) != 0)
            fail_msg("%s is %s, not %s", rows[i][0], got.data, rows[i][1]);
        text_free(&got);
    }
}

TEST(rejects)
{
    static const char *const rows[][2] = {
        { "", "position 1: an integer or ( is missing at the end" },
        { "()", "position 2: an integer or ( is missing before ')'" },
        { "(4,8", "position 5: , or ) is missing at the end" },
        { "(4,8):(1)", "position 1: shape and stride are not of the same nesting before '(4,8):(1)'" },
        { "(4,0):(1,4)", "position 1: a shape has a mode that is not positive before '(4,0):(1,4)'" },
        { "4:1 5", "position 5: the expression should end before '5'" },
        { "size(99999999999999999999)", "position 6: an integer does not fit 64 bits before '9999999999999999'" },
        { "size((4000000000,4000000000,4))", "4000000000*4000000000 does not fit 64 bits" },
        { "coalese(4:1)", "position 1: there is no function coalese (did you mean coalesce?) before 'coalese(4:1)'" },
        { "size(4:1, 2)", "position 11: size takes no more than 1 arguments before '2)'" },
        { "crd2idx(3)", "position 1: crd2idx: argument 2, a layout, is missing before 'crd2idx(3)'" },
        { "crd2idx(4:1, 4:1)", "position 9: crd2idx: argument 1 should be a coordinate before '4:1, 4:1)'" },
        { "crd2idx(32, (4,8))", "crd2idx: 32 is no coordinate of (4,8):(1,4)" },
        { "logical_divide(10:1, 4:1)",
          "logical_divide: 10:1, 4:1 do not divide: the tile does not cover the layout evenly" },
        { "logical_divide((10,4), <4>)",
          "divide: (10,4):(1,10) is not divided by the tiler: a tile does not divide its mode" },
        { "composition((6,2):(2,1), 4:4)",
          "composition: (6,2):(2,1), 4:4 do not compose: the right one reaches past the "
          "end of the left one" },
        { "composition((6,2):(2,1), 3:4)",
          "composition: (6,2):(2,1), 3:4 do not compose: a stride of the right one does "
          "not divide a mode of the left one" },
        { "composition((4,6):(6,1), 6:1)",
          "composition: (4,6):(6,1), 6:1 do not compose: a mode of the right one does not "
          "fill modes of the left one evenly" },
        { "recast((4,8):(8,2), 32, 16)", "recast_layout: (4,8):(8,2) has no contiguous mode to split elements of" },
        { "recast((4,8):(1,4), 32, 12)",
          "recast_layout: (4,8):(1,4) cannot be recast between sizes of which neither divides the other" },
        { "complement((2,2):(1,1), 8)", "complement: (2,2):(1,1) is not injective: its modes overlap" },
        { "left_inverse((4,2):(0,1))",
          "left_inverse: (4,2):(0,1) has none: it is not injective or its strides do not divide" },
        { "right_inverse(Sw<3,4,3>o(8,64))", "right_inverse: Sw<3,4,3>o(8,64):(1,8) has a swizzle" },
        { "Sw<4,4,3>o(8,64)", "Sw<4,4,3>: needs 0 <= B <= |S|, 0 <= M and B+M+|S| <= 62" },
        { "mode((4,8), 2)", "mode: (4,8):(1,4) does not have that mode" },
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        layout_value value;
        ir_describe_begin(NULL, IR_SM80);
        bool accepted = layout_evaluate(rows[i][0], &value);
        assert_int_equal(ir_describe_end(NULL), accepted ? CKL_OK : CKL_INVALID);
        if (accepted || strcmp(ckl_error(), rows[i][1]) != 0)
            fail_msg("%s: %s", rows[i][0], accepted ? "accepted" : ckl_error());
    }
}

/* Run-time integers */

enum { REGISTERS_MAX = 512 };

static int64_t operand(const int64_t *registers, val v)
{
    return ir_is_constant(v) ? v.i : registers[v.reg];
}

static int64_t executed(const ir_inst *inst, int64_t x, int64_t y)
{
    switch (inst->op) {
    case IR_ADD:
        return x + y;
    case IR_SUB:
        return x - y;
    case IR_MUL:
        return x * y;
    case IR_DIV:
        return x / y;
    case IR_REM:
        return x % y;
    case IR_AND:
        return x & y;
    case IR_XOR:
        return x ^ y;
    case IR_SHL:
        return x << y;
    case IR_SHR:
        return x >> y;
    default:
        fail_msg("%d is no instruction of index arithmetic", (int)inst->op);
        return 0;
    }
}

/* The value of v when the kernel's parameters are these. */
static int64_t run(val v, const int64_t *parameters)
{
    int64_t registers[REGISTERS_MAX];
    const ir_kernel *kernel = ir_current();
    assert_in_range(kernel->reg_count, 0, REGISTERS_MAX);
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        int64_t *out = &registers[inst->out[0].reg];
        if (inst->op == IR_PARAM)
            *out = parameters[inst->n];
        else if (inst->op == IR_MOV || inst->op == IR_CONVERT)
            *out = operand(registers, inst->in[0]);
        else
            *out = executed(inst, operand(registers, inst->in[0]), operand(registers, inst->in[1]));
    }
    return operand(registers, v);
}

TEST_BETWEEN(dynamic_coordinate, begin_kernel, end)
{
    int_tuple i = dynamic(ir_scalar_param(CKL_I32, "i"));
    static const char *const literals[] = { "(4,8):(8,1)",          "(3,(5,2)):(1,(6,3))",   "(4,8):(1,4)",
                                            "((2,2),7):((1,14),2)", "Sw<2,1,3>o(8,8):(8,1)", "12:5" };
    for (int row = 0; row < COUNT_OF(literals); row++) {
        layout a = parsed(literals[row]);
        val index = crd2idx(i, a);
        for (int64_t at = 0; at < static_size(a); at++)
            assert_int_equal(run(index, &at), index_at(a, at));
    }
}

TEST_BETWEEN(compact_needs_no_division, begin_kernel, end)
{
    val i = ir_scalar_param(CKL_I32, "i");
    val index = crd2idx(dynamic(i), parsed("(4,(5,2),1)"));
    assert_int_equal(index.reg, i.reg);
    assert_int_equal(ir_current()->inst_count, 1);
}

TEST_BETWEEN(dynamic_divide, begin_kernel, end)
{
    val m = ir_scalar_param(CKL_I32, "m"), ld = ir_scalar_param(CKL_I64, "ld"), cta = ir_scalar_param(IR_U32, "cta");
    layout a = make_layout(tuple(dynamic(m), leaf(64)), tuple(dynamic(ld), leaf(1)));
    layout tiles = zipped_divide_by_mode(a, 2, (layout[]){ parsed("16"), parsed("32") });
    text shown = { 0 };
    assert_string_equal(printed(tiles, &shown), "((16,32),(?,2)):((?,1),(?,32))");
    text_free(&shown);

    int_tuple where = tuple(tuple(WILDCARD, WILDCARD), tuple(dynamic(cta), leaf(1)));
    layout tile = slice_layout(where, tiles);
    val offset = slice_offset(where, tiles);
    assert_int_equal(rank(tile), 2);
    const int64_t parameters[] = { 100, 72, 3 };
    assert_int_equal(run(offset, parameters), 3 * 16 * 72 + 32);
    assert_int_equal(run(crd2idx(tuple(leaf(5), leaf(7)), tile), parameters), 5 * 72 + 7);
    assert_int_equal(run(tuple_mode(tuple_mode(tiles.shape, 1), 0)->leaf, parameters), 7);
    assert_int_equal(run(size(a), parameters), 6400);
}

TEST_BETWEEN(dynamic_shape, begin_kernel, end)
{
    val m = ir_scalar_param(CKL_I32, "m"), n = ir_scalar_param(CKL_I32, "n"), i = ir_scalar_param(IR_U32, "i");
    layout a = compact(tuple(dynamic(m), dynamic(n), leaf(4)));
    assert_int_equal(rank(coalesce(layout_modes(a, 0, 2))), 1); // n follows m: the same register
    int_tuple coordinate = idx2crd(i, a);
    for (int64_t at = 0; at < 5 * 7 * 4; at++) {
        const int64_t parameters[] = { 5, 7, at };
        assert_int_equal(run(tuple_mode(coordinate, 0)->leaf, parameters), at % 5);
        assert_int_equal(run(tuple_mode(coordinate, 1)->leaf, parameters), at / 5 % 7);
        assert_int_equal(run(tuple_mode(coordinate, 2)->leaf, parameters), at / 35);
        assert_int_equal(run(crd2idx(coordinate, a), parameters), at);
        assert_int_equal(run(crd2idx(dynamic(i), compact_right(a.shape)), parameters),
                         at % 5 * 28 + at / 5 % 7 * 4 + at / 35);
        if (at % 16 == 15) { // registers are not reused: begin afresh now and then
            ir_describe_end(NULL);
            ir_describe_begin("layouts", IR_SM80);
            m = ir_scalar_param(CKL_I32, "m"), n = ir_scalar_param(CKL_I32, "n"), i = ir_scalar_param(IR_U32, "i");
            a = compact(tuple(dynamic(m), dynamic(n), leaf(4)));
            coordinate = idx2crd(i, a);
        }
    }
}

TEST_BETWEEN(dynamic_rejects, begin_kernel, end)
{
    val m = ir_scalar_param(CKL_I32, "m");
    layout a = make_layout(tuple(dynamic(m), leaf(4)), ints(4, 1));
    composition(a, parsed("2:1"));
    assert_fails_with(ir_describe_end(NULL), CKL_INTERNAL,
                      "composition: (?,4):(4,1), 2:1 do not compose: it takes a mode that is not static");
    ir_describe_begin("layouts", IR_SM80);
    complement(make_layout(leaf(4), dynamic(ir_scalar_param(CKL_I32, "ld"))), 8);
    assert_fails(ir_describe_end(NULL), CKL_INTERNAL, "complement: 4:? is not static");
    ir_describe_begin("layouts", IR_SM80);
}

/* Of two registers the wider type, and a signed one where they differ; constants as C has them. */
TEST_BETWEEN(integers, begin_kernel, end)
{
    const val narrow = ir_scalar_param(IR_U32, "narrow"), number = ir_scalar_param(CKL_I32, "number");
    const val wide = ir_scalar_param(IR_U64, "wide"), least = ir_int(CKL_I64, INT64_MIN), minus = ir_int(CKL_I64, -1);
    assert_int_equal(int_add(narrow, number).type, CKL_I32);
    assert_int_equal(int_add(narrow, narrow).type, IR_U32);
    assert_int_equal(int_add(narrow, wide).type, CKL_I64);
    assert_int_equal(int_mul(wide, number).type, CKL_I64);
    assert_int_equal(int_add(narrow, ir_int(CKL_I64, INT64_C(1) << 31)).type, CKL_I64);
    assert_int_equal(int_mod(least, minus).i, 0);
    assert_int_equal(int_mod(ir_int(CKL_I64, 7), ir_int(CKL_I64, -2)).i, 1);
    assert_int_equal(int_div(ir_int(CKL_I64, 7), minus).i, -7);
    assert_int_equal(int_ceil_div(ir_int(CKL_I64, 0), ir_int(CKL_I64, 5)).i, 0);
}

/* What changes nothing makes nothing: the register is the same, and of a variable there is no copy. */
TEST_BETWEEN(neutral_integers, begin_kernel, end)
{
    const val variable = ir_reg(CKL_I32), zero = ir_int(CKL_I64, 0), one = ir_int(CKL_I64, 1);
    ir_assign(variable, ir_scalar_param(CKL_I32, "start"));
    const int before = ir_current()->inst_count;
    assert_true(int_same(int_add(zero, variable), variable) && int_same(int_add(variable, zero), variable));
    assert_true(int_same(int_mul(one, variable), variable) && int_same(int_mul(variable, one), variable));
    assert_true(int_same(int_div(variable, one), variable) && int_same(int_ceil_div(variable, one), variable));
    assert_true(ir_is_int(int_mul(zero, variable), 0) && ir_is_int(int_mul(variable, zero), 0));
    assert_true(ir_is_int(int_div(zero, variable), 0) && ir_is_int(int_mod(zero, variable), 0));
    assert_true(ir_is_int(int_mod(variable, one), 0));
    assert_int_equal(ir_current()->inst_count, before);
}

/* Atoms */

/* Each element of the tile belongs to exactly one (thread,value). */
static void assert_covers(layout thread_value, int64_t tile)
{
    assert_int_equal(static_size(thread_value), tile);
    assert_int_equal(cosize(thread_value), tile);
    assert_int_equal(static_size(right_inverse(thread_value)), tile);
}

TEST_BETWEEN(mma_atoms, begin, end)
{
    mma_atom atom;
    for (int n = 8; n <= 256; n += 8) {
        char name[ATOM_NAME_MAX];
        snprintf(name, sizeof name, "SM90_64x%dx16_F32BF16BF16_RS", n);
        assert_true(mma_atom_find(name, &atom));
        assert_int_equal(atom.n, n);
        assert_covers(mma_atom_layout(&atom, MMA_A), 64 * 16);
        assert_covers(mma_atom_layout(&atom, MMA_C), 64 * n);
        assert_int_equal(cosize(mma_atom_layout(&atom, MMA_B)), n * 16);
    }
    assert_true(mma_atom_find("SM90_64x256x16_F32F16F16_SS", &atom));
    text shown = { 0 };
    assert_string_equal(printed(mma_atom_layout(&atom, MMA_C), &shown), "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))");
    text_free(&shown);
    assert_true(mma_atom_find("SM80_16x8x16_F32F16F16F32_TN", &atom));
    assert_covers(mma_atom_layout(&atom, MMA_A), 16 * 16);
    assert_covers(mma_atom_layout(&atom, MMA_B), 8 * 16);
    assert_covers(mma_atom_layout(&atom, MMA_C), 16 * 8);
    static const char *const wrong[] = { "",
                                         "SM90_64x12x16_F32F16F16_SS",
                                         "SM90_64x264x16_F32F16F16_SS",
                                         "SM90_64x08x16_F32F16F16_SS",
                                         "SM90_64x8x16_F32F16F16_S",
                                         "SM90_64xx16" };
    for (int i = 0; i < COUNT_OF(wrong); i++)
        assert_false(mma_atom_find(wrong[i], &atom));
}

TEST_BETWEEN(copy_atoms, begin, end)
{
    copy_atom atom;
    assert_true(copy_atom_find("UniversalCopy<128>", &atom));
    assert_int_equal(atom.bits, 128);
    assert_false(copy_atom_find("UniversalCopy<24>", &atom));
    assert_true(copy_atom_find("SM75_U16x8_LDSM_T", &atom));
    assert_true(atom.transpose && atom.n == 4 && atom.op == IR_LDMATRIX);
    assert_covers(copy_atom_layout_destination(&atom), 4 * 64 * 16);
    assert_covers(copy_atom_layout_source(&atom), 4 * 64 * 16);
    for (int i = 0; atom_name(i); i++)
        assert_true(strchr(atom_name(i), '*') || mma_atom_find(atom_name(i), &(mma_atom){ 0 }) ||
                    copy_atom_find(atom_name(i), &atom));
}

/* Structure */

TEST_BETWEEN(structure, begin, end)
{
    text shown = { 0 };
    layout a = parsed("(2,(3,4),5)");
    assert_string_equal(printed(group_modes(a, 0, 2), &shown), "((2,(3,4)),5):((1,(2,6)),24)");
    assert_string_equal(printed(layout_modes(a, 1, 3), &shown), "((3,4),5):((2,6),24)");
    assert_string_equal(printed(compact_right(a.shape), &shown), "(2,(3,4),5):(60,(20,5),1)");
    int_tuple where = tuple(leaf(1), tuple(WILDCARD, leaf(2)), WILDCARD);
    assert_string_equal(printed(slice_layout(where, a), &shown), "(3,5):(2,24)");
    assert_int_equal(slice_offset(where, a).i, 13);
    assert_int_equal(product_of(a.shape), 120);
    assert_string_equal(printed(recast_layout(parsed("(4,8):(1,4)"), 32, 8), &shown), "(16,8):(1,16)");
    assert_string_equal(printed(max_common_layout(parsed("Sw<3,3,3>o(8,64):(64,1)"), parsed("(8,64):(64,1)")), &shown),
                        "8:8");
    text_free(&shown);
}

RUN_TESTS(NULL, NULL)
