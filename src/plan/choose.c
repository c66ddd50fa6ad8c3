/* choose.c - asking the tuned store and the implementations in turn. */
#include "plan/choose.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "plan/desc.h"

const implementation *plan_find_implementation(const operator_info *op, const char *name)
{
    for (const implementation *const *impl = op->implementations; *impl; impl++)
        if (strcmp((*impl)->name, name) == 0)
            return *impl;
    return NULL;
}

/* What is forced */

/* An implementation by name and some fields of its config. */
static ckl_status parse_force(const operator_info *op, const char *force, arena *memory, problem_line *line)
{
    *line = (problem_line){ 0 };
    if (!force || !*force)
        return CKL_OK;
    TRY(problem_split(memory, force, line));
    if (line->op && plan_find_implementation(op, line->op))
        return CKL_OK;
    const char *names[32];
    int count = 0;
    for (const implementation *const *impl = op->implementations; *impl && count < COUNT_OF(names); impl++)
        names[count++] = (*impl)->name;
    text why = { 0 };
    words_explain(line->op ? line->op : force, names, count, "There are:", &why);
    status_fail(CKL_INVALID, "%s: no implementation %s", op->name, text_data(&why));
    text_free(&why);
    return CKL_INVALID;
}

bool plan_candidate_config(const ckl_device_info *device, const implementation *impl, const void *desc, int i,
                           void *config)
{
    memset(config, 0, impl->config_bytes);
    fields_default(impl->config, config);
    return impl->candidate(desc, device, i, config);
}

/* Candidates */

/* An implementation whose candidates are asked. */
typedef struct ranked {
    const implementation *impl;
    const void *defaults; // of its config: they are read from text, once
    int asked;            // candidates
    plan_candidate best;
    bool found; // was one admitted?
} ranked;

enum { RANKED_MAX = 32 };

/* What implementations are asked, and those that were ranked for it: rivals look at each other's. */
typedef struct question {
    const ckl_device_info *device;
    const operator_info *op;
    const void *desc; // as the implementations see it
    arena *memory;    // of configs
    ranked known[RANKED_MAX];
    int known_count;
} question;

static ranked ranked_of(const implementation *impl, arena *memory)
{
    void *defaults = arena_alloc(memory, 1, impl->config_bytes);
    fields_default(impl->config, defaults);
    return (ranked){ .impl = impl, .defaults = defaults };
}

static bool candidate_of(const question *q, const ranked *r, int i, void *config)
{
    memcpy(config, r->defaults, r->impl->config_bytes);
    return r->impl->candidate(q->desc, q->device, i, config);
}

/* The cheapest candidates; what others are refused for is not written, as a hundred may be. */
static int rank(const question *q, ranked *r, bool trusted_alone, void *config, int most, plan_candidate *out)
{
    const implementation *impl = r->impl;
    int count = 0;
    status_mute(true);
    for (r->asked = 0; candidate_of(q, r, r->asked, config); r->asked++) {
        if ((trusted_alone && !impl->is_trusted(config)) ||
            (impl->admit && impl->admit(q->desc, q->device, config) != CKL_OK))
            continue;
        plan_candidate added = { r->asked, impl->cost(q->desc, q->device, config) };
        int at = count < most ? count++ : most;
        for (; at > 0 && added.cost.us < out[at - 1].cost.us; at--)
            if (at < most)
                out[at] = out[at - 1];
        if (at < most)
            out[at] = added;
    }
    status_mute(false);
    return count;
}

int plan_rank(const ckl_device_info *device, const implementation *impl, const void *desc, void *config, int most,
              plan_candidate *out)
{
    arena memory = { 0 };
    const question q = { .device = device, .desc = desc };
    ranked r = ranked_of(impl, &memory);
    int count = rank(&q, &r, false, config, most, out);
    arena_clear(&memory);
    return count;
}

/* Ranks an implementation, once. */
static const ranked *find_cheapest(question *q, const implementation *impl)
{
    for (const ranked *r = q->known; r < q->known + q->known_count; r++)
        if (r->impl == impl)
            return r;
    assert(q->known_count < RANKED_MAX);
    ranked *r = &q->known[q->known_count++];
    *r = ranked_of(impl, q->memory);
    void *config = arena_alloc(q->memory, 1, impl->config_bytes);
    r->found = rank(q, r, false, config, 1, &r->best) > 0;
    return r;
}

/* The cheapest candidate, or why the last one was not admitted, or that there is none. */
static ckl_status choose_cheapest(question *q, const implementation *impl, void *config)
{
    const ranked *r = find_cheapest(q, impl);
    const int last = r->asked > 0 ? r->asked - 1 : 0;
    const bool any = candidate_of(q, r, r->found ? r->best.number : last, config);
    if (any && !r->found)
        (void)impl->admit(q->desc, q->device, config); // once more, for its sentence
    return r->found ? CKL_OK : CKL_UNSUPPORTED;
}

