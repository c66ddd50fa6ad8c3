/*
 * unit_choices.c - what is chosen over whole ranges of sizes, and which configs are admitted: the thresholds of the
 * choices and the limits of the kernels, which no wrong result betrays.
 *
 * A line of tests/data/choices.txt is a problem with one size left open, {8} for 8, 16, 24 ... Below it, for the H200
 * and where it differs the L4, the first sizes at which something else is chosen, and what; then what would cost how
 * much; then, of every implementation at some sizes, the values of each field that are admitted instead of the chosen
 * one, and which of 64 configs drawn at random. `build/unit_choices --update` writes all that anew, for a new line too.
 */
#include "unit.h"
#include "base/math.h"
#include "base/random.h"
#include "golden.h"
#include "lab/case.h"

#define CHOICES_FILE TESTDATA "/choices.txt"

enum { COUNT_MAX = 1 << 24, DRAWN = 64, RANKED = 3 };

/* The size that a problem line leaves open, of the first place where it does. */
static int64_t unit_of(const char *line)
{
    const char *hole = strchr(line, '{');
    assert_non_null(hole);
    return strtoll(hole + 1, NULL, 10);
}

/* "add n={8} dtype=f32" for 3: "add n=24 dtype=f32" */
static void print_filled(const char *line, int64_t count, text *out)
{
    for (const char *hole; (hole = strchr(line, '{')); line = strchr(hole, '}') + 1)
        text_printf(out, "%.*s%" PRId64, (int)(hole - line), line, unit_of(hole) * count);
    text_printf(out, "%s", line);
}

/* One that is refused has no implementations. */
typedef struct problem {
    test_case c;
    const void *desc, *seen; // as it was given, and as implementations see it
    const implementation *const *implementations;
    arena memory;
} problem;

static void problem_open(const char *open, int64_t count, problem *p)
{
    text line = { 0 };
    print_filled(open, count, &line);
    *p = (problem){ 0 };
    if (case_parse(text_data(&line), &p->c) == CKL_OK) {
        const operator_info *op = p->c.test->op;
        p->desc = case_desc(&p->c, &p->memory);
        if (plan_desc(op, p->desc, &p->memory, &p->seen) == CKL_OK)
            p->implementations = op->implementations;
    }
    text_free(&line);
}

static void problem_close(problem *p)
{
    case_clear(&p->c);
    arena_clear(&p->memory);
}

/* "vector rank=1 threads=256 ...", or the status. */
static void choose(const problem *p, const ckl_device_info *device, const char *force, text *out)
{
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = plan_choose(device, p->c.test->op, p->desc, force, &memory, &impl, &config);
    if (status == CKL_OK) {
        text_printf(out, "%s ", impl->name);
        fields_print(impl->config, config, false, out);
    } else
        text_printf(out, "%s", ckl_status_name(status));
    arena_clear(&memory);
}

static void choose_at(const char *open, int64_t count, const ckl_device_info *device, text *out)
{
    problem p;
    out->length = 0;
    problem_open(open, count, &p);
    if (p.implementations)
        choose(&p, device, NULL, out);
    else
        text_printf(out, "refused");
    problem_close(&p);
}

/* Of two configs of one implementation only the fields that differ. */
static void print_change(const char *before, const char *now, text *out)
{
    size_t name = strcspn(now, " ");
    bool same = strncmp(before, now, name + 1) == 0;
    while (*now) {
        size_t was = strcspn(before, " "), is = strcspn(now, " ");
        if (!same || was != is || strncmp(before, now, is) != 0)
            text_printf(out, " %.*s", (int)is, now);
        before += same ? was + (before[was] == ' ') : 0;
        now += is + (now[is] == ' ');
    }
    text_append(out, "\n", 1);
}

/* The first size in (low, high] that gets what `high` gets, if there is one change in between. */
static int64_t first_like(const char *open, int64_t low, int64_t high, const ckl_device_info *device,
                          const text *wanted)
{
    text found = { 0 };
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        choose_at(open, middle, device, &found);
        if (strcmp(text_data(&found), text_data(wanted)) == 0)
            high = middle;
        else
            low = middle;
    }
    text_free(&found);
    return high;
}

static void print_sizes(const char *open, const ckl_device_info *device, text *out)
{
    text before = { 0 }, now = { 0 };
    for (int64_t count = 1, last = 0; count <= COUNT_MAX; last = count, count += 1 + count / 4) {
        choose_at(open, count, device, &now);
        if (strcmp(text_data(&now), text_data(&before)) == 0)
            continue;
        text_printf(out, "    %" PRId64 ":", unit_of(open) * first_like(open, last, count, device, &now));
        print_change(text_data(&before), text_data(&now), out);
        text swap = before;
        before = now;
        now = swap;
    }
    text_free(&before);
    text_free(&now);
}

