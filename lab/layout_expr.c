/* layout_expr.c - the layout calculator: a recursive reader that evaluates as it reads, and a table of functions. */
#include "lab/layout_expr.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/fields.h"
#include "cute/layout_core.h"
#include "cute/layout_reader.h"

enum { ARGUMENTS_MAX = 3, WORD_MAX = 64 };

/* Values */

static layout_value of_layout(layout a)
{
    return (layout_value){ .kind = VALUE_LAYOUT, .layout = a };
}

static layout_value of_number(int64_t i)
{
    return (layout_value){ .kind = VALUE_NUMBER, .tuple = leaf(i) };
}

static layout_value of_tuple(int_tuple t)
{
    return (layout_value){ .kind = is_leaf(t) ? VALUE_NUMBER : VALUE_TUPLE, .tuple = t };
}

static int64_t number(const layout_value *value)
{
    return static_leaf(value->tuple);
}

/* What is more than a call of src/cute. Arguments have been converted to the kinds that their row asks for. */

static layout_value call_composition(const layout_value *in)
{
    if (in[0].kind == VALUE_SWIZZLE && in[1].kind != VALUE_TILER)
        return of_layout(with_swizzle(in[0].sw, in[1].layout));
    if (in[0].kind == VALUE_SWIZZLE) {
        ir_fail("composition: a swizzle has no modes for a tiler");
        return of_number(0);
    }
    if (in[1].kind == VALUE_TILER)
        return of_layout(composition_by_mode(in[0].layout, in[1].count, in[1].tiler));
    return of_layout(composition(in[0].layout, in[1].layout));
}

static layout_value call_complement(const layout_value *in)
{
    bool given = in[1].tuple != NULL;
    if (given && number(&in[1]) < 1)
        ir_fail("complement: a bound of %" PRId64 " is not positive", number(&in[1]));
    return of_layout(complement(in[0].layout, given ? number(&in[1]) : cosize(in[0].layout)));
}

static bool inside(int_tuple coord, int_tuple shape)
{
    if (is_leaf(coord))
        return coord->leaf.i >= 0 && coord->leaf.i < tuple_product(shape).i;
    if (tuple_rank(coord) != tuple_rank(shape))
        return false;
    for (int i = 0; i < coord->rank; i++)
        if (!inside(coord->modes[i], tuple_mode(shape, i)))
            return false;
    return true;
}

static layout_value call_crd2idx(const layout_value *in)
{
    if (inside(in[0].tuple, in[1].layout.shape))
        return of_number(static_crd2idx(in[0].tuple, in[1].layout));
    ir_fail("crd2idx: %s is no coordinate of %s", tuple_text(in[0].tuple), layout_text(in[1].layout));
    return of_number(0);
}

static layout_value call_idx2crd(const layout_value *in)
{
    if (!inside(in[0].tuple, in[1].layout.shape))
        no_layout("idx2crd", "has no linear coordinate of that value", 1, &in[1].layout);
    return of_tuple(idx2crd(in[0].tuple->leaf, in[1].layout));
}

static layout_value call_mode(const layout_value *in)
{
    int64_t i = number(&in[1]);
    if (i < 0 || i >= rank(in[0].layout)) {
        no_layout("mode", "does not have that mode", 1, &in[0].layout);
        return of_number(0);
    }
    return of_layout(layout_mode(in[0].layout, (int)i));
}

static layout_value call_tile_to_shape(const layout_value *in)
{
    return of_layout(tile_to_shape(in[0].layout, in[1].tuple));
}

static layout_value call_recast(const layout_value *in)
{
    int64_t bits_max = 1 << 20;
    if (number(&in[1]) > bits_max || number(&in[2]) > bits_max)
        ir_fail("recast: an element of more than %" PRId64 " bits", bits_max);
    return of_layout(
        recast_layout(in[0].layout, (int)min_i64(number(&in[1]), bits_max), (int)min_i64(number(&in[2]), bits_max)));
}

/*
 * takes: one letter an argument. L layout, T layout or tiler, X layout or swizzle, N number, C coordinate, S shape; a
 * small letter may be left out. One way of computing it is set, and by_mode beside of_two where it takes a tiler.
 */
