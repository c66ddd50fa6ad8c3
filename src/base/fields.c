/* fields.c - parsing and printing by field table. */
#include "base/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "base/number.h"
#include "base/problem.h"

enum { WORD_MAX = 64 };

static const struct {
    size_t bytes;
    const char *wanted; // completes "gemm: m=abc is not ..."
} kinds[] = {
    [FIELD_int] = { sizeof(int), "an integer of 32 bits, such as 16 or 2^4" },
    [FIELD_int64_t] = { sizeof(int64_t), "an integer of 64 bits, such as 4096 or 2^12" },
    [FIELD_float] = { sizeof(float), "a number" },
    [FIELD_bool] = { sizeof(bool), "0 or 1" },
    [FIELD_ckl_dtype] = { sizeof(ckl_dtype), "one of" },
    [FIELD_choice] = { sizeof(int), "one of" },
    [FIELD_quoted] = { sizeof(char *), "text without quotes" },
};

/* A member of any kind. */
typedef union any {
    int i;
    int64_t wide;
    float f;
    bool b;
    ckl_dtype dtype;
    const char *text;
} any;

int field_word(const char *list, int index, const char **word)
{
    for (;; index--) {
        list += strspn(list, " ");
        int length = (int)strcspn(list, " ");
        if (index == 0 || length == 0) {
            *word = list;
            return length;
        }
        list += length;
    }
}

static bool parse_integer(const char *at, int64_t low, int64_t high, int64_t *value)
{
    return number_integer(&at, value) && *at == '\0' && *value >= low && *value <= high;
}

static bool parse_bool(const char *value, bool *parsed)
{
    static const char *const names[] = { "", "0", "no", "false", "1", "yes", "true" };
    int i = 0;
    while (i < COUNT_OF(names) && strcmp(value, names[i]) != 0)
        i++;
    *parsed = i > 3;
    return i < COUNT_OF(names);
}

static bool parse_choice(const field *f, const char *value, int *parsed)
{
    const char *word;
    *parsed = 0;
    for (int length; (length = field_word(f->range, *parsed, &word)) > 0; ++*parsed)
        if ((strlen(value) == (size_t)length && strncmp(word, value, (size_t)length) == 0) || *value == '\0')
            return true;
    return false;
}

static bool parse(const field *f, const char *value, any *out)
{
    int64_t narrow;
    switch (f->kind) {
    case FIELD_int:
        if (!parse_integer(value, INT32_MIN, INT32_MAX, &narrow))
            return false;
        out->i = (int)narrow;
        return true;
    case FIELD_int64_t:
        return parse_integer(value, INT64_MIN, INT64_MAX, &out->wide);
    case FIELD_float:
        return number_float(&value, &out->f) && !*value;
    case FIELD_bool:
        return parse_bool(value, &out->b);
    case FIELD_ckl_dtype:
        out->dtype = CKL_DTYPE_DEFAULT;
        return !*value || strcmp(value, ckl_dtype_name(CKL_DTYPE_DEFAULT)) == 0 || dtype_find(value, &out->dtype);
    case FIELD_choice:
        return parse_choice(f, value, &out->i);
    default: // text; quotes inside could not be printed again
        out->text = value;
        return !strpbrk(value, "'\"");
    }
}

static bool parse_member(const field *f, const char *value, void *member)
{
    any parsed;
    if (!parse(f, value, &parsed))
        return false;
    memcpy(member, &parsed, kinds[f->kind].bytes);
    return true;
}

/* The text; the default if NULL, as in a desc made in C. */
static const char *quoted_of(const field *f, const void *member)
{
    const char *value = *(const char *const *)member;
    return value ? value : f->value;
}

static void print_choice(const field *f, int value, text *out)
{
    const char *word;
    int length = value < 0 ? 0 : field_word(f->range, value, &word);
    if (length)
        text_append(out, word, (size_t)length);
    else
        text_printf(out, "%d", value); // not one of the names: a desc made in C
}

