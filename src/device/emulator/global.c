/*
 * global.c - global memory's shadow: who wrote and who read each word last, and the races between CTAs.
 *
 * A cell remembers an epoch, a number. In a launch without strong accesses nothing can order its clusters, so an epoch
 * is a cluster, and two of them that share a byte which one writes are a race. In an ordered launch an epoch is an
 * agent of a cluster at one of its clocks, and the accessing warp must know that clock. Numbers grow from launch to
 * launch: what is below those of this launch happened before it, so nothing is cleared.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/heap.h"
#include "device/emulator/machine.h"

#define SPLIT UINT32_MAX // as the writer of a word: its bytes have cells of their own

enum {
    WORD = 4,
    STRIPE_SHIFT = 16,
    KNOWN_READERS_MAX = 64,
    SET_SLOTS_MIN = 256,
    SEVERAL = -1,
    REPEATED_BYTES_MAX = 16
};
enum { CAPACITY_MIN = 4096, SPARE_BYTES_MAX = 64 << 20 }; // bytes of global memory that shadows describe

/* Arrays, one element per word or byte of an allocation. Steps are cut to 16 bits. */
typedef struct cells {
    uint32_t *writer, *reader;
    uint16_t *write_step, *read_step;
} cells;

struct global_shadow {
    cells words, bytes;
    void *reservation;
    size_t reserved, capacity; // bytes of its own, bytes that it can describe
    global_shadow *next;       // of those that are spare
};

/* The shadow of an allocation */

static cells carve(unsigned char **at, size_t count)
{
    cells k = { .writer = (uint32_t *)*at };
    k.reader = k.writer + count;
    k.write_step = (uint16_t *)(k.reader + count);
    k.read_step = k.write_step + count;
    *at = (unsigned char *)(k.read_step + count);
    return k;
}

/* It outlives the launch; NULL if there is no memory. */
static global_shadow *shadow_new(size_t capacity)
{
    const size_t per_cell = 2 * sizeof(uint32_t) + 2 * sizeof(uint16_t), words = capacity / WORD;
    global_shadow *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->capacity = capacity;
    x->reserved = per_cell * (words + WORD * words);
    x->reservation =
        mmap(NULL, x->reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x->reservation == MAP_FAILED) {
        free(x);
        return NULL;
    }
    unsigned char *at = x->reservation;
    x->words = carve(&at, words);
    x->bytes = carve(&at, WORD * words);
    return x;
}

static void shadow_free(global_shadow *x)
{
    munmap(x->reservation, x->reserved);
    free(x);
}

/* A spare one of the same size is as good as a new one, for its epochs are old; and its pages are there. */
static global_shadow *shadow_take(memory_space *m, size_t bytes)
{
    size_t capacity = CAPACITY_MIN;
    while (capacity < bytes)
        capacity *= 2;
    for (global_shadow **at = &m->spare; *at; at = &(*at)->next)
        if ((*at)->capacity == capacity) {
            global_shadow *x = *at;
            *at = x->next;
            m->spare_bytes -= capacity;
            return x;
        }
    return shadow_new(capacity);
}

void global_shadow_give_back(memory_space *m, global_shadow *shadow)
{
    if (!shadow)
        return;
    if (m->spare_bytes + shadow->capacity > SPARE_BYTES_MAX) {
        shadow_free(shadow);
        return;
    }
    shadow->next = m->spare;
    m->spare = shadow;
    m->spare_bytes += shadow->capacity;
}

void global_shadows_clear(memory_space *m)
{
    while (m->spare) {
        global_shadow *x = m->spare;
        m->spare = x->next;
        shadow_free(x);
    }
    m->spare_bytes = 0;
    for (int i = 0; i < m->count; i++) {
        if (m->list[i]->shadow)
            shadow_free(m->list[i]->shadow);
        m->list[i]->shadow = NULL;
    }
}

