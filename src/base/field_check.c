/* field_check.c - may a field hold its value? Sentences name the field, the value and the limit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fields.h"
#include "base/number.h"

enum { WORD_MAX = 64 };

/* The field that is checked, and the start of its sentence, "rope: theta=0.5 ". */
typedef struct subject {
    const char *what;
    const field *f;
    const void *member;
} subject;

static ckl_status refuse(const subject *s, const char *why, const char *limit)
{
    text value = { 0 };
    field_print(s->f, s->member, &value);
    status_fail(CKL_INVALID, "%s: %s=%s %s%s", s->what, s->f->name, text_data(&value), why, limit);
    text_free(&value);
    return CKL_INVALID;
}

/* "is none of f32, f16": of a list separated by spaces. */
static ckl_status refuse_list(const subject *s, const char *list)
{
    text names = { 0 };
    for (; *list; list++)
        text_printf(&names, *list == ' ' ? ", " : "%c", *list);
    ckl_status status = refuse(s, "is none of ", text_data(&names));
    text_free(&names);
    return status;
}

/* The bounds of "1..2^16"; one that is left out is infinite. */
static void parse_bounds(const char *range, double *low, double *high)
{
    const char *end = strstr(range, "..") + 2;
    float bound;
    *low = number_float(&range, &bound) ? (double)bound : -INFINITY;
    *high = number_float(&end, &bound) ? (double)bound : INFINITY;
}

static ckl_status check_bounds(const subject *s, double value)
{
    double low, high;
    const char *range = *s->f->range ? field_range(s->f) : "0..";
    parse_bounds(range, &low, &high);
    if (value >= low && value <= high)
        return CKL_OK;
    if (value < 0 && low >= 0)
        return refuse(s, "is negative", "");
    if (high < INFINITY)
        return refuse(s, "is not in ", range);
    char least[WORD_MAX];
    snprintf(least, sizeof least, "%.*s", (int)strcspn(range, "."), range);
    return refuse(s, "is less than ", least);
}

static ckl_status check_integer(const subject *s, int64_t value)
{
    const char *range = field_range(s->f);
    if (!*range || strstr(range, ".."))
        return check_bounds(s, (double)value);
    for (const char *at = range; *at; at += *at == ' ') {
        int64_t listed;
        if (number_integer(&at, &listed) && listed == value)
            return CKL_OK;
    }
    return refuse_list(s, range);
}

static ckl_status check_int64(const subject *s)
{
    return check_integer(s, *(const int64_t *)s->member);
}

static ckl_status check_int(const subject *s)
{
    return check_integer(s, *(const int *)s->member);
}

static ckl_status check_float(const subject *s)
{
    double value = (double)*(const float *)s->member;
    if (!isfinite(value))
        return refuse(s, "is not finite", "");
    return strstr(s->f->range, "..") ? check_bounds(s, value) : CKL_OK;
}

/* A dtype without a default may be left out: it follows from the others. */
static ckl_status check_dtype(const subject *s)
{
    ckl_dtype dtype = *(const ckl_dtype *)s->member;
    const char *range = field_range(s->f), *name = ckl_dtype_name(dtype);
    if (dtype == CKL_DTYPE_DEFAULT && !*s->f->value)
        return CKL_OK;
    if (!*range)
        return ckl_dtype_bytes(dtype) ? CKL_OK : refuse(s, "is not an element type", "");
    for (int i = 0, length; (length = field_word(range, i, &range)) > 0; i = 1)
        if (strlen(name) == (size_t)length && strncmp(range, name, (size_t)length) == 0)
            return CKL_OK;
    return refuse_list(s, field_range(s->f));
}

static ckl_status check_choice(const subject *s)
{
    const char *word;
    int value = *(const int *)s->member;
    return value >= 0 && field_word(s->f->range, value, &word) ? CKL_OK : refuse_list(s, s->f->range);
}

static ckl_status check_nothing(const subject *s)
{
    (void)s;
    return CKL_OK;
}

static ckl_status (*const checks[])(const subject *s) = {
    [FIELD_int] = check_int,       [FIELD_int64_t] = check_int64,   [FIELD_float] = check_float,
    [FIELD_bool] = check_nothing,  [FIELD_ckl_dtype] = check_dtype, [FIELD_choice] = check_choice,
    [FIELD_quoted] = check_nothing
};

ckl_status fields_check(field_table table, const char *what, void *object)
{
    for (int i = 0; i < table.count; i++) {
        const field *f = &table.rows[i];
        const subject s = { what, f, (char *)object + f->offset };
        if (*f->range == FIELD_OPTIONAL && field_is_zero(f, s.member))
            fields_default((field_table){ f, 1 }, object);
        TRY(checks[f->kind](&s));
    }
    return CKL_OK;
}
