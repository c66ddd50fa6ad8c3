/* entrant.c - running an entrant, choosing a peer's best variant, and judging its result. */
#include "bench/entrant.h"

static const measure_limits BRIEFLY = { .seconds_max = 0.2 };

enum {
    POISON = 0xff,
    PEER_ROUNDINGS = 8 // between two operations of a chain, frameworks round to the type of the output
};

static ckl_status run_own(const void *self, void *const *pointers, ckl_stream stream)
{
    const own_entrant *e = self;
    return adapter_run(e->c->test, e->plan, e->c->problem, pointers, stream);
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

/* The variants that can be enqueued; returns how many. */
static int usable_variants(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                           peer_entrant *entrants)
{
    int count = 0;
    for (int i = 0; i < p->variants(problem); i++) {
        peer_entrant e = { p, problem, i };
        if (run_peer(&e, memory->sets[0].pointer, stream) == CKL_OK)
            entrants[count++] = e;
    }
    return count;
}

ckl_status peer_find_best(const peer *p, const peer_problem *problem, const rotation *memory, ckl_stream stream,
                          int *best, int *tried)
{
    peer_entrant entrants[PEER_VARIANTS_MAX];
    contestant contestants[PEER_VARIANTS_MAX];
    conditions unused;
    *tried = usable_variants(p, problem, memory, stream, entrants);
    TRY(ckl_stream_synchronize(memory->device, stream));
    if (*tried == 0)
        FAIL(CKL_UNSUPPORTED, "%s: none of its variants runs: %s", p->name, ckl_error());
    if (*tried == 1) {
        *best = entrants[0].variant;
        return CKL_OK;
    }
    for (int i = 0; i < *tried; i++)
        contestants[i] = peer_contestant(&entrants[i]);
    TRY(measure(memory, stream, &BRIEFLY, contestants, *tried, &unused));
    int fastest = 0;
    for (int i = 1; i < *tried; i++)
        if (contestants[i].time_us.median < contestants[fastest].time_us.median)
            fastest = i;
    *best = entrants[fastest].variant;
    return CKL_OK;
}

/* The run before has left the inputs unchanged: that was checked. */
static ckl_status write_outputs(check *k)
{
    operand_images_poison(&k->images, POISON);
    return operand_set_write_outputs(k->device, &k->images, &k->set, k->stream);
}

ckl_status peer_check(check *k, const peer_entrant *e, check_result *result)
{
    TRY(write_outputs(k));
    TRY(run_peer(e, k->set.pointer, k->stream));
    if (e->peer->finish)
        TRY(e->peer->finish(e->problem, e->variant, k->set.pointer, k->stream));
    TRY(ckl_stream_synchronize(k->device, k->stream));
    TRY(operand_set_read(k->device, &k->images, &k->set, k->stream));
    TRY(ckl_stream_synchronize(k->device, k->stream));
    k->images.roundings = PEER_ROUNDINGS;
    check_compare(k, result);
    k->images.roundings = 0;
    return CKL_OK;
}