static global_shadow *shadow_of(emulator *e, allocation *a)
{
    global_shadow *x = __atomic_load_n(&a->shadow, __ATOMIC_ACQUIRE);
    if (x)
        return x;
    pthread_mutex_lock(&e->counting);
    if (!a->shadow)
        __atomic_store_n(&a->shadow, shadow_take(&e->memory, a->bytes), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&e->counting);
    if (!a->shadow)
        heap_run_out(a->bytes);
    return a->shadow;
}

/* Epochs */

static uint32_t epoch_add(launch_state *l, epoch x)
{
    if (l->epoch_count == l->epoch_capacity) {
        l->epoch_capacity = l->epoch_capacity ? 2 * l->epoch_capacity : 1024;
        l->epochs = heap_resize(l->epochs, l->epoch_capacity, sizeof *l->epochs);
    }
    l->epochs[l->epoch_count] = x;
    return l->first_epoch + l->epoch_count++;
}

static const epoch *epoch_of(const launch_state *l, uint32_t number)
{
    return &l->epochs[number - l->first_epoch];
}

/* Number 0 of an unordered launch: more than one cluster has read the cell. The clusters follow. */
static uint32_t own_epoch(const access *a)
{
    cluster *c = a->w->cluster;
    launch_state *l = c->launch;
    if (!l->ordered)
        return l->first_epoch + 1 + (uint32_t)c->index;
    recent_epoch *r = &c->recent[(a->agent * 8U + a->strong * 4U + a->scope) % COUNT_OF(c->recent)];
    if (r->number && r->agent == a->agent && r->clock == a->clock && r->strong == a->strong && r->scope == a->scope)
        return r->number;
    *r = (recent_epoch){ .agent = a->agent, .clock = a->clock, .strong = a->strong, .scope = a->scope };
    r->number = epoch_add(l, (epoch){ .cluster = c->index,
                                      .clock = a->clock,
                                      .agent = a->agent,
                                      .rank = a->w->cta->rank,
                                      .who = c->agents[a->agent],
                                      .strong = a->strong,
                                      .async = a->async,
                                      .scope = a->scope });
    return r->number;
}

void epochs_clear(launch_state *l)
{
    heap_free(l->epochs);
    heap_free(l->set_slots);
}

/* What an access knows */

static bool knows(const access *a, const epoch *e)
{
    if (e->cluster == a->w->cluster->index)
        return a->knows->seen[e->agent] >= e->clock;
    return past_clock(*a->knows->past, e->cluster, e->agent, false) >= e->clock;
}

static bool is_visible(const access *a, const epoch *e)
{
    if (!a->async || e->async)
        return true;
    if (e->cluster == a->w->cluster->index)
        return a->knows->global[e->agent] >= e->clock;
    return past_clock(*a->knows->past, e->cluster, e->agent, true) >= e->clock;
}

static bool includes(ir_scope scope, const access *a, const epoch *e)
{
    return scope >= IR_SCOPE_GPU ||
           (a->w->cluster->index == e->cluster && (scope == IR_SCOPE_CLUSTER || a->w->cta->rank == e->rank));
}

/* Two strong accesses whose scopes include each other are no race. */
static bool may_meet(const access *a, const epoch *e)
{
    return knows(a, e) || (a->strong && e->strong && includes(a->scope, a, e) && includes(e->scope, a, e));
}

/* Faults */

typedef struct place {
    uintptr_t address;
    const char *what; // the other one did
    uint16_t step;
} place;

static const char *advice(const access *a, const epoch *e)
{
    const launch_state *l = a->w->cluster->launch;
    if (!l->ordered)
        return "the kernel has no release and acquire by which CTAs could be ordered";
    if (e->who.kind == AGENT_BULK_WRITE)
        return "the bulk_wait for that store's completion, and a release after it, must come first";
    for (int i = 0; i < COUNT_OF(a->w->observed); i++)
        if (past_clock(a->w->observed[i], e->cluster, e->agent, false) >= e->clock)
            return "its release was read, but not acquired: an acquire, or a fence after the relaxed read, is missing";
    if (e->strong || a->strong)
        return "one is an ordinary access: both must be strong, or a release and an acquire must order them";
    if (e->cluster == a->w->cluster->index)
        return "no barrier, and no release and acquire, orders them";
    return "no release that follows it has been acquired: a fence or a release before the flag is missing, or the "
           "acquire";
}

