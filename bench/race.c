/* race.c - from a case to a row: check ours, prepare peers and check them, measure all together. */
#include "bench/race.h"

#include <stdio.h>
#include <string.h>

#include "bench/ahead.h"
#include "bench/entrant.h"
#include "bench/plan_time.h"
#include "device/nvml.h"
#include "lab/clock.h"

enum { VARIANTS_AHEAD = 32 }; // of a peer: libraries with more of them compile nothing

/* Our plan is contestant 0; contestant i is entrant i - 1 and its line of the row is row->peers[place[i - 1]]. */
typedef struct field_of_race {
    check k;
    rotation memory;
    own_entrant own;
    peer_problem *problems[RESULT_PEERS_MAX];
    const peer *owners[RESULT_PEERS_MAX];
    int problem_count;
    peer_entrant entrants[RESULT_PEERS_MAX];
    int place[RESULT_PEERS_MAX];
    int entrant_count;
} field_of_race;

int race_input_bits(const test_case *c)
{
    operand all[OPERANDS_MAX];
    adapter_operands(c->test, c->problem, all);
    return 8 * (int)ckl_dtype_bytes(all[0].dtype);
}

void race_describe(const test_case *c, const race_options *options, result_row *row)
{
    text line = { 0 };
    case_print(c, &line);
    result_set(row->line, text_data(&line));
    text_free(&line);
    result_set(row->op, c->test->op->name);
    result_set(row->l2, options->hot ? "hot" : "cold");
    row->input_bits = race_input_bits(c);
    row->matrix_rate = c->test->matrix_rate ? c->test->matrix_rate(c->problem) : 0;
    row->bytes = adapter_bytes(c->test, c->problem);
    row->bytes_written = adapter_bytes_written(c->test, c->problem);
}

/* Our own result comes first: without it nothing is timed. */
static ckl_status check_own(field_of_race *f, result_row *row)
{
    check_result result = { 0 };
    result_set(row->config, ckl_plan_text(f->k.plan));
    TRY(check_run_outputs(&f->k, &result)); // the inputs are looked at when all have run
    row->slices = result.slices;
    row->slices_compared = result.slices_compared;
    row->error_of_bound = result.ratio_max;
    if (!result.passed)
        result_set(row->fault, result.fault);
    return CKL_OK;
}

/* Adds a variant to the race if its result is right; else the row says what is wrong with it. */
static ckl_status enter(field_of_race *f, const peer_entrant *e, const char *role, int tried, result_row *row)
{
    if (row->peer_count == RESULT_PEERS_MAX)
        return CKL_OK;
    result_peer *line = &row->peers[row->peer_count];
    check_result result = { 0 };
    text config = { 0 };
    e->peer->describe(e->problem, e->variant, &config);
    result_set(line->name, e->peer->name);
    result_set(line->role, role);
    result_set(line->config, text_data(&config));
    text_free(&config);
    line->tried = tried;
    TRY(peer_check(&f->k, e, &result));
    if (result.passed) {
        f->entrants[f->entrant_count] = *e;
        f->place[f->entrant_count++] = row->peer_count;
    } else
        result_set(line->fault, result.fault);
    row->peer_count++;
    return CKL_OK;
}

/* Not every variant may have been run. */
static void note_variants(const peer *p, const peer_finalists *chosen, int all, result_row *row)
{
    text note = { 0 };
    if (chosen->failed)
        text_printf(&note, "%s: %d of %d variants do not run: %s", p->name, chosen->failed, all, ckl_error());
    else if (chosen->tried < all)
        text_printf(&note, "%s: time for %d of %d variants", p->name, chosen->tried, all);
    if (note.length)
        result_set(row->note, text_data(&note));
    text_free(&note);
}

/* Roles are final when all have been measured: until then variant 0 is the first, others are finalists. */
static ckl_status enter_peer(field_of_race *f, const peer *p, double seconds, result_row *row)
{
    peer_problem *problem;
    peer_finalists chosen;
    TRY(p->find());
    TRY(p->prepare(f->k.c, f->k.device, f->k.set.pointer, &problem));
    f->owners[f->problem_count] = p;
    f->problems[f->problem_count++] = problem;
    double clock = clock_seconds();
    TRY(peer_choose_finalists(p, problem, &f->memory, f->k.stream, seconds, &chosen));
    row->choosing_s += clock_lap(&clock);
    note_variants(p, &chosen, p->variants(problem), row);
    for (int i = 0; i < chosen.count; i++) {
        int variant = chosen.variants[i];
        TRY(enter(f, &(peer_entrant){ p, problem, variant }, variant ? "close" : "first", chosen.tried, row));
    }
    return CKL_OK;
}

/* What keeps a peer out of the race is noted in the row; only a fault of the device ends it. */
static ckl_status enter_or_note(field_of_race *f, const peer *p, double seconds, result_row *row)
{
    if (f->problem_count == RESULT_PEERS_MAX)
        return CKL_OK;
    ckl_status status = enter_peer(f, p, seconds, row);
    if (status != CKL_UNSUPPORTED)
        return status;
    result_set(row->note, ckl_error());
    return CKL_OK;
}

