/*
 * elementwise_expr.c - a recursive-descent parser.
 *
 *     sum     = product { ("+" | "-") product }
 *     product = factor { ("*" | "/") factor }
 *     factor  = "-" factor | power
 *     power   = primary [ "^" factor ]
 *     primary = number | name | function "(" sum [ "," sum ] ")" | "(" sum ")"
 */
#include "operators/elementwise/elementwise_expr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"

typedef struct function_info {
    const char *name;
    int arguments;
    bool integers;
} function_info;

static const function_info functions[] = {
#define X(name, arguments, integers) { #name, arguments, integers },
    EXPR_FUNCTIONS(X)
#undef X
};

typedef struct parser {
    const char *source, *at;
    expr *out;
} parser;

static ckl_status parse_sum(parser *p, int *node);
static ckl_status parse_factor(parser *p, int *node);

/* Fails at a place in the source. */
#define FAIL_AT(p, place, ...)                    \
    do {                                          \
        text fault = { 0 };                       \
        text_printf(&fault, __VA_ARGS__);         \
        fail_at((p), (place), text_data(&fault)); \
        text_free(&fault);                        \
        return CKL_INVALID;                       \
    } while (0)

static void fail_at(const parser *p, const char *place, const char *fault)
{
    status_fail(CKL_INVALID, "elementwise: expr='%s', position %d: %s", p->source, (int)(place - p->source) + 1, fault);
}

/* The next character that is not a space. */
static char peek(parser *p)
{
    while (*p->at == ' ')
        p->at++;
    return *p->at;
}

static bool take(parser *p, char wanted)
{
    if (peek(p) != wanted)
        return false;
    p->at++;
    return true;
}

static ckl_status expect(parser *p, char wanted)
{
    if (!take(p, wanted))
        FAIL_AT(p, p->at, "'%c' is missing", wanted);
    return CKL_OK;
}

/* There is room for one node per character. */
static int add_node(parser *p, expr_node node)
{
    p->out->nodes[p->out->count] = node;
    return p->out->count++;
}

static int add_function(parser *p, expr_kind kind, int x, int y)
{
    return add_node(p, (expr_node){ .kind = kind, .argument = { x, y } });
}

/* Primary */

static ckl_status parse_number(parser *p, int *node)
{
    char *end;
    double number = strtod(p->at, &end);
    if (end == p->at || isalnum((unsigned char)*end) || *end == '_' || *end == '.')
        FAIL_AT(p, p->at, "'%.*s' is not a number", (int)strspn(p->at, "0123456789.eExX_abcdfABCDF+-"), p->at);
    p->at = end;
    *node = add_node(p, (expr_node){ .kind = EXPR_NUMBER, .number = number });
    return CKL_OK;
}

static int find_function(const char *name)
{
    for (int i = 0; i < EXPR_FUNCTION_COUNT; i++)
        if (strcmp(functions[i].name, name) == 0)
            return i;
    return -1;
}

static ckl_status fail_unknown(const parser *p, const char *place, const char *name)
{
    const char *names[EXPR_FUNCTION_COUNT];
    for (int i = 0; i < EXPR_FUNCTION_COUNT; i++)
        names[i] = functions[i].name;
    text fault = { 0 };
    text_printf(&fault, "unknown function ");
    words_explain(name, names, EXPR_FUNCTION_COUNT, "Known functions:", &fault);
    fail_at(p, place, text_data(&fault));
    text_free(&fault);
    return CKL_INVALID;
}

static ckl_status parse_call(parser *p, const char *place, const char *name, int *node)
{
    int function = find_function(name), arguments[2] = { 0 };
    if (function < 0)
        return fail_unknown(p, place, name);
    TRY(expect(p, '('));
    for (int i = 0; i < functions[function].arguments; i++) {
        if (i > 0)
            TRY(expect(p, ','));
        TRY(parse_sum(p, &arguments[i]));
    }
    TRY(expect(p, ')'));
    *node = add_function(p, (expr_kind)function, arguments[0], arguments[1]);
    return CKL_OK;
}

static ckl_status parse_input(parser *p, const char *place, const char *name, int *node)
{
    expr *e = p->out;
    int input = 0;
    if (find_function(name) >= 0)
        FAIL_AT(p, place, "'%s' is a function: its argument is missing", name);
    while (input < e->inputs && strcmp(e->names[input], name) != 0)
        input++;
    if (input == CKL_ELEMENTWISE_INPUTS_MAX)
        FAIL_AT(p, place, "'%s' is one more than %d operands", name, CKL_ELEMENTWISE_INPUTS_MAX);
    if (input == e->inputs)
        strcpy(e->names[e->inputs++], name);
    *node = add_node(p, (expr_node){ .kind = EXPR_INPUT, .input = input });
    return CKL_OK;
}