static void print_dtype(ckl_dtype value, text *out)
{
    if ((unsigned)value < CKL_DTYPE_COUNT)
        text_printf(out, "%s", ckl_dtype_name(value));
    else
        text_printf(out, "%d", (int)value);
}

void field_print(const field *f, const void *member, text *out)
{
    switch (f->kind) {
    case FIELD_int:
        text_printf(out, "%d", *(const int *)member);
        break;
    case FIELD_int64_t:
        text_printf(out, "%" PRId64, *(const int64_t *)member);
        break;
    case FIELD_float:
        text_printf(out, "%.9g", (double)*(const float *)member);
        break;
    case FIELD_bool:
        text_append(out, *(const bool *)member ? "1" : "0", 1);
        break;
    case FIELD_ckl_dtype:
        print_dtype(*(const ckl_dtype *)member, out);
        break;
    case FIELD_choice:
        print_choice(f, *(const int *)member, out);
        break;
    default:
        text_printf(out, problem_is_word(quoted_of(f, member)) ? "%s" : "'%s'", quoted_of(f, member));
    }
}

size_t field_bytes(const field *f)
{
    return kinds[f->kind].bytes;
}

void fields_default(field_table table, void *object)
{
    for (int i = 0; i < table.count; i++) {
        const field *f = &table.rows[i];
        void *member = (char *)object + f->offset;
        if (strcmp(f->value, "0") == 0) // a short cut: most are, of some thirty in every config
            memset(member, 0, field_bytes(f));
        else
            parse_member(f, f->value, member);
    }
}

const field *fields_find(field_table table, const char *name)
{
    for (int i = 0; i < table.count; i++)
        if (strcmp(table.rows[i].name, name) == 0)
            return &table.rows[i];
    return NULL;
}

const char *field_range(const field *f)
{
    return f->range + (*f->range == FIELD_OPTIONAL);
}

bool field_is_zero(const field *f, const void *member)
{
    static const char zero[sizeof(int64_t)];
    return memcmp(member, zero, kinds[f->kind].bytes) == 0;
}

const field *fields_difference(field_table table, const void *a, const void *b)
{
    for (int i = 0; i < table.count; i++) {
        const field *f = &table.rows[i];
        const void *of_a = (const char *)a + f->offset, *of_b = (const char *)b + f->offset;
        if (f->kind == FIELD_quoted ? strcmp(quoted_of(f, of_a), quoted_of(f, of_b))
                                    : memcmp(of_a, of_b, field_bytes(f)))
            return f;
    }
    return NULL;
}

void field_choices(const field *f, text *out)
{
    text_printf(out, "%s", f->kind == FIELD_bool ? "0 1" : field_range(f));
    for (int i = 1; i < CKL_DTYPE_COUNT && f->kind == FIELD_ckl_dtype && !*field_range(f); i++)
        text_printf(out, i > 1 ? " %s" : "%s", ckl_dtype_name((ckl_dtype)i));
}

/* The choice of a field nearest to a mistyped word, copied to `memory`. */
static const char *nearest_choice(const char *value, const char *choices, char memory[WORD_MAX])
{
    const char *names[WORD_MAX];
    char copies[WORD_MAX][WORD_MAX];
    int count = 0;
    for (int length; count < WORD_MAX && (length = field_word(choices, count, &names[count])) > 0; count++) {
        snprintf(copies[count], WORD_MAX, "%.*s", length, names[count]);
        names[count] = copies[count];
    }
    const char *near = nearest_word(value, names, count);
    return near ? memcpy(memory, near, WORD_MAX) : NULL;
}

/* Fails with a sentence on what the field takes. */
static ckl_status refuse(const field *f, const char *what, const char *value)
{
    bool named = f->kind == FIELD_choice || f->kind == FIELD_ckl_dtype;
    char memory[WORD_MAX];
    text choices = { 0 };
    if (named)
        field_choices(f, &choices);
    const char *near = nearest_choice(value, text_data(&choices), memory);
    status_fail(CKL_INVALID, "%s: %s=%s is not %s%s%s%s%s%s", what, f->name, value, kinds[f->kind].wanted,
                named ? " " : "", text_data(&choices), near ? ", did you mean '" : "", near ? near : "",
                near ? "'?" : "");
    text_free(&choices);
    return CKL_INVALID;
}