static void describe_other(const access *a, const epoch *e, char room[AGENT_TEXT_BYTES])
{
    const launch_state *l = a->w->cluster->launch;
    char name[AGENT_TEXT_BYTES / 2];
    int64_t at[3];
    if (e->cluster == SEVERAL) {
        snprintf(room, AGENT_TEXT_BYTES, "other CTAs");
        return;
    }
    cta_place(l, e->cluster, e->rank, at);
    int length = 0;
    if (l->ordered)
        length = snprintf(room, AGENT_TEXT_BYTES, "%s of ", agent_name(&l->kernel->ir, &e->who, name, sizeof name));
    snprintf(room + length, (size_t)(AGENT_TEXT_BYTES - length), "%s (%" PRId64 ",%" PRId64 ",%" PRId64 ")",
             l->ordered || l->kernel->ir.cluster == 1 ? "CTA" : "the cluster of CTA", at[0], at[1], at[2]);
}

static bool race(const access *a, place at, const epoch *e)
{
    char who[AGENT_TEXT_BYTES], name[PLACE_BYTES], where[WHERE_BYTES] = "an unknown line";
    const launch_state *l = a->w->cluster->launch;
    describe_other(a, e, who);
    if (at.step != UINT16_MAX)
        snprintf(where, sizeof where, "%s:%d", l->kernel->steps[at.step].inst->file,
                 l->kernel->steps[at.step].inst->line);
    return fault(a->w, a->s, access_lane(a, at.address), "global-memory race", "%s of %s meets the %s by %s at %s; %s",
                 a->write ? "write" : "read", global_text(l, a->memory, at.address, name), at.what, who, where,
                 advice(a, e));
}

static bool missing_fence(const access *a, place at, const epoch *e)
{
    char who[AGENT_TEXT_BYTES], name[PLACE_BYTES];
    const launch_state *l = a->w->cluster->launch;
    describe_other(a, e, who);
    return fault(
        a->w, a->s, access_lane(a, at.address), "missing fence_proxy_async",
        "the async proxy %s %s, which %s wrote with an ordinary store; fence_proxy_async_gmem must follow the store",
        a->write ? "overwrites" : "reads", global_text(l, a->memory, at.address, name), who);
}

static bool overlap_race(const access *a, uintptr_t address, const char *what)
{
    char name[PLACE_BYTES];
    fault(a->w, a->s, access_lane(a, address), "global-memory race",
          "%s of %s meets the %s by a launch that may still run; grid_wait() must come before",
          a->write ? "write" : "read", global_text(a->w->cluster->launch, a->memory, address, name), what);
    return false;
}

/* Readers: one epoch, or a set as a list that begins with the last. Sets are shared: equal steps give equal sets. */

static uint32_t *slot_of(launch_state *l, uint32_t newest, uint32_t others)
{
    uint32_t at = (newest * 0x9e3779b1U ^ others * 0x85ebca6bU) >> 4 & (l->set_capacity - 1);
    for (; l->set_slots[at]; at = (at + 1) & (l->set_capacity - 1)) {
        const epoch *e = epoch_of(l, l->set_slots[at]);
        if (e->newest == newest && e->others == others)
            break;
    }
    return &l->set_slots[at];
}

static void grow_sets(launch_state *l)
{
    uint32_t *old = l->set_slots, before = l->set_capacity;
    l->set_capacity = before ? 2 * before : SET_SLOTS_MIN;
    l->set_slots = heap_alloc(l->set_capacity, sizeof *l->set_slots);
    for (uint32_t i = 0; i < before; i++)
        if (old[i])
            *slot_of(l, epoch_of(l, old[i])->newest, epoch_of(l, old[i])->others) = old[i];
    heap_free(old);
}