static void print_costs(const char *open, const ckl_device_info *device, text *out)
{
    for (int64_t count = 1; count <= COUNT_MAX / 64; count *= 3) {
        problem p;
        problem_open(open, count, &p);
        for (const implementation *const *impl = p.implementations; impl && *impl; impl++) {
            plan_candidate best[RANKED];
            void *config = (*impl)->candidate ? arena_alloc(&p.memory, 1, (*impl)->config_bytes) : NULL;
            int found = config ? plan_rank(device, *impl, p.seen, config, RANKED, best) : 0;
            for (int i = 0; i < found; i++)
                text_printf(out, "%s%.2f us by %s", i ? ", " : "    costs ", best[i].cost.us, best[i].cost.bound);
            if (found)
                text_printf(out, " at %" PRId64 "\n", unit_of(open) * count);
        }
        problem_close(&p);
    }
}

/* Numbers that a field may be given: its range, what is next to them, powers of two, and what is no number of it. */
static void print_values(const field *f, text *out)
{
    static const int64_t tried[] = { -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 64, 96, 128, 256, 512, 1024, 2048 };
    if (f->kind != FIELD_int && f->kind != FIELD_int64_t) {
        field_choices(f, out);
        return;
    }
    for (int i = 0; i < COUNT_OF(tried); i++)
        text_printf(out, "%" PRId64 " ", tried[i]);
}

static bool admitted(const problem *p, const ckl_device_info *device, const text *force)
{
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = plan_choose(device, p->c.test->op, p->desc, text_data(force), &memory, &impl, &config);
    arena_clear(&memory);
    return status == CKL_OK;
}

/* Every value of one field; the others are chosen. */
static void print_field(const problem *p, const ckl_device_info *device, const implementation *impl, const field *f,
                        text *out)
{
    text values = { 0 }, force = { 0 };
    const char *value;
    print_values(f, &values);
    text_printf(out, " %s", f->name);
    for (int i = 0, length; (length = field_word(text_data(&values), i, &value)) > 0; i++) {
        force.length = 0;
        text_printf(&force, "%s %s=%.*s", impl->name, f->name, length, value);
        if (admitted(p, device, &force))
            text_printf(out, " %.*s", length, value);
    }
    text_append(out, ";", 1);
    text_free(&values);
    text_free(&force);
}

static void draw_config(const implementation *impl, uint64_t *random, text *force)
{
    force->length = 0;
    text_printf(force, "%s", impl->name);
    for (const field *f = impl->config.rows; f < impl->config.rows + impl->config.count; f++) {
        text values = { 0 };
        const char *value;
        int count = 0;
        field_choices(f, &values);
        while (field_word(text_data(&values), count, &value) > 0)
            count++;
        if (count && random_below(random, 3) == 0) {
            int length = field_word(text_data(&values), (int)random_below(random, count), &value);
            text_printf(force, " %s=%.*s", f->name, length, value);
        }
        text_free(&values);
    }
}

static void print_drawn(const problem *p, const ckl_device_info *device, const implementation *impl, text *out)
{
    uint64_t random = 1, bits = 0;
    text force = { 0 };
    for (int i = 0; i < DRAWN; i++) {
        draw_config(impl, &random, &force);
        bits |= (uint64_t)admitted(p, device, &force) << i;
    }
    text_printf(out, " drawn %016" PRIx64 "\n", bits);
    text_free(&force);
}

static void print_configs(const char *open, const ckl_device_info *device, text *out)
{
    static const int64_t counts[] = { 7, 100, 20000 };
    for (int i = 0; i < COUNT_OF(counts); i++) {
        problem p;
        problem_open(open, counts[i], &p);
        for (const implementation *const *impl = p.implementations; impl && *impl; impl++) {
            text_printf(out, "    %s at %" PRId64 ":", (*impl)->name, unit_of(open) * counts[i]);
            for (const field *f = (*impl)->config.rows; f < (*impl)->config.rows + (*impl)->config.count; f++)
                print_field(&p, device, *impl, f, out);
            print_drawn(&p, device, *impl, out);
        }
        problem_close(&p);
    }
}

static void print_line(const char *open, const ckl_device_info *device, text *out)
{
    print_sizes(open, device, out);
    print_costs(open, device, out);
    print_configs(open, device, out);
}

static void print_answers(const char *line, text *out)
{
    static const char *const devices[] = { "emulator:h200", "emulator:l4" };
    text before = { 0 };
    for (int i = 0; i < COUNT_OF(devices); i++) {
        ckl_device *device;
        text now = { 0 };
        assert_ok(ckl_device_open(devices[i], &device));
        print_line(line, ckl_device_properties(device), &now);
        if (strcmp(text_data(&now), text_data(&before)) != 0)
            text_printf(out, "  %s\n%s", strchr(devices[i], ':') + 1, text_data(&now));
        ckl_device_close(device);
        text_free(&before);
        before = now;
    }
    text_free(&before);
}

static void print_all(text *out)
{
    golden_answer(CHOICES_FILE, print_answers, out);
}

GOLDEN_MAIN(CHOICES_FILE, print_all)
