/*
 * fuzz_elementwise.c - any text as an element-wise expression: a tree whose arguments stand before their function, or a
 * sentence.
 */
#include "base/math.h"
#include "fuzz_text.h"
#include "operators/elementwise/elementwise_expr.h"

static void check_node(const expr *e, int at)
{
    static const int arguments[] = {
#define X(name, count, integers) count,
        EXPR_FUNCTIONS(X)
#undef X
    };
    const expr_node *node = &e->nodes[at];
    int count = (int)node->kind < COUNT_OF(arguments) ? arguments[node->kind] : 0;
    for (int i = 0; i < count; i++)
        fuzz_demand(node->argument[i] >= 0 && node->argument[i] < at, "an argument stands behind its function");
    if (node->kind == EXPR_INPUT)
        fuzz_demand(node->input >= 0 && node->input < e->inputs, "there is no such input");
}

void fuzz_one(const char *source)
{
    static expr e;
    if (!fuzz_said(expr_parse(source, &e)))
        return;
    fuzz_demand(e.count > 0 && e.count <= EXPR_NODES_MAX && e.inputs <= CKL_ELEMENTWISE_INPUTS_MAX, "too large");
    for (int i = 0; i < e.count; i++)
        check_node(&e, i);
    expr_suits_integers(&e);
}
