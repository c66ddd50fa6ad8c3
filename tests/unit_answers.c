/*
 * unit_answers.c - what every implementation says to the problems of tests/data/answers.txt: its launches or why there
 * are none, what it would cost, which configs beside the chosen one it admits, how far each size may grow, and what it
 * chooses on the way. Models, limits and rules of choice are in it whole.
 *
 * The file has a problem a line, and below it, for the H200 and where it differs the L4, a digest for each
 * implementation; a star stands before the one that is chosen. `build/unit_answers LINE` prints what the digests are
 * of, to be compared between two builds. After an intended change, or with a new problem line, `build/unit_answers
 * --update` writes the file anew.
 */
#include "unit.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/math.h"

#define GOLDEN_ONE_IN 6 // each is asked of all implementations
#include "golden.h"
#include "lab/planned.h"
#include "planned_devices.h"

#define ANSWERS_FILE TESTDATA "/answers.txt"

enum {
    FARTHER = 16, // steps of sizes, until something changes
    DOUBLINGS = 14,
};

static bool whole; // texts in place of their digests

/* One implementation and one problem on one device. */
typedef struct question {
    const test_case *c;
    const void *desc; // as it was given
    const implementation *impl;
    const void *seen; // the desc, as implementations see it
    ckl_device *device;
    const ckl_device_info *info;
} question;

static void print_cost(const question *q, const void *config, text *out)
{
    if (!q->impl->cost)
        return;
    plan_cost cost = q->impl->cost(q->seen, q->info, config);
    text_printf(out, " %.4g us by %s", cost.us, cost.bound);
}

/* Of every candidate what it would cost, or that it is not admitted. */
static void print_candidates(const question *q, text *out)
{
    void *config = heap_alloc(1, q->impl->config_bytes);
    for (int i = 0; q->impl->candidate && plan_candidate_config(q->info, q->impl, q->seen, i, config); i++) {
        bool admitted = !q->impl->admit || q->impl->admit(q->seen, q->info, config) == CKL_OK;
        text_printf(out, "    candidate %d%s", i, admitted ? "" : " refused");
        fields_print(q->impl->config, config, true, out);
        if (admitted)
            print_cost(q, config, out);
        text_append(out, "\n", 1);
    }
    heap_free(config);
}

/* A value near the chosen one, or at an end. */
static int64_t other_value(int64_t chosen, int which)
{
    const int64_t others[] = { chosen - 1, chosen + 1, 2 * chosen, chosen / 2, 0, -1 };
    return others[which];
}
enum { OTHER_VALUES = 6 };

/* How many names a choice has. */
static int names_of(const field *f)
{
    const char *word;
    int count = 0;
    while (field_word(field_range(f), count, &word) > 0)
        count++;
    return count;
}

static bool set_other(const field *f, int which, void *config)
{
    char *member = (char *)config + f->offset;
    if (f->kind == FIELD_bool && which == 0)
        *(bool *)member = !*(bool *)member;
    else if (f->kind == FIELD_int || f->kind == FIELD_choice)
        *(int *)member = (int)other_value(*(int *)member, which);
    else
        return false;
    return f->kind != FIELD_choice || (which < 2 && (unsigned)*(int *)member < (unsigned)names_of(f));
}

/* The configs that differ in one field from one that is taken; which of them the implementation takes, at what cost. */
static void print_neighbours(const question *q, const void *taken, text *out)
{
    void *config = heap_alloc(1, q->impl->config_bytes);
    for (const field *f = q->impl->config.rows; f < q->impl->config.rows + q->impl->config.count; f++) {
        text_printf(out, "    %s", f->name);
        for (int which = 0; which < OTHER_VALUES; which++) {
            memcpy(config, taken, q->impl->config_bytes);
            if (!set_other(f, which, config) || !q->impl->admit || q->impl->admit(q->seen, q->info, config) != CKL_OK)
                continue;
            text_printf(out, " %d", which);
            print_cost(q, config, out);
        }
        text_append(out, "\n", 1);
    }
    heap_free(config);
}

static void print_sentence(ckl_status status, text *out)
{
    text_printf(out, "%s, %s\n", ckl_status_name(status), ckl_error());
}

static void print_plan(const question *q, text *out)
{
    test_case forced;
    ckl_plan *plan = NULL;
    text launches = { 0 };
    bool by_line = strcmp(q->c->keys.impl, q->impl->name) == 0; // perhaps with a config
    ckl_status status = case_copy(q->c, q->impl->name, &forced);
    if (status == CKL_OK)
        status = planned_launches(q->device, by_line ? q->c : &forced, &plan, &launches);
    if (status == CKL_OK) {
        text_printf(out, "%s, workspace %" PRId64 "\n%s", plan->text, plan->workspace_bytes, text_data(&launches));
        print_neighbours(q, plan->config, out);
    } else
        print_sentence(status, out);
    ckl_plan_free(plan);
    text_free(&launches);
    case_clear(&forced);
}

static bool is_pitch(const field *f)
{
    return f->kind == FIELD_int64_t && strncmp(f->name, "ld", 2) == 0;
}

