/* layout_text.c - layouts as text: "(4,(2,2)):(1,(4,8))". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cute/layout_reader.h"

void layout_print(layout a, text *out)
{
    if (has_swizzle(a))
        text_printf(out, "Sw<%d,%d,%d>o", a.sw.bits, a.sw.base, a.sw.shift);
    tuple_print(a.shape, out);
    text_printf(out, ":");
    tuple_print(a.stride, out);
}

const char *layout_text(layout a)
{
    text t = { 0 };
    layout_print(a, &t);
    return ir_text(&t);
}

/* Reading */

static void skip_spaces(literal_reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

bool read_fail(const literal_reader *r, const char *format, ...)
{
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    literal_reader at = *r;
    skip_spaces(&at);
    if (*at.at)
        ir_fail("position %d: %s before '%.16s'", (int)(at.at - at.start) + 1, sentence, at.at);
    else
        ir_fail("position %d: %s at the end", (int)(at.at - at.start) + 1, sentence);
    return false;
}

bool read_char(literal_reader *r, char c)
{
    skip_spaces(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* CuTe prints a static integer as _4, which is read as 4. */
bool read_int(literal_reader *r, int64_t *out)
{
    skip_spaces(r);
    const char *digits = r->at + (*r->at == '-' || *r->at == '_');
    if (!isdigit((unsigned char)*digits))
        return read_fail(r, "an integer or ( is missing");
    bool negative = *r->at == '-';
    int64_t i = 0;
    for (; isdigit((unsigned char)*digits); digits++)
        if (__builtin_mul_overflow(i, 10, &i) || __builtin_add_overflow(i, *digits - '0', &i))
            return read_fail(r, "an integer does not fit 64 bits");
    r->at = digits;
    *out = negative ? -i : i;
    return true;
}

static bool read_modes(literal_reader *r, int_tuple *out)
{
    int_tuple modes[INT_TUPLE_RANK_MAX];
    int count = 0;
    do {
        if (count == INT_TUPLE_RANK_MAX)
            return read_fail(r, "a tuple has more than %d modes", INT_TUPLE_RANK_MAX);
        if (!read_tuple(r, &modes[count++]))
            return false;
    } while (read_char(r, ','));
    if (!read_char(r, ')'))
        return read_fail(r, ", or ) is missing");
    *out = tuple_of(count, modes);
    return true;
}

bool read_tuple(literal_reader *r, int_tuple *out)
{
    if (read_char(r, '(')) {
        if (++r->depth > LITERAL_DEPTH_MAX)
            return read_fail(r, "parentheses nest deeper than %d", LITERAL_DEPTH_MAX);
        bool read = read_modes(r, out);
        r->depth--;
        return read;
    }
    int64_t i;
    if (!read_int(r, &i))
        return false;
    *out = leaf(i);
    return true;
}

bool all_positive(int_tuple t)
{
    for (int i = 0; i < t->rank; i++)
        if (!all_positive(t->modes[i]))
            return false;
    return !is_leaf(t) || t->leaf.i > 0;
}

bool read_layout(literal_reader *r, layout *out)
{
    literal_reader begin = *r;
    int_tuple shape, stride;
    if (!read_tuple(r, &shape))
        return false;
    if (!all_positive(shape))
        return read_fail(&begin, "a shape has a mode that is not positive");
    *out = compact(shape);
    if (!read_char(r, ':'))
        return !ir_failed();
    if (!read_tuple(r, &stride))
        return false;
    if (!congruent(shape, stride))
        return read_fail(&begin, "shape and stride are not of the same nesting");
    *out = make_layout(shape, stride);
    return !ir_failed();
}

bool layout_parse(const char *string, const char **end, layout *out)
{
    literal_reader r = { .start = string, .at = string };
    bool read = read_layout(&r, out);
    *end = r.at;
    return read;
}