typedef struct function {
    const char *name, *takes, *help;
    int (*count)(layout a);
    int64_t (*number)(layout a);
    layout (*of_one)(layout a);
    layout (*of_two)(layout a, layout b);
    layout (*by_mode)(layout a, int count, const layout *tiler);
    layout_value (*call)(const layout_value *in);
} function;

static const function functions[] = {
    { "size", "L", "number of coordinates", .number = static_size },
    { "cosize", "L", "1 + the largest index", .number = cosize },
    { "rank", "L", "number of top modes", .count = rank },
    { "depth", "L", "levels of nesting", .count = depth },
    { "mode", "LN", "top mode i of a layout", .call = call_mode },
    { "coalesce", "L", "the same function in as few modes as possible", .of_one = coalesce },
    { "flatten", "L", "the same modes without nesting", .of_one = flatten },
    { "composition", "XT", "A o B: index A(B(c)); A may be a swizzle, B a tiler <b0,b1>", .call = call_composition },
    { "complement", "Ln", "what L leaves out below n (cosize(L) if left out)", .call = call_complement },
    { "right_inverse", "L", "R with L(R(i)) = i", .of_one = right_inverse },
    { "left_inverse", "L", "R with R(L(i)) = i", .of_one = left_inverse },
    { "logical_divide", "LT", "(tile,rest), per mode if the tile is a tiler <a,b>", .of_two = logical_divide,
      .by_mode = logical_divide_by_mode },
    { "zipped_divide", "LT", "((tile...),(rest...))", .of_two = zipped_divide, .by_mode = zipped_divide_by_mode },
    { "tiled_divide", "LT", "((tile...),rest...)", .of_two = tiled_divide, .by_mode = tiled_divide_by_mode },
    { "flat_divide", "LT", "(tile...,rest...)", .of_two = flat_divide, .by_mode = flat_divide_by_mode },
    { "logical_product", "LL", "(block,repetitions)", .of_two = logical_product },
    { "zipped_product", "LL", "((block...),(repetitions...))", .of_two = zipped_product },
    { "tiled_product", "LL", "((block...),repetitions...)", .of_two = tiled_product },
    { "flat_product", "LL", "(block...,repetitions...)", .of_two = flat_product },
    { "blocked_product", "LL", "modes joined, blocks side by side", .of_two = blocked_product },
    { "raked_product", "LL", "modes joined, blocks interleaved", .of_two = raked_product },
    { "tile_to_shape", "LS", "a block repeated to fill a shape", .call = call_tile_to_shape },
    { "crd2idx", "CL", "index of a coordinate", .call = call_crd2idx },
    { "idx2crd", "NL", "coordinate of a linear index in the shape", .call = call_idx2crd },
    { "recast", "LNN", "elements of the first bits seen as elements of the second", .call = call_recast },
    { "max_common_layout", "LL", "longest vector that two layouts share", .of_two = max_common_layout },
};

/* Kernels may tile past the end of a mode; the calculator's user more likely made a mistake. */
static layout divide_evenly(const function *f, const layout_value *in)
{
    layout a = in[0].layout;
    layout divided = in[1].kind == VALUE_TILER ? f->by_mode(a, in[1].count, in[1].tiler) : f->of_two(a, in[1].layout);
    if (in[1].kind == VALUE_TILER && !ir_failed() && static_size(divided) != static_size(a))
        no_layout("divide", "is not divided by the tiler: a tile does not divide its mode", 1, &a);
    return divided;
}

static layout_value compute(const function *f, const layout_value *in)
{
    layout a = in[0].layout;
    if (f->call)
        return f->call(in);
    if (f->count)
        return of_number(f->count(a));
    if (f->number)
        return of_number(f->number(a));
    return of_layout(f->of_one ? f->of_one(a) : f->by_mode ? divide_evenly(f, in) : f->of_two(a, in[1].layout));
}

bool layout_function(int i, const char **name, const char **help)
{
    if (i >= COUNT_OF(functions))
        return false;
    *name = functions[i].name;
    *help = functions[i].help;
    return true;
}

/* Reading */

static bool read_value(literal_reader *r, layout_value *out);