/* One implementation */

enum { FORCED_MAX = 1 << 20 }; // times the threads of a CTA, or the bytes of an element, it stays within 32 bits

static ckl_status set_forced(const operator_info *op, const implementation *impl, const problem_pair *pair,
                             void *config)
{
    char what[64];
    snprintf(what, sizeof what, "%s %s", op->name, impl->name);
    TRY(fields_set(impl->config, what, pair->key, pair->value, config));
    const field *f = fields_find(impl->config, pair->key);
    if (f->kind == FIELD_int && *(const int *)((const char *)config + f->offset) > FORCED_MAX)
        FAIL(CKL_INVALID, "%s: %s=%s is more than %d, as no config has it", what, pair->key, pair->value, FORCED_MAX);
    return CKL_OK;
}

/* The cheapest candidate that is trusted, in place of what the rules have chosen, if it promises a tenth less time. */
static void take_cheaper(const question *q, const implementation *impl, void *config)
{
    const double SURE = 0.9;
    ranked r = ranked_of(impl, q->memory);
    void *candidate = arena_alloc(q->memory, 1, impl->config_bytes);
    if (rank(q, &r, true, candidate, 1, &r.best) && r.best.cost.us < SURE * impl->cost(q->desc, q->device, config).us)
        candidate_of(q, &r, r.best.number, config);
}

/* A config for the desc: the implementation's own choice, with the forced fields over it. */
static ckl_status configure(question *q, const implementation *impl, const problem_line *forced, void *config)
{
    if (impl->target > plan_target(q->device))
        FAIL(CKL_UNSUPPORTED, "%s %s: the kernel is for %s, %s is sm_%d", q->op->name, impl->name,
             ir_target_text(impl->target), q->device->id, q->device->compute_capability);
    if (impl->choose)
        fields_default(impl->config, config);
    ckl_status chosen = impl->choose ? impl->choose(q->desc, q->device, config) : choose_cheapest(q, impl, config);
    if (chosen != CKL_OK && forced->count == 0)
        return chosen;
    if (chosen != CKL_OK && !impl->choose) { // a forced config may suit where the choice declines
        memset(config, 0, impl->config_bytes);
        fields_default(impl->config, config); // in place of the last candidate
    }
    if (chosen == CKL_OK && impl->is_trusted && forced->count == 0)
        take_cheaper(q, impl, config);
    for (int i = 0; i < forced->count; i++)
        TRY(set_forced(q->op, impl, &forced->pairs[i], config));
    return impl->admit ? impl->admit(q->desc, q->device, config) : CKL_OK;
}

static ckl_status launch_nothing(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    (void)plan, (void)args, (void)stream;
    return CKL_OK;
}

/* What takes a problem without elements, whatever is forced. */
static const implementation nothing = { .name = "nothing",
                                        .summary = "no elements, no kernel",
                                        .launch = launch_nothing };

/* The tuned store */

/* The choice that an entry of the store forces; false if it may not be used here. */
static bool take_tuned(question *q, const tuned_entry *e, choice_made *made)
{
    problem_line forced;
    if (parse_force(q->op, e->force, q->memory, &forced) != CKL_OK)
        return false;
    const implementation *impl = plan_find_implementation(q->op, forced.op);
    void *config = arena_alloc(q->memory, 1, impl->config_bytes);
    if (configure(q, impl, &forced, config) != CKL_OK)
        return false;
    *made = (choice_made){ impl, config, e, false };
    return true;
}

/* The first entry of this very problem that may be used. */
static bool find_tuned(question *q, const void *desc, const tuned_table *table, choice_made *made)
{
    void *key = arena_alloc(q->memory, 1, q->op->desc_bytes);
    plan_desc_key(q->op, desc, key);
    for (const tuned_entry *e = table->entries; e < table->entries + table->count; e++) {
        if (memcmp(e->key, key, q->op->desc_bytes) != 0 || !tuned_is_for(e, q->device))
            continue;
        if (take_tuned(q, e, made))
            return true;
        log_say("tuned", "%s:%d: %s; the entry is not used", e->source, e->line, ckl_error());
    }
    return false;
}

/*
 * How far another problem's sizes may be, as a power of 2, some 7 %: farther away another number of tiles, or of waves,
 * decides. Its config is taken if the model's cost of it is at most so much above that of the model's choice: within
 * the model's own loss against a sweep (bench/notes/gemm.md: 2 % in the mean) measurements decide.
 */
static const double NEAR_MAX = 0.1, COST_MARGIN = 1.02;

