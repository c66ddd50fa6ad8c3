/* case.c - from a problem line to the operator's problem struct, and back. */
#include "lab/case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operators, lines and tests are in one order. */
static const operator_test *test_of(const operator_line *of)
{
    int i = 0;
    while (operator_lines[i] != of)
        i++;
    return operator_tests[i];
}

ckl_status case_operator(const char *name, const operator_test **test)
{
    const operator_line *of;
    TRY(line_operator(name, &of));
    *test = test_of(of);
    return CKL_OK;
}

ckl_status case_config(test_case *c, const char *config)
{
    return line_config(&c->memory, c->test->op->name, config, &c->keys);
}

ckl_status case_copy(const test_case *from, const char *config, test_case *out)
{
    *out = *from;
    out->keys.config = "";
    out->memory = (arena){ 0 };
    return case_config(out, config);
}

ckl_status case_parse(const char *line, test_case *out)
{
    *out = (test_case){ 0 };
    line_problem read;
    TRY(line_read(&out->memory, line, &read));
    out->test = test_of(read.of);
    out->problem = read.problem;
    out->keys = read.keys;
    out->fill_given = read.fill_given;

    text given = { 0 };
    fields_print(read.of->problem, out->problem, true, &given);
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
    fields_print(line_key_table, &c->keys, true, &keys);
    text_printf(out, "%s%s%s%s%s", c->test->op->name, *c->fields ? " " : "", c->fields, keys.length ? " " : "",
                text_data(&keys));
    text_free(&keys);
}

const char *case_force(const test_case *c, arena *memory)
{
    return line_force(&c->keys, memory);
}

void *case_desc(const test_case *c, arena *memory)
{
    void *desc = arena_alloc(memory, 1, c->test->op->desc_bytes);
    adapter_desc(c->test, c->problem, desc);
    return desc;
}

ckl_status case_choose(const test_case *c, const ckl_device_info *device, arena *memory, const implementation **impl,
                       void **config)
{
    return plan_choose(device, c->test->op, case_desc(c, memory), case_force(c, memory), memory, impl, config);
}

ckl_status case_plan(const test_case *c, ckl_device *device, ckl_plan **plan)
{
    arena memory = { 0 };
    ckl_status status = plan_build(device, c->test->op, case_desc(c, &memory), case_force(c, &memory), plan);
    arena_clear(&memory);
    return status;
}

ckl_status suite_read(const char *path, ckl_status (*visit)(const char *line, void *user), void *user)
{
    bool given = strcmp(path, "-") == 0;
    FILE *file = given ? stdin : fopen(path, "r");
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
    if (!given)
        fclose(file);
    return status;
}
