/* line.c - the operator's name, its keys and those of all lines. */
#include "operators/line.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/problem.h"

static const field line_key_rows[] = { LINE_KEYS(FIELD_ROW) };
const field_table line_key_table = FIELD_TABLE(line_key_rows);

ckl_status line_operator(const char *name, const operator_line **of)
{
    const char *names[64] = { 0 };
    int count = 0;
    for (; operator_lines[count] && count < COUNT_OF(names); count++) {
        names[count] = operator_lines[count]->op->name;
        if (strcmp(names[count], name) == 0) {
            *of = operator_lines[count];
            return CKL_OK;
        }
    }
    text why = { 0 };
    words_explain(name, names, count, "Known operators:", &why);
    status_fail(CKL_INVALID, "unknown operator %s", text_data(&why));
    text_free(&why);
    return CKL_INVALID;
}

/* The operator's keys first; what neither table knows is reported with the keys of both. */
static ckl_status set_pair(line_problem *p, const problem_pair *pair)
{
    const char *op = p->of->op->name;
    const field_table tables[] = { p->of->problem, line_key_table };
    if (fields_find(p->of->problem, pair->key))
        return fields_set(p->of->problem, op, pair->key, pair->value, p->problem);
    p->fill_given |= strcmp(pair->key, "fill") == 0;
    if (fields_find(line_key_table, pair->key))
        return fields_set(line_key_table, op, pair->key, pair->value, &p->keys);
    return fields_unknown(op, pair->key, tables, COUNT_OF(tables));
}

/* The word at *at, which moves past it; "" if it is name=value, a comment or the end. */
static const char *take_name(const char **at, arena *memory)
{
    *at += strspn(*at, " ");
    size_t length = strcspn(*at, " #");
    if (memchr(*at, '=', length))
        return "";
    char *name = arena_alloc(memory, length + 1, 1);
    memcpy(name, *at, length);
    *at += length + strspn(*at + length, " ");
    return name;
}

/* Has it letters, digits and underscores alone, as implementations have? */
static bool is_name(const char *word)
{
    while (isalnum((unsigned char)*word) || *word == '_')
        word++;
    return *word == '\0';
}

/* "tile_m=128,stages=3" needs no quotes in a shell. Commas in parentheses belong to an expression. */
static char *spaces_for_commas(char *config)
{
    int nesting = 0;
    for (char *at = config; *at; at++) {
        nesting += (*at == '(') - (*at == ')' && nesting > 0);
        if (*at == ',' && nesting == 0)
            *at = ' ';
    }
    return config;
}

ckl_status line_config(arena *memory, const char *op, const char *config, line_keys *keys)
{
    const char *rest = spaces_for_commas(arena_text(memory, config));
    const char *name = take_name(&rest, memory);
    if (strcmp(name, op) == 0)
        name = take_name(&rest, memory);
    if (*name) {
        if (!is_name(name))
            FAIL(CKL_INVALID, "%s: config: '%s' is no implementation's name", op, name);
        keys->impl = name;
        const char *second = take_name(&rest, memory);
        if (*second)
            FAIL(CKL_INVALID, "%s: config: '%s' is not key=value", op, second);
    }
    keys->config = rest;
    if (*rest && !*keys->impl)
        FAIL(CKL_INVALID, "%s: config='%s' needs an implementation before it, or impl=", op, rest);
    return CKL_OK;
}

static ckl_status check_keys(arena *memory, const char *op, line_keys *keys)
{
    const char *impl = keys->impl;
    TRY(line_config(memory, op, keys->config, keys));
    if (*impl && strcmp(impl, keys->impl) != 0)
        FAIL(CKL_INVALID, "%s: impl=%s, but config= is one of %s", op, impl, keys->impl);
    if (keys->misalign < 0 || keys->misalign > 4096)
        FAIL(CKL_INVALID, "%s: misalign=%d is not 0..4096", op, keys->misalign);
    if (keys->stagger < 0 || keys->stagger > 4096)
        FAIL(CKL_INVALID, "%s: stagger=%d is not 0..4096", op, keys->stagger);
    return CKL_OK;
}

/* The keys of a line of that operator. */
static ckl_status set_pairs(arena *memory, const problem_line *split, line_problem *out)
{
    out->problem = arena_alloc(memory, 1, out->of->problem_bytes);
    fields_default(out->of->problem, out->problem);
    fields_default(line_key_table, &out->keys);
    for (int i = 0; i < split->count; i++)
        TRY(set_pair(out, &split->pairs[i]));
    return check_keys(memory, out->of->op->name, &out->keys);
}

ckl_status line_read(arena *memory, const char *line, line_problem *out)
{
    problem_line split;
    *out = (line_problem){ 0 };
    TRY(problem_split(memory, line, &split));
    if (!split.op)
        FAIL(CKL_INVALID, "problem line: there is none; an example is 'gemm m=512 n=512 k=512 a=f16'");
    TRY(line_operator(split.op, &out->of));
    return set_pairs(memory, &split, out);
}

ckl_status operator_read(const operator_line *of, const problem_line *line, arena *memory, void *desc,
                         const char **force)
{
    line_problem read = { .of = of };
    TRY(set_pairs(memory, line, &read));
    TRY(line_prepare(of, read.problem));
    memcpy(desc, read.problem, of->op->desc_bytes);
    *force = line_force(&read.keys, memory);
    return CKL_OK;
}

ckl_status line_prepare(const operator_line *of, void *problem)
{
    if (of->prepare)
        TRY(of->prepare(problem));
    return plan_check_desc(of->op, problem);
}

const char *line_force(const line_keys *keys, arena *memory)
{
    if (!*keys->impl)
        return NULL;
    size_t length = strlen(keys->impl) + strlen(keys->config) + 2;
    char *force = arena_alloc(memory, length, 1);
    snprintf(force, length, "%s %s", keys->impl, keys->config);
    return force;
}