ckl_status fields_set(field_table table, const char *what, const char *name, const char *value, void *object)
{
    const field *f = fields_find(table, name);
    if (!f)
        return fields_unknown(what, name, &table, 1);
    void *member = (char *)object + f->offset;
    if (!parse_member(f, value, member))
        return refuse(f, what, value);
    if (*f->range == FIELD_OPTIONAL && field_is_zero(f, member))
        FAIL(CKL_INVALID, "%s: %s=%s is as if it were not given: leave it out", what, f->name, value);
    return CKL_OK;
}

static bool is_default(const field *f, const void *member)
{
    if (f->kind == FIELD_quoted)
        return strcmp(quoted_of(f, member), f->value) == 0;
    any value;
    parse(f, f->value, &value);
    return memcmp(&value, member, kinds[f->kind].bytes) == 0;
}

/* Is text left out wherever it is the default? */
static bool may_be_unsaid(const field *f)
{
    return f->kind == FIELD_quoted && *f->range == FIELD_OPTIONAL;
}

/* What is left out: nothing, fields at their defaults, or of these those that are 0. */
static void print_but(field_table table, const void *object, bool defaults, bool zeros, text *out)
{
    const char *separator = "";
    for (int i = 0; i < table.count; i++) {
        const field *f = &table.rows[i];
        const void *member = (const char *)object + f->offset;
        if (is_default(f, member) && (defaults || (zeros && field_is_zero(f, member)) || may_be_unsaid(f)))
            continue;
        text_printf(out, "%s%s=", separator, f->name);
        field_print(f, member, out);
        separator = " ";
    }
}

void fields_print(field_table table, const void *object, bool only_changed, text *out)
{
    print_but(table, object, only_changed, false, out);
}

void fields_print_brief(field_table table, const void *object, text *out)
{
    print_but(table, object, false, true, out);
}

ckl_status fields_unknown(const char *what, const char *name, const field_table *tables, int count)
{
    const char *names[WORD_MAX];
    int known = 0;
    text why = { 0 };
    for (int t = 0; t < count; t++)
        for (int i = 0; i < tables[t].count && known < WORD_MAX; i++)
            names[known++] = tables[t].rows[i].name;
    words_explain(name, names, known, "Known keys:", &why);
    status_fail(CKL_INVALID, "%s: unknown key %s", what, text_data(&why));
    text_free(&why);
    return CKL_INVALID;
}

/* Optimal string alignment distance. */
int edit_distance(const char *a, const char *b)
{
    int rows[3][WORD_MAX + 1], *before = rows[0], *above = rows[1], *row = rows[2];
    int length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int *spare = before;
        before = above, above = row, row = spare;
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int64_t least = min_i64(min_i64(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                least = min_i64(least, before[j - 2] + 1);
            row[j] = (int)least;
        }
    }
    return row[length];
}

const char *nearest_word(const char *word, const char *const *candidates, int count)
{
    size_t length = strlen(word);
    if (length >= WORD_MAX)
        return NULL;
    const char *nearest = NULL;
    int least = length < 4 ? 2 : 3; // one slip in a short word, two in a longer one
    for (int i = 0; i < count; i++) {
        if (strlen(candidates[i]) >= WORD_MAX)
            continue;
        int distance = edit_distance(word, candidates[i]);
        if (distance < least && distance < (int)length) {
            nearest = candidates[i];
            least = distance;
        }
    }
    return nearest;
}

void words_explain(const char *word, const char *const *known, int count, const char *heading, text *out)
{
    const char *near = nearest_word(word, known, count);
    if (near)
        text_printf(out, "'%s', did you mean '%s'? %s", word, near, heading);
    else
        text_printf(out, "'%s'. %s", word, heading);
    for (int i = 0; i < count; i++)
        text_printf(out, " %s", known[i]);
}
