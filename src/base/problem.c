/* problem.c - splitting a problem line into words, and words into key and value. */
#include "base/problem.h"

#include <ctype.h>
#include <string.h>

enum { PAIRS_MAX = 64 };

/*
 * The end of the word that starts at `at`: the first space or # outside of quotes and parentheses. NULL: one is not
 * closed.
 */
static const char *word_end(const char *at)
{
    int nesting = 0;
    char quote = '\0';
    for (; *at; at++) {
        if (quote) {
            quote = *at == quote ? '\0' : quote;
            continue;
        }
        if (nesting == 0 && isspace((unsigned char)*at))
            break;
        if (*at == '\'' || *at == '"')
            quote = *at;
        nesting += (*at == '(') - (*at == ')');
        if (nesting < 0)
            return NULL;
    }
    return quote || nesting ? NULL : at;
}

bool problem_is_word(const char *value)
{
    const char *end = word_end(value);
    return end && *end == '\0' && !strchr(value, '#');
}

/* A copy of [begin, end) without enclosing quotes. */
static char *copy_value(arena *memory, const char *begin, const char *end)
{
    if (end - begin >= 2 && (*begin == '\'' || *begin == '"') && end[-1] == *begin) {
        begin++;
        end--;
    }
    char *copy = arena_alloc(memory, (size_t)(end - begin) + 1, 1);
    memcpy(copy, begin, (size_t)(end - begin));
    return copy;
}

static ckl_status add_pair(arena *memory, const char *begin, const char *end, problem_line *out)
{
    const char *equals = memchr(begin, '=', (size_t)(end - begin));
    if (!equals || equals == begin)
        FAIL(CKL_INVALID, "%s: '%.*s' is not key=value", out->op, (int)(end - begin), begin);
    if (out->count == PAIRS_MAX)
        FAIL(CKL_INVALID, "%s: more than %d keys in one line", out->op, PAIRS_MAX);
    problem_pair pair = { copy_value(memory, begin, equals), copy_value(memory, equals + 1, end) };
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->pairs[i].key, pair.key) == 0)
            FAIL(CKL_INVALID, "%s: %s is given twice", out->op, pair.key);
    out->pairs[out->count++] = pair;
    return CKL_OK;
}

ckl_status problem_split(arena *memory, const char *line, problem_line *out)
{
    problem_line split = { .pairs = arena_alloc(memory, PAIRS_MAX, sizeof(problem_pair)) };
    for (const char *at = line, *end;; at = end) {
        while (isspace((unsigned char)*at))
            at++;
        if (*at == '\0' || *at == '#')
            break;
        end = word_end(at);
        if (!end)
            FAIL(CKL_INVALID, "problem line: a quote or parenthesis is not closed in '%s'", at);
        if (split.op)
            TRY(add_pair(memory, at, end, &split));
        else if (memchr(at, '=', (size_t)(end - at)))
            FAIL(CKL_INVALID, "problem line: '%s' does not start with an operator", at);
        else
            split.op = copy_value(memory, at, end);
    }
    *out = split;
    return CKL_OK;
}