static uint32_t set_of(launch_state *l, uint32_t newest, uint32_t others)
{
    if (2 * (l->set_count + 1) > l->set_capacity)
        grow_sets(l);
    uint32_t *slot = slot_of(l, newest, others);
    if (!*slot) {
        *slot = epoch_add(l, (epoch){ .newest = newest, .others = others });
        l->set_count++;
    }
    return *slot;
}

/* The reader of a cell after one more read: only this one, if all before are known. Polls would make endless sets. */
static uint32_t reader_after(const access *a, uint32_t own, uint32_t reader)
{
    launch_state *l = a->w->cluster->launch;
    if (reader < l->first_epoch || reader == own)
        return own;
    if (!l->ordered)
        return l->first_epoch;
    bool all_known = true;
    uint32_t rest = reader;
    for (int i = 0; rest && i < KNOWN_READERS_MAX; i++) {
        const epoch *e = epoch_of(l, rest);
        uint32_t one = e->newest ? e->newest : rest;
        if (one == own)
            return reader;
        const epoch *other = epoch_of(l, one);
        all_known = all_known && knows(a, other) && (other->strong || !a->strong);
        rest = e->others;
    }
    if (all_known && !rest)
        return own;
    return a->strong ? reader : set_of(l, own, reader);
}

/* Checks */

/* A store of bits that other CTAs may store, too? */
static bool stores_same(const step *s)
{
    return s->inst->op == IR_TMA_STORE && s->inst->mode == 2;
}

/* Does it store what lies there from `address` on? */
static bool check_bits(const access *a, uintptr_t address)
{
    const size_t before = address - a->start;
    char name[PLACE_BYTES];
    if (memcmp((const void *)address, a->bits + before, a->bit_bytes - before) == 0) // NOLINT: as on the device
        return true;
    return fault(a->w, a->s, access_lane(a, address), "other bits",
                 "the store to %s brings other bits than another CTA's",
                 global_text(a->w->cluster->launch, a->memory, address, name));
}

static bool check_writer(const access *a, uint32_t writer, place at)
{
    const launch_state *l = a->w->cluster->launch;
    if (stores_same(a->s) && at.step != UINT16_MAX && stores_same(&l->kernel->steps[at.step]))
        return check_bits(a, at.address);
    at.what = "write";
    if (!l->ordered)
        return race(a, at, &(epoch){ .cluster = writer - l->first_epoch - 1 });
    const epoch *e = epoch_of(l, writer);
    if (!may_meet(a, e))
        return race(a, at, e);
    return is_visible(a, e) || missing_fence(a, at, e);
}

static bool check_readers(const access *a, uint32_t reader, place at)
{
    const launch_state *l = a->w->cluster->launch;
    at.what = "read";
    if (!l->ordered) {
        bool several = reader == l->first_epoch;
        return race(a, at, &(epoch){ .cluster = several ? SEVERAL : (int64_t)(reader - l->first_epoch - 1) });
    }
    while (reader) {
        const epoch *e = epoch_of(l, reader), *one = e->newest ? epoch_of(l, e->newest) : e;
        if (!may_meet(a, one))
            return race(a, at, one);
        reader = e->others;
    }
    return true;
}

/* Ranges of cells */

/* How many cells from the first on have its writer and reader; all epochs of launches that are over count as one. */
WIDE static size_t alike(const uint32_t *writer, const uint32_t *reader, size_t count, uint32_t running)
{
    enum { BLOCK = 16 };
    uint32_t floor = running - 1;
    uint32_t w = writer[0] > floor ? writer[0] : floor, r = reader[0] > floor ? reader[0] : floor;
    size_t n = 0;
    for (; n + BLOCK <= count; n += BLOCK) {
        uint32_t differ = 0;
        for (size_t i = n; i < n + BLOCK; i++)
            differ |= ((writer[i] > floor ? writer[i] : floor) ^ w) | ((reader[i] > floor ? reader[i] : floor) ^ r);
        if (differ)
            break;
    }
    while (n < count && (writer[n] > floor ? writer[n] : floor) == w && (reader[n] > floor ? reader[n] : floor) == r)
        n++;
    return n;
}

