/* entrant.c - running an entrant, choosing a peer's best variant, and judging its result. */
#include "bench/entrant.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "lab/clock.h"

/* What choosing takes at most, and as a multiple of the time that a race may sample. */
static const double GLANCES_SECONDS = 1, GLANCES_OF_SAMPLING = 8, BRIEF_SECONDS = 0.2, BRIEF_OF_SAMPLING = 2;

enum {
    CONTENDERS = 12, // of a brief race
    GLANCE_LAUNCHES = 2,
    POISON = 0xff,
    PEER_ROUNDINGS = 8 // between two operations of a chain, frameworks round to the type of the output
};

static ckl_status run_own(const void *self, void *const *pointers, ckl_stream stream)
{
    const own_entrant *e = self;
    return adapter_run(e->c->test, e->plan, pointers, stream);
}

static ckl_status run_peer(const void *self, void *const *pointers, ckl_stream stream)
{
    const peer_entrant *e = self;
    return e->peer->run(e->problem, e->variant, pointers, stream);
}

contestant own_contestant(const own_entrant *e)
{
    return (contestant){ .run = run_own, .self = e };
}

contestant peer_contestant(const peer_entrant *e)
{
    return (contestant){ .run = run_peer, .self = e };
}

/* A variant that runs, and how long it took at a glance, then in a brief race. */
typedef struct contender {
    peer_entrant entrant;
    double us;
} contender;

/* One launch to load its code, then a few between two events. */
static ckl_status glance(const peer_entrant *e, const rotation *memory, ckl_stream stream, const device_event events[2],
                         double *us)
{
    const device_ops *ops = memory->device->ops;
    for (int i = -1; i < GLANCE_LAUNCHES; i++) {
        if (i == 0)
            TRY(ops->event_record(memory->device, events[0], stream));
        TRY(run_peer(e, memory->sets[(i + 1) % memory->count].pointer, stream));
    }
    TRY(ops->event_record(memory->device, events[1], stream));
    return ops->event_elapsed_us(memory->device, events[0], events[1], us);
}

/* Variants that cannot be enqueued are left out. */
static void glance_at_all(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                          const device_event events[2], double seconds, contender *all, peer_finalists *out)
{
    double end = clock_seconds() + seconds;
    for (int i = 0; i < p->variants(problem) && clock_seconds() < end; i++) {
        contender c = { .entrant = { p, problem, i } };
        if (glance(&c.entrant, memory, stream, events, &c.us) == CKL_OK)
            all[out->tried++] = c;
        else
            out->failed++;
    }
}

/* Of equals the first variant is first. */
static int by_time(const void *a, const void *b)
{
    const contender *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return x->entrant.variant - y->entrant.variant;
}

static ckl_status race_briefly(const rotation *memory, ckl_stream stream, double seconds, contender *all, int count)
{
    const measure_limits limits = { .seconds_max = seconds };
    contestant contestants[CONTENDERS];
    conditions unused;
    for (int i = 0; i < count; i++)
        contestants[i] = peer_contestant(&all[i].entrant);
    TRY(measure(memory, stream, &limits, contestants, count, &unused));
    for (int i = 0; i < count; i++)
        all[i].us = contestants[i].time_us.median;
    qsort(all, (size_t)count, sizeof *all, by_time);
    return CKL_OK;
}

/* Variant 0 is one of them if it runs. */
static void take_fastest(const contender *all, int contenders, peer_finalists *out)
{
    bool has_first = false;
    for (; out->count < contenders && out->count < PEER_FINALISTS; out->count++) {
        out->variants[out->count] = all[out->count].entrant.variant;
        has_first |= out->variants[out->count] == 0;
    }
    for (int i = out->count; i < out->tried && !has_first; i++)
        if (all[i].entrant.variant == 0) {
            out->variants[out->count++] = 0;
            break;
        }
}

static ckl_status choose(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                         const device_event events[2], double seconds, peer_finalists *out)
{
    contender all[PEER_VARIANTS_MAX];
    glance_at_all(p, problem, memory, stream, events, fmin(GLANCES_SECONDS, seconds * GLANCES_OF_SAMPLING), all, out);
    TRY(ckl_stream_synchronize(memory->device, stream));
    if (out->tried == 0)
        FAIL(CKL_UNSUPPORTED, "%s: none of its variants runs: %s", p->name, ckl_error());
    qsort(all, (size_t)out->tried, sizeof *all, by_time);
    int contenders = (int)min_i64(out->tried, CONTENDERS);
    if (contenders > PEER_FINALISTS)
        TRY(race_briefly(memory, stream, fmin(BRIEF_SECONDS, seconds * BRIEF_OF_SAMPLING), all, contenders));
    take_fastest(all, contenders, out);
    return CKL_OK;
}

ckl_status peer_choose_finalists(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                                 double seconds, peer_finalists *out)
{
    const device_ops *ops = memory->device->ops;
    device_event events[2] = { NULL };
    ckl_status status = CKL_OK;
    *out = (peer_finalists){ 0 };
    for (int i = 0; i < COUNT_OF(events) && status == CKL_OK; i++)
        status = ops->event_create(memory->device, &events[i]);
    if (status == CKL_OK)
        status = choose(p, problem, memory, stream, events, seconds, out);
    for (int i = 0; i < COUNT_OF(events); i++)
        if (events[i])
            ops->event_destroy(memory->device, events[i]);
    return status;
}

ckl_status peer_check(check *k, const peer_entrant *e, check_result *result)
{
    operand_images_poison(&k->images, POISON);
    TRY(operand_set_write_outputs(k->device, &k->images, &k->set, k->stream));
    TRY(run_peer(e, k->set.pointer, k->stream));
    if (e->peer->finish)
        TRY(e->peer->finish(e->problem, e->variant, k->set.pointer, k->stream));
    TRY(ckl_stream_synchronize(k->device, k->stream));
    TRY(operand_set_read_outputs(k->device, &k->images, &k->set, k->stream));
    k->images.roundings = PEER_ROUNDINGS;
    check_compare_outputs(k, result);
    k->images.roundings = 0;
    return CKL_OK;
}
