/* desc.c - descs member by member: fields by the operator's table, arrays by its list of members. */
#include "plan/desc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"

/* Checked, and as keys */

ckl_status plan_check_desc(const operator_info *op, void *desc)
{
    plan_tensor tensors[PLAN_TENSORS_MAX];
    TRY(fields_check(op->desc, op->name, desc));
    if (op->check)
        TRY(op->check(desc));
    return op->tensors ? plan_check_extents(op->name, tensors, op->tensors(desc, tensors)) : CKL_OK;
}

ckl_status plan_desc_checked(const operator_info *op, const void *desc, arena *memory, checked_desc **checked)
{
    if (!desc)
        FAIL(CKL_INVALID, "%s: desc is NULL", op->name);
    void *copy = arena_alloc(memory, 1, op->desc_bytes);
    memcpy(copy, desc, op->desc_bytes);
    TRY(plan_check_desc(op, copy));
    checked_desc *made = arena_alloc(memory, 1, sizeof *made);
    made->tensor_count = op->tensors ? op->tensors(copy, made->tensors) : 0;
    made->empty = plan_is_empty(made->tensors, made->tensor_count);
    for (int i = 0; i < made->tensor_count; i++)
        made->tensors[i].optional |= made->empty;
    void *view = op->view ? arena_alloc(memory, 1, op->view_bytes) : copy;
    if (op->view)
        TRY(op->view(copy, view));
    made->desc = copy;
    made->view = view;
    *checked = made;
    return CKL_OK;
}

ckl_status plan_desc(const operator_info *op, const void *desc, arena *memory, const void **view)
{
    checked_desc *checked = NULL;
    TRY(plan_desc_checked(op, desc, memory, &checked));
    *view = checked->view;
    return CKL_OK;
}

/* Field by field: padding between them does not count. */
void plan_desc_key(const operator_info *op, const void *desc, void *key)
{
    memset(key, 0, op->desc_bytes);
    for (int i = 0; i < op->desc.count; i++) {
        const field *f = &op->desc.rows[i];
        memcpy((char *)key + f->offset, (const char *)desc + f->offset, field_bytes(f));
    }
    for (const desc_member *m = op->members; m && m->bytes; m++)
        memcpy((char *)key + m->offset, (const char *)desc + m->offset, m->bytes);
}

/* As text */

/* A member as a field of its own. */
static field field_of(const desc_member *m)
{
    return (field){ .name = m->name, .kind = m->kind, .value = "0", .range = "" };
}

static int elements_of(const desc_member *m)
{
    field f = field_of(m);
    return (int)(m->bytes / field_bytes(&f));
}

static bool is_zero(const void *at, size_t bytes)
{
    const unsigned char *byte = at;
    for (size_t i = 0; i < bytes; i++)
        if (byte[i])
            return false;
    return true;
}

static void print_characters(const char *characters, text *out)
{
    quoted value = characters;
    field f = { .kind = FIELD_quoted };
    field_print(&f, &value, out);
}

/* "8,77,64": zeros at the end are left out. */
static void print_member(const desc_member *m, const void *desc, text *out)
{
    const char *at = (const char *)desc + m->offset;
    field f = field_of(m);
    size_t bytes = field_bytes(&f);
    if (m->kind == FIELD_quoted) {
        print_characters(at, out);
        return;
    }
    for (int i = 0, count = elements_of(m); i < count && !is_zero(at, (size_t)(count - i) * bytes); i++, at += bytes) {
        text_append(out, ",", i > 0);
        field_print(&f, at, out);
    }
}

void plan_desc_print(const operator_info *op, const void *desc, text *out)
{
    text_printf(out, "%s", op->name);
    for (int i = 0; i < op->desc.count; i++) {
        const field *f = &op->desc.rows[i];
        const char *at = (const char *)desc + f->offset;
        if (is_zero(at, field_bytes(f)))
            continue;
        text_printf(out, " %s=", f->name);
        field_print(f, at, out);
    }
    for (const desc_member *m = op->members; m && m->bytes; m++)
        if (!is_zero((const char *)desc + m->offset, m->bytes)) {
            text_printf(out, " %s=", m->name);
            print_member(m, desc, out);
        }
}

/* How far they are apart */

static double distance(field_kind kind, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0)
        return 0;
    if (kind != FIELD_int64_t)
        return INFINITY;
    double most = 0;
    for (size_t i = 0; i < bytes; i += sizeof(int64_t)) {
        int64_t x, y;
        memcpy(&x, (const char *)a + i, sizeof x);
        memcpy(&y, (const char *)b + i, sizeof y);
        if (x != y)
            most = x > 0 && y > 0 ? fmax(most, fabs(log2((double)x / (double)y))) : INFINITY;
    }
    return most;
}

double plan_desc_distance(const operator_info *op, const void *a, const void *b)
{
    double most = 0;
    const char *x = a, *y = b;
    for (int i = 0; i < op->desc.count; i++) {
        const field *f = &op->desc.rows[i];
        most = fmax(most, distance(f->kind, x + f->offset, y + f->offset, field_bytes(f)));
    }
    for (const desc_member *m = op->members; m && m->bytes; m++)
        most = fmax(most, distance(m->kind, x + m->offset, y + m->offset, m->bytes));
    return most;
}
