/* global.c - global memory's shadow: who wrote and who read each word last. */
#include <sched.h>

#include "device/emulator/global.h"

#define SPLIT UINT32_MAX // as the writer of a word: its bytes have cells of their own

enum { STRIPE_SHIFT = 16, REPEATED_BYTES_MAX = 16 };

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
    if (!epoch_check_overlap(a, writer, reader, address))
        return false;
    bool written = writer >= l->first_epoch && writer != own;
    if (written && !epoch_check_writer(a, writer, address, k->write_step[at]))
        return false;
    if (!a->write) {
        if (reader != own)
            fill_32(k->reader + at, epoch_reader(a, own, reader), count);
        fill_16(k->read_step + at, here, count);
        return true;
    }
    bool read = reader >= l->first_epoch && reader != own;
    if (read && !epoch_check_readers(a, reader, address, k->read_step[at]))
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
    uint32_t own = epoch_own(a), known[] = { own, l->ordered ? own : l->first_epoch };
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
    uint32_t own = epoch_own(a);
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