/* With another value of one size, and pitches that follow: what the implementation chooses, or why it does not. */
static ckl_status asked_with(const question *q, const field *size, int64_t value, text *chosen)
{
    arena memory = { 0 };
    const implementation *impl;
    const operator_info *op = q->c->test->op;
    void *desc = arena_alloc(&memory, 1, op->desc_bytes), *config;
    memcpy(desc, q->desc, op->desc_bytes);
    for (const field *f = op->desc.rows; f < op->desc.rows + op->desc.count; f++)
        if (is_pitch(f) && f != size)
            *(int64_t *)((char *)desc + f->offset) = 0;
    *(int64_t *)((char *)desc + size->offset) = value;
    ckl_status status = plan_choose(q->info, op, desc, q->impl->name, &memory, &impl, &config);
    if (chosen && status == CKL_OK)
        fields_print(impl->config, config, true, chosen);
    arena_clear(&memory);
    return status;
}

/* The last value between these that is answered as the first of them, which the second is not. */
static int64_t last_like(const question *q, const field *size, int64_t like, int64_t unlike)
{
    ckl_status wanted = asked_with(q, size, like, NULL);
    while (like - unlike > 1 || unlike - like > 1) {
        int64_t middle = like + (unlike - like) / 2;
        if (asked_with(q, size, middle, NULL) == wanted)
            like = middle;
        else
            unlike = middle;
    }
    return like;
}

/* How far a size of the problem may grow and shrink until the answer is another. */
static void print_limits_of(const question *q, const field *size, text *out)
{
    int64_t value = *(const int64_t *)((const char *)q->desc + size->offset);
    ckl_status status = asked_with(q, size, value, NULL);
    int64_t more = value, less = value;
    while (more < INT64_MAX / FARTHER && asked_with(q, size, more, NULL) == status)
        more *= FARTHER;
    while (less > 0 && asked_with(q, size, less, NULL) == status)
        less /= FARTHER;
    text_printf(out, "    %s from %" PRId64 " to %" PRId64 "\n", size->name, last_like(q, size, value, less),
                last_like(q, size, value, more));
}

/* What is chosen next to a size, and as it doubles, which is seldom of interest of a pitch. */
static void print_growth_of(const question *q, const field *size, text *out)
{
    const int64_t value = *(const int64_t *)((const char *)q->desc + size->offset);
    const int doublings = is_pitch(size) ? 1 : DOUBLINGS;
    for (int i = 0; i <= doublings && value < INT64_MAX >> i; i++) {
        text_printf(out, "    %s=%" PRId64 ":", size->name, i ? value << i : value + 1);
        text_printf(out, " %s\n", ckl_status_name(asked_with(q, size, i ? value << i : value + 1, out)));
    }
}

/* Of every size that is above 1. */
static void print_sizes(const question *q, text *out)
{
    const field_table *table = &q->c->test->op->desc;
    for (const field *f = table->rows; f < table->rows + table->count; f++)
        if (f->kind == FIELD_int64_t && *(const int64_t *)((const char *)q->desc + f->offset) > 1) {
            print_limits_of(q, f, out);
            print_growth_of(q, f, out);
        }
}

static void answer_of(const question *q, bool chosen, text *out)
{
    text said = { 0 };
    print_plan(q, &said);
    print_candidates(q, &said);
    if (q->device == devices[0])
        print_sizes(q, &said);
    text_printf(out, " %s%s", chosen ? "*" : "", q->impl->name);
    if (whole)
        text_printf(out, " %s", text_data(&said));
    else
        text_printf(out, " %08x", (unsigned)hash_bytes(HASH_START, text_data(&said), said.length));
    text_free(&said);
}

static void answers_on(ckl_device *device, const test_case *c, text *out)
{
    const operator_info *op = c->test->op;
    arena memory = { 0 };
    void *desc = case_desc(c, &memory), *config;
    const implementation *chosen = NULL;
    question q = { .c = c, .desc = desc, .device = device, .info = ckl_device_properties(device) };
    if (plan_desc(op, desc, &memory, &q.seen) != CKL_OK ||
        plan_choose(q.info, op, desc, NULL, &memory, &chosen, &config) != CKL_OK)
        text_printf(out, " none takes it:");
    const bool empty = chosen && !chosen->describe; // no implementation is asked
    for (const implementation *const *impl = op->implementations; q.seen && !empty && *impl; impl++) {
        q.impl = *impl;
        answer_of(&q, *impl == chosen, out);
    }
    text_append(out, "\n", 1);
    arena_clear(&memory);
}

static void answer_line(const char *line, text *out)
{
    test_case c;
    text before = { 0 };
    ckl_status status = case_parse(line, &c);
    for (int i = 0; status == CKL_OK && i < COUNT_OF(ids); i++) {
        text now = { 0 };
        answers_on(devices[i], &c, &now);
        if (strcmp(text_data(&now), text_data(&before)) != 0)
            text_printf(out, "  %s:%s", strchr(ids[i], ':') + 1, text_data(&now));
        text_free(&before);
        before = now;
    }
    assert_ok(status);
    text_free(&before);
    case_clear(&c);
}

static void answer_all(text *now)
{
    golden_answer(ANSWERS_FILE, answer_line, now);
}

TEST(answers)
{
    golden_check(ANSWERS_FILE, answer_all);
}

static int show(const char *line)
{
    text out = { 0 };
    whole = true;
    answer_line(line, &out);
    printf("%s", text_data(&out));
    text_free(&out);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return run_enlisted(open_devices, close_devices);
    if (open_devices(NULL))
        return 1;
    int status = golden_update_wanted(argc, argv) ? !golden_update(ANSWERS_FILE, answer_all) : show(argv[1]);
    return close_devices(NULL) || status;
}
