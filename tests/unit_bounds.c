/*
 * unit_bounds.c - how far the numbers of configs may go. For the problems of tests/data/bounds.txt, and each
 * implementation that takes one on an H200: the values of each number that it admits while all others stay as they are
 * chosen. So limits are known from both sides. After an intended change, or with a new problem line, `build/unit_bounds
 * --update` writes the file anew.
 */
#include "unit.h"
#include "golden.h"
#include "planned_devices.h"

#define BOUNDS_FILE TESTDATA "/bounds.txt"

enum { EACH_UP_TO = 136, WARP_SIZES_UP_TO = 1024, LARGEST = 1 << 20 };

/* All small numbers, then multiples of 32, then powers of two. */
static int next_value(int value)
{
    return value < EACH_UP_TO ? value + 1 : value < WARP_SIZES_UP_TO ? value / 32 * 32 + 32 : 2 * value;
}

static void print_run(int first, int last, text *out)
{
    text_printf(out, out->data[out->length - 1] == '=' ? "%d" : ",%d", first);
    if (last != first)
        text_printf(out, "..%d", last);
}

/* The values of one number, in runs of those that are tried. */
static void print_values(const implementation *impl, const void *desc, void *config, const field *f, text *out)
{
    const ckl_device_info *info = ckl_device_properties(devices[0]);
    int *member = (int *)((char *)config + f->offset);
    const int chosen = *member;
    int first = -2, last = -2; // of the run at hand
    text_printf(out, " %s=", f->name);
    for (int value = -1; value <= LARGEST; value = next_value(value)) {
        *member = value;
        const bool admitted = impl->admit(desc, info, config) == CKL_OK;
        if (!admitted && first > -2)
            print_run(first, last, out);
        first = !admitted ? -2 : first > -2 ? first : value;
        last = value;
    }
    if (first > -2)
        print_run(first, last, out);
    *member = chosen;
}

static void print_bounds(const test_case *c, const void *given, const implementation *impl, text *out)
{
    arena memory = { 0 };
    const operator_info *op = c->test->op;
    const implementation *taken;
    const void *desc;
    void *config;
    if (impl->admit && plan_desc(op, given, &memory, &desc) == CKL_OK &&
        plan_choose(ckl_device_properties(devices[0]), op, given, impl->name, &memory, &taken, &config) == CKL_OK &&
        taken->describe) {
        text_printf(out, "  %s:", impl->name);
        for (const field *f = impl->config.rows; f < impl->config.rows + impl->config.count; f++)
            if (f->kind == FIELD_int)
                print_values(impl, desc, config, f, out);
        text_printf(out, "\n");
    }
    arena_clear(&memory);
}

static void answer_line(const char *line, text *out)
{
    test_case c;
    arena memory = { 0 };
    assert_ok(case_parse(line, &c));
    void *given = case_desc(&c, &memory);
    for (const implementation *const *impl = c.test->op->implementations; *impl; impl++)
        print_bounds(&c, given, *impl, out);
    arena_clear(&memory);
    case_clear(&c);
}

static void answer_all(text *now)
{
    golden_answer(BOUNDS_FILE, answer_line, now);
}

TEST(bounds)
{
    text now = { 0 };
    golden_asks_all = true; // in a fifth of a second
    answer_all(&now);
    golden_compare(BOUNDS_FILE, &now);
    text_free(&now);
}

int main(int argc, char **argv)
{
    if (!golden_update_wanted(argc, argv))
        return run_enlisted(open_devices, close_devices);
    if (open_devices(NULL))
        return 1;
    int status = !golden_update(BOUNDS_FILE, answer_all);
    return close_devices(NULL) || status;
}
