/* entrant.c - running an entrant, choosing a peer's best variant, and judging its result. */
#include "bench/entrant.h"

#include <math.h>
#include <stdlib.h>

#include "base/math.h"
#include "lab/clock.h"

/* The most time that choosing may take; and as a multiple of a race's sampling time. */
static const double GLANCES_SECONDS = 1, GLANCES_OF_SAMPLING = 16;

/*
 * Of a glance: variants slower than the fastest by more have no chance; launches that take the host longer have loaded
 * code.
 */
static const double GLANCE_NEAR = 1.5, GLANCE_LOADING_US = 50;

/* Below it a glance is of the host, which enqueues a variant's kernels one after the other: nobody is out. */
static const double GLANCE_SURE_US = 50;

/* Behind a brief race. */
static const double FINAL_NEAR = 1.05;

enum {
    CONTENDERS = 8,   // of a brief race
    BRIEF_ROUNDS = 3, // of it
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
    return (contestant){ .run = run_peer, .self = e, .chained = true };
}

/* A variant that runs, and how long it took at a glance, then in a brief race. */
typedef struct contender {
    peer_entrant entrant;
    double us;
} contender;

/* Choosing among the variants of a peer. */
typedef struct selection {
    const peer *peer;
    const peer_problem *problem;
    const rotation *memory;
    ckl_stream stream;
    device_event events[2];
    double seconds; // that glances may take, but for the first few
    contender all[PEER_VARIANTS_MAX];
    peer_finalists *out;
} selection;

/* One launch between two events, on the next set of memory. */
static ckl_status launch_once(const selection *s, const peer_entrant *e, int set, double *us, double *host_us)
{
    ckl_device *device = s->memory->device;
    TRY(device->ops->event_record(device, s->events[0], s->stream));
    double begin = clock_seconds();
    TRY(run_peer(e, s->memory->sets[set % s->memory->count].pointer, s->stream));
    *host_us = (clock_seconds() - begin) * 1e6;
    TRY(device->ops->event_record(device, s->events[1], s->stream));
    return device->ops->event_elapsed_us(device, s->events[0], s->events[1], us);
}

/* What may yet be the fastest. */
static double near_of(double fastest_us)
{
    return fmax(GLANCE_NEAR * fastest_us, GLANCE_SURE_US);
}

/*
 * The shortest of a few launches; of a single one where that is far slower than the fastest variant so far, as most
 * are. The first launch may load code, which shows on the host: then its time is not the kernel's.
 */
static ckl_status glance(const selection *s, const peer_entrant *e, double fastest_us, double *us)
{
    double host_us, again_us;
    TRY(launch_once(s, e, 0, us, &host_us));
    if (host_us > GLANCE_LOADING_US)
        TRY(launch_once(s, e, 1, us, &host_us));
    if (*us > near_of(fastest_us))
        return CKL_OK;
    TRY(launch_once(s, e, 2, &again_us, &host_us));
    *us = fmin(*us, again_us);
    return CKL_OK;
}

/*
 * Variants that cannot be enqueued are left out. The first few are looked at however long that takes: for a convolution
 * the library may search for half a second, and plan attention as long.
 */
static void glance_at_all(selection *s)
{
    double end = clock_seconds() + s->seconds, fastest_us = INFINITY;
    for (int i = 0; i < s->peer->variants(s->problem) && (i <= PEER_FINALISTS || clock_seconds() < end); i++) {
        contender c = { .entrant = { s->peer, s->problem, i } };
        if (glance(s, &c.entrant, fastest_us, &c.us) == CKL_OK) {
            fastest_us = fmin(fastest_us, c.us);
            s->all[s->out->tried++] = c;
        } else
            s->out->failed++;
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

static ckl_status race_briefly(const rotation *memory, ckl_stream stream, contender *all, int count)
{
    const measure_limits limits = { .rounds = BRIEF_ROUNDS, .brief = true };
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

static ckl_status choose(selection *s)
{
    contender *all = s->all;
    glance_at_all(s);
    const int tried = s->out->tried;
    TRY(ckl_stream_synchronize(s->memory->device, s->stream));
    if (tried == 0)
        FAIL(CKL_UNSUPPORTED, "%s: none of its variants runs: %s", s->peer->name, ckl_error());
    qsort(all, (size_t)tried, sizeof *all, by_time);
    int contenders = (int)min_i64(tried, PEER_FINALISTS + 1); // where the host is slow a glance tells little
    while (contenders < tried && contenders < CONTENDERS && all[contenders].us <= near_of(all[0].us))
        contenders++;
    if (contenders > PEER_FINALISTS) {
        TRY(race_briefly(s->memory, s->stream, all, contenders));
        while (all[contenders - 1].us > FINAL_NEAR * all[0].us)
            contenders--;
    }
    take_fastest(all, contenders, s->out);
    return CKL_OK;
}

ckl_status peer_choose_finalists(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                                 double seconds, peer_finalists *out)
{
    const device_ops *ops = memory->device->ops;
    selection s = { p, problem, memory, stream, .seconds = fmin(GLANCES_SECONDS, seconds * GLANCES_OF_SAMPLING) };
    ckl_status status = CKL_OK;
    *out = (peer_finalists){ 0 };
    s.out = out;
    for (int i = 0; i < COUNT_OF(s.events) && status == CKL_OK; i++)
        status = ops->event_create(memory->device, &s.events[i]);
    if (status == CKL_OK)
        status = choose(&s);
    for (int i = 0; i < COUNT_OF(s.events); i++)
        if (s.events[i])
            ops->event_destroy(memory->device, s.events[i]);
    return status;
}

ckl_status peer_check(check *k, const peer_entrant *e, check_result *result)
{
    operand_images_poison(&k->images, POISON);
    TRY(operand_set_write(k->device, &k->images, &k->set, OPERANDS_OUTPUTS, k->stream));
    TRY(run_peer(e, k->set.pointer, k->stream));
    if (e->peer->finish)
        TRY(e->peer->finish(e->problem, e->variant, k->set.pointer, k->stream));
    TRY(ckl_stream_synchronize(k->device, k->stream));
    TRY(operand_set_read(k->device, &k->images, &k->set, OPERANDS_OUTPUTS, k->stream));
    k->images.roundings = PEER_ROUNDINGS;
    check_compare_outputs(k, result);
    k->images.roundings = 0;
    return CKL_OK;
}