static ckl_status enter_peers(field_of_race *f, const race_options *options, result_row *row)
{
    const char *op = f->k.c->test->op->name;
    if (options->no_peer)
        return CKL_OK;
    if (options->only && strcmp(options->only->op, op) == 0)
        return enter_or_note(f, options->only, options->limits.seconds_max, row);
    for (const peer *const *p = peers; *p; p++)
        if (peer_competes(*p, op, options->only))
            TRY(enter_or_note(f, *p, options->limits.seconds_max, row));
    return CKL_OK;
}

/* "power cap, thermal slowdown" */
static void note_clock_reasons(uint64_t reasons, char *to)
{
    text list = { 0 };
    for (int bit = 0; bit < 64; bit++)
        if (reasons >> bit & 1 && nvml_clock_reason(bit))
            text_printf(&list, "%s%s", list.length ? ", " : "", nvml_clock_reason(bit));
    result_set(to, text_data(&list));
    text_free(&list);
}

/* The fastest measured variant of each peer is its best. */
static void give_roles(const field_of_race *f, result_row *row)
{
    for (int i = 0; i < f->entrant_count; i++) {
        result_peer *line = &row->peers[f->place[i]];
        bool fastest = true;
        for (int j = 0; j < f->entrant_count; j++)
            if (f->entrants[j].peer == f->entrants[i].peer)
                fastest &= j == i || line->median_us < row->peers[f->place[j]].median_us ||
                           (line->median_us == row->peers[f->place[j]].median_us && i < j);
        if (fastest)
            result_set(line->role, "best");
    }
}

static bool has_first(const result_row *row, const char *name)
{
    for (int i = 0; i < row->peer_count; i++)
        if (strcmp(row->peers[i].name, name) == 0 && strcmp(row->peers[i].role, "first") == 0)
            return true;
    return false;
}

/* Where a peer's first variant was the best one, it has that time. */
static void complete_first(result_row *row)
{
    int count = row->peer_count;
    for (int i = 0; i < count && row->peer_count < RESULT_PEERS_MAX; i++) {
        if (strcmp(row->peers[i].role, "best") != 0 || has_first(row, row->peers[i].name))
            continue;
        result_peer *first = &row->peers[row->peer_count++];
        *first = row->peers[i];
        result_set(first->role, "first");
    }
}

#define COPY_TIME(to, c)                            \
    do {                                            \
        (to)->median_us = (c)->time_us.median;      \
        (to)->p20_us = (c)->time_us.p20;            \
        (to)->p80_us = (c)->time_us.p80;            \
        (to)->half_width = (c)->time_us.half_width; \
        (to)->samples = (c)->time_us.n;             \
        (to)->event_us = (c)->event_us;             \
        (to)->chain_us = (c)->chain_us;             \
    } while (0)

void race_note(const rotation *memory, const conditions *seen, const contestant *ours, result_row *row)
{
    result_set(row->method, seen->graphs ? "graphs" : "events");
    row->launches = seen->launches;
    row->prepare_s = seen->prepare_s;
    row->warm_s = seen->warm_s;
    row->sample_s = seen->sample_s;
    row->again_s = seen->again_s;
    row->sets = memory->count;
    row->clock_mhz = seen->gpu.clock_mhz;
    row->clock_min_mhz = seen->gpu.clock_min_mhz;
    row->clock_max_mhz = seen->gpu.clock_max_mhz;
    row->power_w = seen->gpu.power_w;
    row->temperature_c = seen->gpu.temperature_c;
    row->processes = seen->gpu.processes;
    note_clock_reasons(seen->gpu.clock_reasons, row->clock_reasons);
    COPY_TIME(row, ours);
    row->tflops = row->flops / row->median_us / 1e6;
    row->gbs = row->bytes / row->median_us / 1e3;
}

/* Keeps what the peers' users get without searching; nobody if that is all there was. */
static void withdraw_variants(field_of_race *f, result_row *row)
{
    int kept = 0, all = f->entrant_count;
    for (int i = 0; i < all; i++)
        if (f->entrants[i].variant == 0) {
            f->entrants[kept] = f->entrants[i];
            row->peers[kept] = row->peers[f->place[i]];
            f->place[kept] = kept;
            kept++;
        }
    f->entrant_count = row->peer_count = kept < all ? kept : 0;
}

/* A peer may fail while it is captured: then all is measured again without it. */
static ckl_status measure_all(field_of_race *f, const race_options *options, contestant *contestants, conditions *seen,
                              result_row *row)
{
    measure_limits limits = options->limits;
    limits.twice = true;
    for (;;) {
        contestants[0] = own_contestant(&f->own);
        for (int i = 0; i < f->entrant_count; i++)
            contestants[1 + i] = peer_contestant(&f->entrants[i]);
        ckl_status status = measure(&f->memory, f->k.stream, &limits, contestants, 1 + f->entrant_count, seen);
        if (status != CKL_UNSUPPORTED || f->entrant_count == 0)
            return status;
        result_set(row->note, ckl_error());
        withdraw_variants(f, row);
    }
}

