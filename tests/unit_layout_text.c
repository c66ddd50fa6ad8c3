/* unit_layout_text.c - layouts as text: what is read and printed again, and which position a wrong one is told. */
#include "unit.h"
#include "cute/layout.h"
#include "ir/build.h"

static const char *const taken[][3] = {
    // text, as printed, what is left of the text
    { "4", "4:1", "" },
    { "(4,8)", "(4,8):(1,4)", "" },
    { "(4,8):(8,1)", "(4,8):(8,1)", "" },
    { " ( 4 , ( 2 , _3 ) ) : ( _1 , ( 4 , -8 ) ) ", "(4,(2,3)):(1,(4,-8))", " " },
    { "8:0 rest", "8:0", " rest" },
    { "4:2:1", "4:2", ":1" },
    { "9223372036854775807:1", "9223372036854775807:1", "" },
};

static const char *const refused[][2] = {
    { "", "position 1: an integer or ( is missing at the end" },
    { "x", "position 1: an integer or ( is missing before 'x'" },
    { "(4,", "position 4: an integer or ( is missing at the end" },
    { "(4 8)", "position 4: , or ) is missing before '8)'" },
    { "(4,8", "position 5: , or ) is missing at the end" },
    { "(4,8):(1,)", "position 10: an integer or ( is missing before ')'" },
    { "(4,8):1", "position 1: shape and stride are not of the same nesting before '(4,8):1'" },
    { "(4,8):(1,2,3)", "position 1: shape and stride are not of the same nesting" },
    { "(4,(2,2)):((1,2),4)", "position 1: shape and stride are not of the same nesting" },
    { "(4,0)", "position 1: a shape has a mode that is not positive before '(4,0)'" },
    { "(4,(1,-2)):(1,(1,1))", "position 1: a shape has a mode that is not positive" },
    { "9223372036854775808", "position 1: an integer does not fit 64 bits before '922337203685477" },
    { "4:-", "position 3: an integer or ( is missing before '-'" },
    { "--4", "position 1: an integer or ( is missing before '--4'" },
};

TEST(taken)
{
    for (int i = 0; i < COUNT_OF(taken); i++) {
        text printed = { 0 };
        layout a;
        const char *end;
        ir_describe_begin(NULL, IR_SM80);
        assert_true(layout_parse(taken[i][0], &end, &a));
        layout_print(a, &printed);
        assert_string_equal(text_data(&printed), taken[i][1]);
        assert_string_equal(end, taken[i][2]);
        assert_ok(ir_describe_end(NULL));
        text_free(&printed);
    }
}

static void expect_refused(const char *string, const char *sentence)
{
    layout a;
    const char *end;
    ir_describe_begin(NULL, IR_SM80);
    bool read = layout_parse(string, &end, &a);
    ckl_status status = ir_describe_end(NULL);
    if (read || status != CKL_INVALID || !strstr(ckl_error(), sentence))
        fail_msg("%s: %s, %s", string, read ? "read" : "not read", ckl_error());
}

TEST(refused)
{
    for (int i = 0; i < COUNT_OF(refused); i++)
        expect_refused(refused[i][0], refused[i][1]);
}

/* "((( ... 1 ... )))" with that many pairs, or "(1,1, ... 1)" with that many modes. */
static bool reads(int depth, int modes)
{
    text string = { 0 };
    layout a;
    const char *end;
    for (int i = 0; i < depth; i++)
        text_printf(&string, "(");
    for (int i = 0; i < modes; i++)
        text_printf(&string, i ? ",1" : "1");
    for (int i = 0; i < depth; i++)
        text_printf(&string, ")");
    ir_describe_begin(NULL, IR_SM80);
    bool read = layout_parse(text_data(&string), &end, &a);
    ckl_status status = ir_describe_end(NULL);
    assert_int_equal(status == CKL_OK, read);
    text_free(&string);
    return read;
}

TEST(limits)
{
    assert_true(reads(32, 1));
    assert_false(reads(33, 1));
    assert_says(ckl_error(), "position 34: parentheses nest deeper than 32");
    assert_true(reads(1, INT_TUPLE_RANK_MAX));
    assert_false(reads(1, INT_TUPLE_RANK_MAX + 1));
    assert_says(ckl_error(), "a tuple has more than");
}

RUN_TESTS(NULL, NULL)
