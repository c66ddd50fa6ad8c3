/* case.c - from a problem line to the operator's problem struct, and back. */
#include "lab/case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/problem.h"

static const field case_key_rows[] = { CASE_KEYS(FIELD_ROW) };
const field_table case_key_table = FIELD_TABLE(case_key_rows);

ckl_status case_operator(const char *name, const operator_test **test)
{
    const char *names[64] = { 0 };
    int count = 0;
    for (; operator_tests[count] && count < COUNT_OF(names); count++) {
        names[count] = operator_tests[count]->op->name;
        if (strcmp(names[count], name) == 0) {
            *test = operator_tests[count];
            return CKL_OK;
        }
    }
    const char *near = nearest_word(name, names, count);
    text list = { 0 };
    for (int i = 0; i < count; i++)
        text_printf(&list, " %s", names[i]);
    status_fail(CKL_INVALID, "unknown operator '%s'%s%s%s Known operators:%s", name, near ? ", did you mean '" : ".",
                near ? near : "", near ? "'?" : "", text_data(&list));
    text_free(&list);
    return CKL_INVALID;
}

/* The common keys first; what neither table knows is reported with the keys of both. */
static ckl_status set_pair(test_case *c, const problem_pair *pair)
{
    const char *op = c->test->op->name;
    const field_table tables[] = { c->test->problem, case_key_table };
    if (fields_find(c->test->problem, pair->key))
        return fields_set(c->test->problem, op, pair->key, pair->value, c->problem);
    c->fill_given |= strcmp(pair->key, "fill") == 0;
    if (fields_find(case_key_table, pair->key))
        return fields_set(case_key_table, op, pair->key, pair->value, &c->keys);
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

/* "tile_m=128,stages=3" needs no quotes in a shell. Commas in parentheses belong to an expression. */
static char *spaces_for_commas(char *config)
{
    int nesting = 0;
    for (char *at = config; *at; at++) {
        nesting += (*at == '(') - (*at == ')');
        if (*at == ',' && nesting == 0)
            *at = ' ';
    }
    return config;
}

ckl_status case_config(test_case *c, const char *config)
{
    const char *rest = spaces_for_commas(arena_text(&c->memory, config));
    const char *name = take_name(&rest, &c->memory);
    if (strcmp(name, c->test->op->name) == 0)
        name = take_name(&rest, &c->memory);
    if (*name) {
        c->keys.impl = name;
        const char *second = take_name(&rest, &c->memory);
        if (*second)
            FAIL(CKL_INVALID, "%s: config: '%s' is not key=value", c->test->op->name, second);
    }
    c->keys.config = rest;
    if (*rest && !*c->keys.impl)
        FAIL(CKL_INVALID, "%s: config='%s' needs an implementation before it, or impl=", c->test->op->name, rest);
    return CKL_OK;
}

static ckl_status check_keys(test_case *c)
{
    const char *impl = c->keys.impl;
    TRY(case_config(c, c->keys.config));
    if (*impl && strcmp(impl, c->keys.impl) != 0)
        FAIL(CKL_INVALID, "%s: impl=%s, but config= is one of %s", c->test->op->name, impl, c->keys.impl);
    if (c->keys.misalign < 0 || c->keys.misalign > 4096)
        FAIL(CKL_INVALID, "%s: misalign=%d is not 0..4096", c->test->op->name, c->keys.misalign);
    if (c->keys.stagger < 0 || c->keys.stagger > 4096)
        FAIL(CKL_INVALID, "%s: stagger=%d is not 0..4096", c->test->op->name, c->keys.stagger);
    return CKL_OK;
}

ckl_status case_parse(const char *line, test_case *out)
{
    *out = (test_case){ 0 };
    problem_line split;
    TRY(problem_split(&out->memory, line, &split));
    if (!split.op)
        FAIL(CKL_INVALID, "problem line: there is none; an example is 'gemm m=512 n=512 k=512 a=f16'");
    TRY(case_operator(split.op, &out->test));

    out->problem = arena_alloc(&out->memory, 1, out->test->problem_bytes);
    fields_default(out->test->problem, out->problem);
    fields_default(case_key_table, &out->keys);
    for (int i = 0; i < split.count; i++)
        TRY(set_pair(out, &split.pairs[i]));
    TRY(check_keys(out));

    text given = { 0 };
    fields_print(out->test->problem, out->problem, true, &given);
    out->fields = arena_text(&out->memory, text_data(&given));
    text_free(&given);
    return adapter_prepare(out->test, out->problem);
}

void case_clear(test_case *c)
{
    arena_clear(&c->memory);
    *c = (test_case){ 0 };
}

void case_print(const test_case *c, text *out)
{
    text keys = { 0 };
    fields_print(case_key_table, &c->keys, true, &keys);
    text_printf(out, "%s%s%s%s%s", c->test->op->name, *c->fields ? " " : "", c->fields, keys.length ? " " : "",
                text_data(&keys));
    text_free(&keys);
}

const char *case_force(const test_case *c, arena *memory)
{
    if (!*c->keys.impl)
        return NULL;
    size_t length = strlen(c->keys.impl) + strlen(c->keys.config) + 2;
    char *force = arena_alloc(memory, length, 1);
    snprintf(force, length, "%s %s", c->keys.impl, c->keys.config);
    return force;
}

ckl_status case_plan(const test_case *c, ckl_device *device, ckl_plan **plan)
{
    arena memory = { 0 };
    void *desc = arena_alloc(&memory, 1, c->test->op->desc_bytes);
    adapter_desc(c->test, c->problem, desc);
    ckl_status status = plan_build(device, c->test->op, desc, case_force(c, &memory), plan);
    arena_clear(&memory);
    return status;
}

ckl_status suite_read(const char *path, ckl_status (*visit)(const char *line, void *user), void *user)
{
    FILE *file = fopen(path, "r");
    if (!file)
        FAIL(CKL_INVALID, "suite %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    ckl_status status = CKL_OK;
    for (int number = 1; status == CKL_OK && getline(&line, &capacity, file) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (strchr("#", line[strspn(line, " \t")])) // also at the end: strchr finds the terminator
            continue;
        status = visit(line, user);
        if (status != CKL_OK)
            status_fail(status, "%s:%d: %s", path, number, ckl_error());
    }
    free(line);
    fclose(file);
    return status;
}
