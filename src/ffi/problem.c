/* problem.c - problem lines and descs from arguments. */
#include "ffi/problem.h"

#include <string.h>

#include "base/heap.h"

typedef struct reading {
    const operator_info *op;
    TVMFFIByteArray line;
    ffi_desc *desc;
} reading;

static ckl_status read_line(void *user)
{
    reading *r = user;
    arena memory = { 0 };
    text line = { 0 };
    problem_line split;
    const char *force = NULL;
    text_printf(&line, "%s ", r->op->name);
    text_append(&line, r->line.data, r->line.size);
    ckl_status status = problem_split(&memory, text_data(&line), &split);
    if (status == CKL_OK)
        status = r->op->read(&split, &memory, r->desc->bytes, &force);
    if (status == CKL_OK && force)
        status = status_fail(CKL_INVALID, "%s: impl= and config= are not taken here: the plan chooses", r->op->name);
    text_free(&line);
    arena_clear(&memory);
    return status;
}

ckl_status ffi_problem(const operator_info *op, const TVMFFIAny *value, ffi_desc *desc)
{
    reading r = { .op = op, .desc = desc };
    if (value_text(value, &r.line))
        return heap_guard(op->name, read_line, &r);
    TVMFFIByteArray bytes;
    if (!value_bytes(value, &bytes) || bytes.size != op->desc_bytes)
        FAIL(CKL_INVALID, "%s: the problem is neither a line nor the %zu bytes of a desc", op->name, op->desc_bytes);
    memcpy(desc->bytes, bytes.data, bytes.size);
    return CKL_OK;
}