WIDE static void fill_32(uint32_t *to, uint32_t value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

WIDE static void fill_16(uint16_t *to, uint16_t value, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = value;
}

/* Cells that are alike, none of them split. */
static bool touch_alike(const access *a, uint32_t own, const cells *k, size_t at, size_t count, uintptr_t address)
{
    launch_state *l = a->w->cluster->launch;
    uint32_t writer = k->writer[at], reader = k->reader[at];
    uint16_t here = (uint16_t)(a->s->index < UINT16_MAX ? a->s->index : UINT16_MAX);
    if (!(a->strong && !a->write) && overlap_may_run(a->w, writer)) // a relaxed load may be a hint, of what is old
        return overlap_race(a, address, "write");
    if (a->write && overlap_may_run(a->w, reader))
        return overlap_race(a, address, "read");
    bool written = writer >= l->first_epoch && writer != own;
    if (written && !check_writer(a, writer, (place){ .address = address, .step = k->write_step[at] }))
        return false;
    if (!a->write) {
        if (reader != own)
            fill_32(k->reader + at, reader_after(a, own, reader), count);
        fill_16(k->read_step + at, here, count);
        return true;
    }
    bool read = reader >= l->first_epoch && reader != own;
    if (read && !check_readers(a, reader, (place){ .address = address, .step = k->read_step[at] }))
        return false;
    if (written && !a->strong && l->ordered && epoch_of(l, writer)->strong)
        flags_forget(&l->flags, address, count);
    fill_32(k->writer + at, own, count);
    fill_32(k->reader + at, 0, count);
    fill_16(k->write_step + at, here, count);
    return true;
}

static bool touch_bytes(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t count)
{
    const cells *k = &x->bytes;
    for (size_t at = first, end = first + count, run; at < end; at += run) {
        run = alike(k->writer + at, k->reader + at, end - at, a->w->cluster->launch->running);
        if (!touch_alike(a, own, k, at, run, a->memory->base + at))
            return false;
    }
    return true;
}

/* Whole words. A write of one that was split makes it one cell again. */
static bool touch_words(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t count)
{
    const cells *k = &x->words;
    for (size_t at = first, end = first + count, run; at < end; at += run) {
        run = alike(k->writer + at, k->reader + at, end - at, a->w->cluster->launch->running);
        bool split = k->writer[at] == SPLIT;
        if (split && !touch_bytes(a, own, x, at * WORD, run * WORD))
            return false;
        if (split && a->write) {
            fill_32(k->writer + at, own, run);
            fill_32(k->reader + at, 0, run);
        }
        if (!(split && !a->write) && !touch_alike(a, own, k, at, run, a->memory->base + at * WORD))
            return false;
    }
    return true;
}

/* Some bytes of one word, which from now on are tracked one by one. */
static bool touch_split(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t count)
{
    size_t word = first / WORD;
    const cells *k = &x->words, *b = &x->bytes;
    if (k->writer[word] != SPLIT) {
        fill_32(b->writer + word * WORD, k->writer[word], WORD);
        fill_32(b->reader + word * WORD, k->reader[word], WORD);
        fill_16(b->write_step + word * WORD, k->write_step[word], WORD);
        fill_16(b->read_step + word * WORD, k->read_step[word], WORD);
        k->writer[word] = SPLIT;
        k->reader[word] = 0;
    }
    if (!touch_bytes(a, own, x, first, count))
        return false;
    if (alike(b->writer + word * WORD, b->reader + word * WORD, WORD, a->w->cluster->launch->running) == WORD) {
        k->writer[word] = b->writer[word * WORD]; // all have been touched in the same way
        k->reader[word] = b->reader[word * WORD];
        k->write_step[word] = b->write_step[word * WORD];
        k->read_step[word] = b->read_step[word * WORD];
    }
    return true;
}

static bool touch_range(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t end)
{
    size_t head = (first + WORD - 1) / WORD * WORD, tail = end / WORD * WORD;
    if (head > tail) // inside one word
        return touch_split(a, own, x, first, end - first);
    return (first == head || touch_split(a, own, x, first, head - first)) &&
           (head == tail || touch_words(a, own, x, head / WORD, (tail - head) / WORD)) &&
           (tail == end || touch_split(a, own, x, tail, end - tail));
}

/*
 * The words that 32 lanes read, all remembered? Reads that are scattered are many, and most bring nothing new. A write
 * forgets the readers, so none has come since.
 */
WIDE static bool all_remember(const allocation *m, const cells *k, const uintptr_t *address, size_t words,
                              const uint32_t known[2])
{
    uint32_t wrong = 0;
    for (size_t j = 0; j < words; j++)
        EACH_LANE(i) {
            size_t offset = address[i] - m->base, at = (offset < m->bytes ? offset : 0) / WORD + j;
            uint32_t reader = k->reader[at];
            wrong |= (uint32_t)(offset >= m->bytes) | (uint32_t)(reader != known[0] && reader != known[1]);
        }
    return !wrong;
}

bool global_is_repeated(access *a, allocation *memory, const uintptr_t *address, size_t bytes)
{
    const launch_state *l = a->w->cluster->launch;
    if (a->write || !memory->shadow)
        return false;
    uint32_t own = own_epoch(a), known[] = { own, l->ordered ? own : l->first_epoch };
    return all_remember(memory, &memory->shadow->words, address, (bytes + WORD - 1) / WORD, known);
}

static bool is_known_read(const launch_state *l, uint32_t own, const cells *k, size_t at)
{
    uint32_t reader = __atomic_load_n(&k->reader[at], __ATOMIC_RELAXED);
    return reader == own || (reader == l->first_epoch && !l->ordered);
}

/* A read of a few bytes that their cells remember already. Whoever writes them looks at the readers. */
static bool is_repeated(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t end)
{
    const launch_state *l = a->w->cluster->launch;
    if (a->write || end - first > REPEATED_BYTES_MAX)
        return false;
    for (size_t at = first; at < end; at++) {
        bool split = __atomic_load_n(&x->words.writer[at / WORD], __ATOMIC_RELAXED) == SPLIT;
        if (!is_known_read(l, own, split ? &x->bytes : &x->words, split ? at : at / WORD))
            return false;
        at = split ? at : at / WORD * WORD + WORD - 1;
    }
    return true;
}

/* Host threads that execute clusters of one launch take turns at a stripe of memory. */
static bool touch_stripe(const access *a, uint32_t own, const global_shadow *x, size_t first, size_t end)
{
    if (is_repeated(a, own, x, first, end))
        return true;
    stripe *s = &a->w->cluster->launch->device->stripes[((a->memory->base + first) >> STRIPE_SHIFT) % STRIPES];
    while (__atomic_exchange_n(&s->taken, true, __ATOMIC_ACQUIRE))
        sched_yield();
    bool ok = touch_range(a, own, x, first, end);
    const uintptr_t to = a->memory->base + first;
    if (ok && a->bits)                                              // for the next CTA to compare
        memcpy((void *)to, a->bits + (to - a->start), end - first); // NOLINT: as on the device
    __atomic_store_n(&s->taken, false, __ATOMIC_RELEASE);
    return ok;
}

bool global_touch(access *a, allocation *memory, uintptr_t address, size_t bytes)
{
    uint32_t own = own_epoch(a);
    const global_shadow *x = shadow_of(a->w->cluster->kernel->device, memory);
    a->memory = memory;
    a->start = address;
    for (uintptr_t at = address, end = address + bytes, next; at < end; at = next) {
        next = ((at >> STRIPE_SHIFT) + 1) << STRIPE_SHIFT;
        next = next < end ? next : end;
        if (!touch_stripe(a, own, x, at - memory->base, next - memory->base))
            return false;
    }
    return true;
}
