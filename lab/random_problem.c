/* random_problem.c - drawing a case of an operator and changing it until it is another valid problem. */
#include "lab/random_problem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "base/problem.h"
#include "base/random.h"

enum {
    ATTEMPTS = 32,
    GROWTH_MAX = 32,        // of a size; the limits decide
    DIGITS_MAX = 9,         // longer numbers stay as they are
    CHOICES_ONE_IN = 8,     // fields with a list of values that change
    SIZES_ONE_IN = 2,       // numbers that change
    FORCED_KEPT_ONE_IN = 4, // lines with impl= or config= that keep it
    MISALIGN_ONE_IN = 8
};

/* Half the time one more or one less than a multiple, where most tails are. */
static int64_t other_size(int64_t size, uint64_t *r)
{
    int64_t scaled = size * (1 + random_below(r, GROWTH_MAX)) >> random_below(r, 6);
    return max_i64(1, scaled + random_below(r, 4) - 1 - random_below(r, 2));
}

/* The value with some of its numbers changed. */
static void print_other_numbers(const char *value, uint64_t *r, text *out)
{
    while (*value) {
        size_t digits = strspn(value, "0123456789");
        if (digits && digits <= DIGITS_MAX && random_below(r, SIZES_ONE_IN) == 0)
            text_printf(out, "%" PRId64, other_size(strtol(value, NULL, 10), r));
        else
            text_append(out, value, digits ? digits : 1);
        value += digits ? digits : 1;
    }
}

/* One of the words of a list; "" if it is empty. */
static void print_other_choice(const field *f, uint64_t *r, text *out)
{
    text list = { 0 };
    field_choices(f, &list);
    int count = 0;
    for (const char *at = text_data(&list); *at; at += strcspn(at, " "), at += strspn(at, " "))
        count++;
    int64_t chosen = count ? random_below(r, count) : 0;
    const char *at = text_data(&list);
    for (; chosen > 0; chosen--) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    text_append(out, at, strcspn(at, " "));
    text_free(&list);
}

static bool has_choices(const field *f)
{
    return f->kind == FIELD_choice || f->kind == FIELD_ckl_dtype || f->kind == FIELD_bool;
}

static bool is_size(const field *f)
{
    return f->kind == FIELD_int64_t || (f->kind == FIELD_quoted && strcmp(f->name, "shape") == 0);
}

static const char *given_value(const problem_line *split, const char *key)
{
    for (int i = 0; i < split->count; i++)
        if (strcmp(split->pairs[i].key, key) == 0)
            return split->pairs[i].value;
    return NULL;
}

/* A value that holds anything but letters, digits and so on needs quotes. */
static void print_pair(const char *key, const char *value, text *out)
{
    const char *quote = strpbrk(value, " #()") ? "'" : "";
    text_printf(out, " %s=%s%s%s", key, quote, value, quote);
}

static void print_field(const field *f, const char *given, uint64_t *r, text *out)
{
    text value = { 0 };
    if (has_choices(f) && random_below(r, CHOICES_ONE_IN) == 0)
        print_other_choice(f, r, &value);
    else if (given && is_size(f))
        print_other_numbers(given, r, &value);
    else if (given)
        text_printf(&value, "%s", given);
    if (value.length)
        print_pair(f->name, text_data(&value), out);
    text_free(&value);
}

/* How inputs are filled, and what the case forces. */
static void print_keys(const problem_line *split, uint64_t *r, text *out)
{
    static const char *const fills[] = { "integers", "uniform", "hard" };
    bool forced = random_below(r, FORCED_KEPT_ONE_IN) == 0;
    static const char *const kept[] = { "impl", "config" };
    for (int i = 0; i < COUNT_OF(kept); i++)
        if (forced && given_value(split, kept[i]))
            print_pair(kept[i], given_value(split, kept[i]), out);
    text_printf(out, " fill=%s seed=%" PRId64, fills[random_below(r, COUNT_OF(fills))], 1 + random_below(r, 1000000));
    if (random_below(r, MISALIGN_ONE_IN) == 0)
        text_printf(out, " misalign=%" PRId64, 1 + random_below(r, 15));
    if (random_below(r, MISALIGN_ONE_IN) == 0)
        text_printf(out, " stagger=%" PRId64, 1 + random_below(r, 15));
}

static void print_changed(const operator_test *test, const problem_line *split, uint64_t *r, text *out)
{
    text_printf(out, "%s", test->op->name);
    for (int i = 0; i < test->line->problem.count; i++) {
        const field *f = &test->line->problem.rows[i];
        print_field(f, given_value(split, f->name), r, out);
    }
    print_keys(split, r, out);
}

static double bytes_of(const test_case *c)
{
    operand all[OPERANDS_MAX] = { 0 };
    int count = adapter_operands(c->test, c->problem, all);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double last = all[i].dtype != CKL_DTYPE_DEFAULT;
        for (int d = 0; d < all[i].rank && all[i].dtype != CKL_DTYPE_DEFAULT; d++)
            last += (double)(all[i].shape[d] - 1) * (double)all[i].stride[d];
        sum += last * (double)ckl_dtype_bytes(all[i].dtype);
    }
    return sum;
}

bool random_problem_fits(const test_case *c, random_problem_limits limits)
{
    return adapter_flops(c->test, c->problem) <= limits.flops && bytes_of(c) <= limits.bytes;
}

/* Is the line a problem that a kernel takes, within the limits? */
static bool suits(const char *line, const ckl_device_info *device, random_problem_limits limits)
{
    test_case c;
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK && !random_problem_fits(&c, limits))
        status = CKL_UNSUPPORTED;
    if (status == CKL_OK)
        status = case_choose(&c, device, &memory, &impl, &config);
    arena_clear(&memory);
    case_clear(&c);
    return status == CKL_OK;
}

static const operator_test *any_operator(uint64_t *r)
{
    int count = 0;
    while (operator_tests[count])
        count++;
    return operator_tests[random_below(r, count)];
}

const char *random_line(const char *const *lines, uint64_t *r)
{
    int count = 0;
    while (lines[count])
        count++;
    return lines[random_below(r, count)];
}

void random_problem(const operator_test *only, const ckl_device_info *device, uint64_t seed,
                    random_problem_limits limits, text *line)
{
    uint64_t r = seed;
    const operator_test *test = only ? only : any_operator(&r);
    for (int i = 0; i < ATTEMPTS; i++) {
        text given = { 0 }, changed = { 0 };
        arena memory = { 0 };
        problem_line split;
        text_printf(&given, "%s %s", test->op->name, random_line(test->cases, &r));
        if (problem_split(&memory, text_data(&given), &split) == CKL_OK)
            print_changed(test, &split, &r, &changed);
        bool good = suits(text_data(&changed), device, limits);
        if (good)
            text_printf(line, "%s", text_data(&changed));
        text_free(&given);
        text_free(&changed);
        arena_clear(&memory);
        if (good)
            return;
    }
    text_printf(line, "%s %s", test->op->name, test->cases[0]);
    line->length = strcspn(line->data, "#");
    line->data[line->length] = '\0';
}