/* An operand, or a function if a parenthesis follows. */
static ckl_status parse_name(parser *p, int *node)
{
    const char *place = p->at;
    char name[EXPR_NAME_MAX] = { 0 };
    size_t length = 0;
    while (isalnum((unsigned char)place[length]) || place[length] == '_')
        length++;
    if (length >= EXPR_NAME_MAX)
        FAIL_AT(p, place, "a name is longer than %d characters", EXPR_NAME_MAX - 1);
    memcpy(name, place, length);
    p->at += length;
    return peek(p) == '(' ? parse_call(p, place, name, node) : parse_input(p, place, name, node);
}

static ckl_status parse_primary(parser *p, int *node)
{
    unsigned char next = (unsigned char)peek(p);
    if (take(p, '(')) {
        TRY(parse_sum(p, node));
        return expect(p, ')');
    }
    if (isalpha(next) || next == '_')
        return parse_name(p, node);
    if (isdigit(next) || next == '.')
        return parse_number(p, node);
    if (next == '\0')
        FAIL_AT(p, p->at, "an operand is missing");
    FAIL_AT(p, p->at, "'%c' where an operand is expected", next);
}

/* Operators, tightest first */

static ckl_status parse_power(parser *p, int *node)
{
    TRY(parse_primary(p, node));
    if (!take(p, '^'))
        return CKL_OK;
    int exponent = 0;
    TRY(parse_factor(p, &exponent));
    *node = add_function(p, EXPR_pow, *node, exponent);
    return CKL_OK;
}

static ckl_status parse_factor(parser *p, int *node)
{
    if (!take(p, '-'))
        return parse_power(p, node);
    TRY(parse_factor(p, node));
    expr_node *operand = &p->out->nodes[*node];
    if (operand->kind == EXPR_NUMBER)
        operand->number = -operand->number;
    else
        *node = add_function(p, EXPR_neg, *node, 0);
    return CKL_OK;
}

static ckl_status parse_product(parser *p, int *node)
{
    TRY(parse_factor(p, node));
    for (char sign; (sign = peek(p)) == '*' || sign == '/';) {
        int right = 0;
        p->at++;
        TRY(parse_factor(p, &right));
        *node = add_function(p, sign == '*' ? EXPR_mul : EXPR_div, *node, right);
    }
    return CKL_OK;
}

static ckl_status parse_sum(parser *p, int *node)
{
    TRY(parse_product(p, node));
    for (char sign; (sign = peek(p)) == '+' || sign == '-';) {
        int right = 0;
        p->at++;
        TRY(parse_product(p, &right));
        *node = add_function(p, sign == '+' ? EXPR_add : EXPR_sub, *node, right);
    }
    return CKL_OK;
}

ckl_status expr_parse(const char *source, expr *out)
{
    *out = (expr){ 0 };
    parser p = { source, source, out };
    int root = 0;
    if (strlen(source) >= EXPR_NODES_MAX)
        FAIL(CKL_INVALID, "elementwise: expr is longer than %d characters", EXPR_NODES_MAX - 1);
    TRY(parse_sum(&p, &root));
    if (peek(&p) != '\0')
        FAIL_AT(&p, p.at, "'%c' where an operator is expected", *p.at);
    return CKL_OK;
}

bool expr_is_factor(const expr *e, int node)
{
    for (int i = node + 1; i < e->count; i++) {
        const expr_node *n = &e->nodes[i];
        const int arguments = n->kind < EXPR_FUNCTION_COUNT ? functions[n->kind].arguments : 0;
        const bool uses = (arguments > 0 && n->argument[0] == node) || (arguments > 1 && n->argument[1] == node);
        if (uses)
            return (n->kind == EXPR_mul || n->kind == EXPR_div || n->kind == EXPR_neg) && expr_is_factor(e, i);
    }
    return true;
}

bool expr_suits_integers(const expr *e)
{
    for (int i = 0; i < e->count; i++) {
        const expr_node *n = &e->nodes[i];
        if (n->kind == EXPR_NUMBER && (n->number != rint(n->number) || fabs(n->number) > INT32_MAX))
            return false;
        if (n->kind < EXPR_FUNCTION_COUNT && !functions[n->kind].integers)
            return false;
    }
    return true;
}
