/* desc.c - descs as text, member by member: fields by the operator's table, arrays by its list of members. */
#include "plan/desc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math.h"

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

/* Printing */

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
    for (const field *f = op->desc.rows; f < op->desc.rows + op->desc.count; f++)
        if (!is_zero((const char *)desc + f->offset, field_bytes(f))) {
            text_printf(out, " %s=", f->name);
            field_print(f, (const char *)desc + f->offset, out);
        }
    for (const desc_member *m = op->members; m && m->bytes; m++)
        if (!is_zero((const char *)desc + m->offset, m->bytes)) {
            text_printf(out, " %s=", m->name);
            print_member(m, desc, out);
        }
}

/* Reading */

static ckl_status set_characters(const operator_info *op, const desc_member *m, const char *value, char *at)
{
    if (strlen(value) >= m->bytes)
        FAIL(CKL_INVALID, "%s: %s has more than %zu characters", op->name, m->name, m->bytes - 1);
    memset(at, 0, m->bytes);
    memcpy(at, value, strlen(value));
    return CKL_OK;
}

/* A list as print_member() writes it. */
static ckl_status set_member(const operator_info *op, const desc_member *m, const char *value, void *desc)
{
    enum { WORD_BYTES = 64 };
    char *at = (char *)desc + m->offset, word[WORD_BYTES];
    if (m->kind == FIELD_quoted)
        return set_characters(op, m, value, at);
    field f = field_of(m);
    const field_table one = { &f, 1 };
    memset(at, 0, m->bytes);
    for (int i = 0, count = elements_of(m);; i++, at += field_bytes(&f)) {
        int length = (int)strcspn(value, ",");
        if (i == count || length >= WORD_BYTES)
            FAIL(CKL_INVALID, "%s: %s takes a list of up to %d", op->name, m->name, count);
        snprintf(word, sizeof word, "%.*s", length, value);
        TRY(fields_set(one, op->name, m->name, word, at));
        value += length;
        if (!*value++)
            return CKL_OK;
    }
}

ckl_status plan_desc_set(const operator_info *op, const char *name, const char *value, void *desc)
{
    for (const desc_member *m = op->members; m && m->bytes; m++)
        if (strcmp(m->name, name) == 0)
            return set_member(op, m, value, desc);
    return fields_set(op->desc, op->name, name, value, desc);
}

/* Distance */

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
    for (const field *f = op->desc.rows; f < op->desc.rows + op->desc.count; f++)
        most = fmax(most, distance(f->kind, x + f->offset, y + f->offset, field_bytes(f)));
    for (const desc_member *m = op->members; m && m->bytes; m++)
        most = fmax(most, distance(m->kind, x + m->offset, y + m->offset, m->bytes));
    return most;
}