static ckl_status measure_row(field_of_race *f, const race_options *options, result_row *row)
{
    contestant contestants[1 + RESULT_PEERS_MAX];
    conditions seen;
    TRY(measure_all(f, options, contestants, &seen, row));
    race_note(&f->memory, &seen, &contestants[0], row);
    for (int i = 0; i < f->entrant_count; i++)
        COPY_TIME(&row->peers[f->place[i]], &contestants[1 + i]);
    for (int i = 0; i < row->peer_count; i++)
        row->peers[i].ratio = row->peers[i].median_us / row->median_us;
    give_roles(f, row);
    complete_first(row);
    return CKL_OK;
}

/* No entrant may have changed the inputs: else no time counts. */
static ckl_status check_inputs(field_of_race *f, result_row *row)
{
    check_result result;
    TRY(check_untouched(&f->k, &result));
    if (result.passed)
        return CKL_OK;
    result_set(row->fault, result.fault);
    row->median_us = 0;
    row->peer_count = 0;
    return CKL_OK;
}

static ckl_status run(field_of_race *f, const race_options *options, result_row *row)
{
    double clock = clock_seconds();
    row->flops = check_flops(&f->k);
    TRY(check_own(f, row));
    row->check_s = clock_lap(&clock);
    if (*row->fault)
        return CKL_OK;
    f->own = (own_entrant){ f->k.c, f->k.plan };
    TRY(rotation_create(&f->k, options->hot, &f->memory));
    row->data_s += clock_lap(&clock);
    TRY(enter_peers(f, options, row));
    row->peers_s = clock_lap(&clock);
    TRY(measure_row(f, options, row));
    TRY(plan_time_again(&f->k, row->median_us, &row->second_plan_us, &row->run_host_us));
    row->timing_s = clock_lap(&clock);
    TRY(check_inputs(f, row));
    row->check_s += clock_lap(&clock);
    return CKL_OK;
}

static ckl_status open_check(const test_case *c, ckl_device *device, const race_options *options,
                             operand_images *images, check *k)
{
    operand_images made;
    if (images)
        return check_open_on(c, device, options->stream, images, k);
    ckl_status status = ahead_make(c, ckl_device_properties(device), &made);
    if (status == CKL_OK)
        return check_open_on(c, device, options->stream, &made, k);
    operand_images_free(&made);
    return status;
}

ckl_status race_run(const test_case *c, ckl_device *device, const race_options *options, operand_images *images,
                    result_row *row)
{
    field_of_race f = { 0 };
    race_describe(c, options, row);
    if (row->bytes <= 0) {
        if (images)
            operand_images_free(images);
        FAIL(CKL_INVALID, "%s: there is nothing to do, and so nothing to measure", row->line);
    }
    double clock = clock_seconds();
    ckl_status status = open_check(c, device, options, images, &f.k);
    row->plan_s = f.k.plan_seconds;
    row->data_s = clock_lap(&clock) - row->plan_s;
    if (status == CKL_OK)
        status = run(&f, options, row);
    clock = clock_seconds();
    for (int i = 0; i < f.problem_count; i++)
        f.owners[i]->release(f.problems[i]);
    rotation_free(&f.memory);
    check_close(&f.k);
    row->data_s += clock_lap(&clock);
    return status;
}

/* One that gives up is left out here as in a race. */
static ckl_status run_peer_once(const peer *p, check *k)
{
    peer_problem *problem;
    TRY(p->find());
    TRY(p->prepare(k->c, k->device, k->set.pointer, &problem));
    ckl_status status = CKL_UNSUPPORTED;
    for (int i = 0; i < p->variants(problem) && i < VARIANTS_AHEAD; i++)
        if (p->run(problem, i, k->set.pointer, k->stream) == CKL_OK)
            status = CKL_OK;
    ckl_status idle = ckl_stream_synchronize(k->device, k->stream);
    p->release(problem);
    return status == CKL_OK ? idle : status;
}

ckl_status race_run_peers(const test_case *c, ckl_device *device, const race_options *options)
{
    check k = { 0 };
    ckl_status status = check_open(c, device, options->stream, &k);
    if (status == CKL_OK)
        status = operand_set_write(device, &k.images, &k.set, OPERANDS_ALL, k.stream);
    bool ran = false;
    for (const peer *const *p = peers; *p && status == CKL_OK; p++) {
        const bool competes = peer_competes(*p, c->test->op->name, options->only);
        const ckl_status its = competes ? run_peer_once(*p, &k) : CKL_UNSUPPORTED;
        ran |= its == CKL_OK;
        status = its == CKL_DEVICE_FAULT ? its : CKL_OK;
    }
    check_close(&k);
    return status == CKL_OK && !ran ? CKL_UNSUPPORTED : status;
}
