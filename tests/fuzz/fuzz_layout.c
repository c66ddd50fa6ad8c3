/* fuzz_layout.c - any text as an expression of the layout calculator: a value that prints, or a sentence. */
#include "fuzz_text.h"
#include "ir/build.h"
#include "lab/layout_expr.h"

void fuzz_one(const char *expression)
{
    layout_value value;
    text out = { 0 };
    ir_describe_begin(NULL, IR_SM80);
    if (layout_evaluate(expression, &value))
        layout_value_print(&value, &out);
    fuzz_said(ir_describe_end(NULL));
    text_free(&out);
}