static bool read_word(literal_reader *r, char word[WORD_MAX])
{
    size_t length = 0;
    while (isalnum((unsigned char)r->at[length]) || r->at[length] == '_')
        length++;
    if (length >= WORD_MAX)
        return read_fail(r, "a name is longer than %d letters", WORD_MAX - 1);
    memcpy(word, r->at, length);
    word[length] = '\0';
    return true;
}

static bool unknown_function(const literal_reader *r, const char *word)
{
    const char *names[COUNT_OF(functions)];
    for (int i = 0; i < COUNT_OF(functions); i++)
        names[i] = functions[i].name;
    const char *near = nearest_word(word, names, COUNT_OF(functions));
    if (near)
        return read_fail(r, "there is no function %s (did you mean %s?)", word, near);
    return read_fail(r, "there is no function %s", word);
}

static const function *find_function(const char *word)
{
    for (int i = 0; i < COUNT_OF(functions); i++)
        if (strcmp(functions[i].name, word) == 0)
            return &functions[i];
    return NULL;
}

static const char *letter_text(char letter)
{
    switch (toupper(letter)) {
    case 'N':
        return "a number";
    case 'C':
        return "a coordinate";
    case 'S':
        return "a shape";
    case 'T':
        return "a layout or a tiler <a,b>";
    case 'X':
        return "a layout or a swizzle";
    default:
        return "a layout";
    }
}

/* Makes the value what the letter asks for; false: it cannot be that. */
static bool convert(char letter, layout_value *value)
{
    bool has_tuple = value->tuple != NULL;
    switch (toupper(letter)) {
    case 'N':
        return has_tuple && is_leaf(value->tuple);
    case 'C':
    case 'S':
        return has_tuple;
    default:
        break;
    }
    if ((letter == 'T' && value->kind == VALUE_TILER) || (letter == 'X' && value->kind == VALUE_SWIZZLE))
        return true;
    if (has_tuple && value->kind != VALUE_TUPLE && all_positive(value->tuple))
        value->layout = compact(value->tuple);
    return value->layout.shape != NULL;
}

static bool read_argument(literal_reader *r, const function *f, int i, layout_value *out)
{
    literal_reader begin = *r;
    if (i == (int)strlen(f->takes))
        return read_fail(r, "%s takes no more than %d arguments", f->name, i);
    if (!read_value(r, out))
        return false;
    if (!convert(f->takes[i], out))
        return read_fail(&begin, "%s: argument %d should be %s", f->name, i + 1, letter_text(f->takes[i]));
    return true;
}

static bool read_call(literal_reader *r, layout_value *out)
{
    char word[WORD_MAX];
    literal_reader begin = *r;
    if (!read_word(r, word))
        return false;
    const function *f = find_function(word);
    if (!f)
        return unknown_function(r, word);
    r->at += strlen(word);
    if (!read_char(r, '('))
        return read_fail(r, "%s: ( is missing", word);
    layout_value in[ARGUMENTS_MAX] = { 0 };
    int count = 0;
    do {
        if (!read_argument(r, f, count, &in[count < ARGUMENTS_MAX ? count : 0]))
            return false;
        count++;
    } while (read_char(r, ','));
    if (!read_char(r, ')'))
        return read_fail(r, ", or ) is missing");
    if (isupper((unsigned char)f->takes[count]))
        return read_fail(&begin, "%s: argument %d, %s, is missing", word, count + 1, letter_text(f->takes[count]));
    *out = compute(f, in);
    return !ir_failed();
}

/* After "<". */
static bool read_tiler(literal_reader *r, layout_value *out)
{
    layout_value tile;
    *out = (layout_value){ .kind = VALUE_TILER, .tiler = ir_alloc(LAYOUT_MODES_MAX, sizeof(layout)) };
    do {
        literal_reader begin = *r;
        if (out->count == LAYOUT_MODES_MAX)
            return read_fail(r, "a tiler of more than %d layouts", LAYOUT_MODES_MAX);
        if (!read_value(r, &tile))
            return false;
        if (!convert('L', &tile))
            return read_fail(&begin, "a tiler is made of layouts");
        out->tiler[out->count++] = tile.layout;
    } while (read_char(r, ','));
    return read_char(r, '>') || read_fail(r, ", or > is missing");
}