/* The nearest entry whose config the model agrees with, in place of the implementation's own choice. */
static void find_near(question *q, const void *desc, const tuned_table *table, choice_made *made)
{
    const implementation *impl = made->impl;
    double nearest = NEAR_MAX, most = impl->cost(q->desc, q->device, made->config).us * COST_MARGIN;
    for (const tuned_entry *e = table->entries; e < table->entries + table->count; e++) {
        choice_made other;
        double distance = plan_desc_distance(q->op, e->key, desc);
        if (distance >= nearest || !tuned_is_for(e, q->device) || !take_tuned(q, e, &other) || other.impl != impl ||
            impl->cost(q->desc, q->device, other.config).us > most)
            continue;
        *made = other;
        made->near = true;
        nearest = distance;
    }
}

/* All of them in turn */

/* What the implementation's own choice costs; infinite where it declines. */
static double cost_of_choice(question *q, const implementation *impl)
{
    if (!impl->choose) {
        const ranked *r = find_cheapest(q, impl);
        return r->found ? r->best.cost.us : INFINITY;
    }
    void *config = arena_alloc(q->memory, 1, impl->config_bytes);
    const bool taken = configure(q, impl, &(problem_line){ 0 }, config) == CKL_OK;
    return taken ? impl->cost(q->desc, q->device, config).us : INFINITY;
}

/* Declines where a rival's choice costs no more than this one. */
static ckl_status check_rivals(question *q, const implementation *impl, const void *config)
{
    for (const implementation *const *each = impl->rivals; *each; each++) {
        if ((*each)->target > plan_target(q->device))
            continue;
        const double us = impl->cost(q->desc, q->device, config).us, other = cost_of_choice(q, *each);
        if (other <= us)
            FAIL(CKL_UNSUPPORTED, "%s %s: it would take %.2f us, %s %.2f", q->op->name, impl->name, us, (*each)->name,
                 other);
    }
    return CKL_OK;
}

/* The first implementation that takes the problem, or the one that is forced. */
static ckl_status choose_implementation(question *q, const problem_line *forced, choice_made *made, text *declines)
{
    ckl_status status = CKL_UNSUPPORTED;
    for (const implementation *const *each = q->op->implementations; *each && status == CKL_UNSUPPORTED; each++) {
        if (forced->op ? strcmp((*each)->name, forced->op) != 0 : (*each)->by_name)
            continue;
        void *candidate = arena_alloc(q->memory, 1, (*each)->config_bytes);
        status = configure(q, *each, forced, candidate);
        if (status == CKL_OK && !forced->op)
            status = check_rivals(q, *each, candidate);
        if (status == CKL_OK)
            *made = (choice_made){ .impl = *each, .config = candidate };
        else if (status == CKL_UNSUPPORTED)
            text_printf(declines, "\n%s", ckl_error());
    }
    return status;
}

ckl_status choose_config(const ckl_device_info *device, const operator_info *op, const checked_desc *checked,
                         const char *force, const tuned_table *table, arena *memory, choice_made *made)
{
    problem_line forced;
    if (checked->empty) {
        *made = (choice_made){ .impl = &nothing };
        return CKL_OK;
    }
    TRY(parse_force(op, force, memory, &forced));
    bool use_table = !forced.op && table->count;
    question q = { .device = device, .op = op, .desc = checked->view, .memory = memory };
    if (use_table && find_tuned(&q, checked->desc, table, made))
        return CKL_OK;
    text declines = { 0 };
    ckl_status status = choose_implementation(&q, &forced, made, &declines);
    if (status == CKL_OK && use_table && made->impl->cost && !made->impl->choose)
        find_near(&q, checked->desc, table, made);
    if (status == CKL_UNSUPPORTED && !forced.op) // else the one reason says it all
        status_fail(status, "%s: no implementation takes this problem on %s%s", op->name, device->id,
                    text_data(&declines));
    text_free(&declines);
    return status;
}

void choose_print_origin(const choice_made *made, text *out)
{
    if (made->tuned)
        text_printf(out, "%s%s:%d", made->near ? "a near problem's entry, " : "", made->tuned->source,
                    made->tuned->line);
}

static ckl_status choose_for(const ckl_device_info *device, const operator_info *op, const void *desc,
                             const char *force, arena *memory, choice_made *made)
{
    checked_desc *checked = NULL;
    const tuned_table *table;
    TRY(plan_desc_checked(op, desc, memory, &checked));
    TRY(tuned_table_of(op, &table));
    return choose_config(device, op, checked, force, table, memory, made);
}

ckl_status plan_choose(const ckl_device_info *device, const operator_info *op, const void *desc, const char *force,
                       arena *memory, const implementation **impl, void **config)
{
    choice_made made = { 0 };
    TRY(choose_for(device, op, desc, force, memory, &made));
    *impl = made.impl;
    *config = made.config;
    return CKL_OK;
}

ckl_status plan_origin(const ckl_device_info *device, const operator_info *op, const void *desc, arena *memory,
                       text *out)
{
    choice_made made = { 0 };
    TRY(choose_for(device, op, desc, NULL, memory, &made));
    choose_print_origin(&made, out);
    return CKL_OK;
}
