/* small_problem.c - halving the numbers of a problem line while it stays a problem that the config takes. */
#include "lab/small_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

enum { NUMBERS_MAX = 32, SIZE_MIN = 16, KEPT = 64, DIGITS_MAX = 15 };

// Of the emulator some tenths of a second on one core.
static const double FLOPS_MAX = 1 << 25, BYTES_MAX = 1 << 21;

/* A size in a line of fields, "m=1536 n=64". */
typedef struct number {
    size_t at, length; // characters
    int64_t value;
} number;

/* The numbers that are whole values or sizes of a shape. */
static int find_numbers(const char *fields, number *numbers)
{
    int count = 0;
    for (const char *at = fields; *at && count < NUMBERS_MAX;) {
        size_t digits = strspn(at, "0123456789");
        if (digits && digits <= DIGITS_MAX && at > fields && strchr("=,x", at[-1]) && strchr(" ,x", at[digits]))
            numbers[count++] = (number){ (size_t)(at - fields), digits, strtoll(at, NULL, 10) };
        at += digits ? digits : 1;
    }
    return count;
}

static int64_t halved(int64_t size)
{
    int64_t left = size % KEPT, rest = size - left;
    return rest >= 2 * KEPT ? round_up(rest / 2, KEPT) + left : size / 2;
}

/* The fields, with all numbers of this value halved, or number `only` alone. */
static void print_halved(const char *fields, const number *numbers, int count, int64_t value, int only, text *out)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (numbers[i].value != value || (only >= 0 && i != only))
            continue;
        text_append(out, fields + at, numbers[i].at - at);
        text_printf(out, "%" PRId64, halved(value));
        at = numbers[i].at + numbers[i].length;
    }
    text_printf(out, "%s", fields + at);
}

/* The case of these fields with the config, if it is one and takes it; the caller clears it then. */
static bool make(const test_case *like, const ckl_device_info *device, const char *fields, const char *config,
                 test_case *made)
{
    arena memory = { 0 };
    text line = { 0 };
    text_printf(&line, "%s %s", like->test->op->name, fields);
    ckl_status status = case_parse(text_data(&line), made);
    text_free(&line);
    if (status == CKL_OK)
        status = case_config(made, config);
    if (status == CKL_OK) {
        const implementation *impl;
        void *chosen;
        status = case_choose(made, device, &memory, &impl, &chosen);
    }
    made->keys.misalign = like->keys.misalign;
    arena_clear(&memory);
    if (status != CKL_OK)
        case_clear(made);
    return status == CKL_OK;
}

static bool is_small(const test_case *c)
{
    return adapter_flops(c->test, c->problem) <= FLOPS_MAX && adapter_bytes(c->test, c->problem) <= BYTES_MAX;
}

/*
 * Halves the largest number that was not refused before, with its equals or alone. False if there is none; fixed[i]:
 * number i was refused.
 */
static bool halve_largest(test_case *c, const ckl_device_info *device, const char *config, bool *fixed)
{
    number numbers[NUMBERS_MAX];
    int count = find_numbers(c->fields, numbers), largest = -1;
    for (int i = 0; i < count; i++)
        if (numbers[i].value >= SIZE_MIN && !fixed[i] && (largest < 0 || numbers[i].value > numbers[largest].value))
            largest = i;
    if (largest < 0)
        return false;
    fixed[largest] = true;
    for (int attempt = 0; attempt < 2 && fixed[largest]; attempt++) {
        test_case smaller;
        text fields = { 0 };
        print_halved(c->fields, numbers, count, numbers[largest].value, attempt ? largest : -1, &fields);
        if (make(c, device, text_data(&fields), config, &smaller)) {
            case_clear(c);
            *c = smaller;
            fixed[largest] = false;
        }
        text_free(&fields);
    }
    return true;
}

bool small_problem(const test_case *c, const ckl_device_info *device, const char *config, test_case *small)
{
    bool fixed[NUMBERS_MAX] = { false };
    if (is_small(c))
        return case_copy(c, config, small) == CKL_OK;
    if (!make(c, device, c->fields, config, small))
        return false;
    while (!is_small(small) && halve_largest(small, device, config, fixed))
        continue;
    if (is_small(small))
        return true;
    case_clear(small);
    return false;
}