/* After "Sw". */
static bool read_swizzle(literal_reader *r, swizzle *out)
{
    int64_t numbers[3];
    for (int i = 0; i < 3; i++) {
        if (!read_char(r, "<,,"[i]))
            return read_fail(r, "Sw<B,M,S>: %c is missing", "<,,"[i]);
        if (!read_int(r, &numbers[i]))
            return false;
        if (numbers[i] < -62 || numbers[i] > 62)
            return read_fail(r, "Sw<B,M,S>: %" PRId64 " is out of range", numbers[i]);
    }
    if (!read_char(r, '>'))
        return read_fail(r, "Sw<B,M,S>: > is missing");
    *out = (swizzle){ (int)numbers[0], (int)numbers[1], (int)numbers[2] };
    return true;
}

/* After "Sw". CuTe prints an offset between swizzle and layout: "Sw<3,4,3>o0o(8,8)", which must be 0. */
static bool read_swizzled(literal_reader *r, layout_value *out)
{
    swizzle sw;
    if (!read_swizzle(r, &sw))
        return false;
    *out = (layout_value){ .kind = VALUE_SWIZZLE, .sw = sw };
    if (!read_char(r, 'o'))
        return true;
    literal_reader offset = *r;
    read_char(&offset, '_');
    if (read_char(&offset, '0') && read_char(&offset, 'o'))
        *r = offset;
    layout_value a;
    literal_reader begin = *r;
    if (!read_value(r, &a))
        return false;
    if (!convert('L', &a))
        return read_fail(&begin, "a swizzle goes before a layout");
    *out = of_layout(with_swizzle(sw, a.layout));
    return !ir_failed();
}

static bool read_literal(literal_reader *r, layout_value *out)
{
    literal_reader begin = *r;
    int_tuple t;
    if (!read_tuple(r, &t))
        return false;
    if (read_char(r, ':')) {
        *r = begin;
        *out = (layout_value){ .kind = VALUE_LAYOUT };
        return read_layout(r, &out->layout);
    }
    *out = (layout_value){ .kind = VALUE_SHAPE, .tuple = t };
    return true;
}

static bool read_deeper(literal_reader *r, layout_value *out)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
    if (r->at[0] == 'S' && r->at[1] == 'w' && !isalnum((unsigned char)r->at[2])) {
        r->at += 2;
        return read_swizzled(r, out);
    }
    if (isalpha((unsigned char)*r->at))
        return read_call(r, out);
    if (read_char(r, '<'))
        return read_tiler(r, out);
    return read_literal(r, out);
}

static bool read_value(literal_reader *r, layout_value *out)
{
    if (++r->depth > LITERAL_DEPTH_MAX)
        return read_fail(r, "the expression nests deeper than %d", LITERAL_DEPTH_MAX);
    bool read = read_deeper(r, out);
    r->depth--;
    return read;
}

bool layout_evaluate(const char *expression, layout_value *out)
{
    literal_reader r = { .start = expression, .at = expression };
    if (!read_value(&r, out))
        return false;
    read_char(&r, ' ');
    if (*r.at)
        return read_fail(&r, "the expression should end");
    r.at = expression;
    if (out->kind == VALUE_SHAPE && !convert('L', out))
        return read_fail(&r, "a shape has a mode that is not positive");
    return !ir_failed();
}

/* Printing */

void layout_value_print(const layout_value *value, text *out)
{
    switch (value->kind) {
    case VALUE_NUMBER:
    case VALUE_TUPLE:
        tuple_print(value->tuple, out);
        break;
    case VALUE_LAYOUT:
    case VALUE_SHAPE:
        layout_print(value->layout, out);
        break;
    case VALUE_SWIZZLE:
        text_printf(out, "Sw<%d,%d,%d>", value->sw.bits, value->sw.base, value->sw.shift);
        break;
    case VALUE_TILER:
        for (int i = 0; i < value->count; i++) {
            text_printf(out, i ? "," : "<");
            layout_print(value->tiler[i], out);
        }
        text_printf(out, ">");
        break;
    }
}
