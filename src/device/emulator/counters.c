/* counters.c - what a launch did and what its accesses cost. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "device/emulator/machine.h"

enum { BANKS = 32, BANK_BYTES = 4, SECTOR_BYTES = 32 };

/*
 * Wavefronts of one request: lanes are served in groups that ask for 128 bytes in all; within a group every bank gives
 * one word per wavefront, and lanes that ask for the same word share it.
 */
static int group_wavefronts(const uint32_t *offset, lane_mask lanes, int bytes)
{
    uint32_t words[BANKS][LANES];
    int count[BANKS] = { 0 }, worst = 0;
    EACH_ACTIVE(i, lanes)
        for (uint32_t word = offset[i] / BANK_BYTES; word * BANK_BYTES < offset[i] + (uint32_t)bytes; word++) {
            uint32_t b = word % BANKS;
            int k = 0;
            while (k < count[b] && words[b][k] != word)
                k++;
            if (k == count[b] && k < LANES)
                words[b][count[b]++] = word;
            worst = count[b] > worst ? count[b] : worst;
        }
    return worst;
}

/* Lanes in order, each beside the one before: no bank is asked for two words. */
static bool is_conflict_free(const warp *w, const uint32_t *offset, int bytes)
{
    uint32_t wrong = ~w->active;
    EACH_LANE(i)
        wrong |= offset[i] - offset[0] - (uint32_t)(bytes * i);
    return wrong == 0;
}

void count_shared(warp *w, const step *s, const uint32_t *offset, int bytes, bool write)
{
    cluster *c = w->cluster;
    int per_group = bytes <= BANK_BYTES ? LANES : LANES * BANK_BYTES / bytes;
    int wavefronts = 0, groups = 0;
    if (is_conflict_free(w, offset, bytes)) {
        wavefronts = groups = LANES / per_group;
    } else {
        for (int first = 0; first < LANES; first += per_group) {
            lane_mask group = (per_group == LANES ? ALL_LANES : (1U << per_group) - 1) << first & w->active;
            wavefronts += group_wavefronts(offset, group, bytes);
            groups += group != 0;
        }
    }
    c->count[write ? COUNT_SHARED_WRITE_BYTES : COUNT_SHARED_READ_BYTES] += __builtin_popcount(w->active) * bytes;
    c->count[COUNT_SHARED_WAVEFRONTS] += wavefronts;
    c->count[COUNT_BANK_CONFLICTS] += wavefronts - groups;
    c->conflicts[s->index] += wavefronts - groups;
}

/* Addresses that do not fall from lane to lane touch a new sector wherever they leave one; false if some fall. */
WIDE static bool rising_sectors(const uintptr_t *address, int *count)
{
    int changes = 0, falls = 0;
    for (int i = 1; i < LANES; i++) {
        changes += address[i] / SECTOR_BYTES != address[i - 1] / SECTOR_BYTES;
        falls += address[i] < address[i - 1];
    }
    *count = changes + 1;
    return falls == 0;
}

/* Sectors of any addresses, through a small hash table. An aligned access of at most 16 bytes lies in one sector. */
static int scattered_sectors(const uintptr_t *address, lane_mask active)
{
    enum { SLOTS = 2 * LANES };
    uintptr_t slots[SLOTS] = { 0 };
    int count = 0;
    EACH_ACTIVE(i, active) {
        uintptr_t sector = address[i] / SECTOR_BYTES, at = sector % SLOTS;
        while (slots[at] && slots[at] != sector)
            at = (at + 1) % SLOTS;
        count += !slots[at];
        slots[at] = sector;
    }
    return count;
}

void count_global(warp *w, const uintptr_t *address, int bytes, bool write)
{
    int64_t *count = w->cluster->count;
    int sectors;
    if (!rising_sectors(address, &sectors))
        sectors = scattered_sectors(address, w->active);
    count[write ? COUNT_GLOBAL_WRITE_REQUESTS : COUNT_GLOBAL_READ_REQUESTS]++;
    count[write ? COUNT_GLOBAL_WRITE_SECTORS : COUNT_GLOBAL_READ_SECTORS] += sectors;
    count[write ? COUNT_GLOBAL_WRITE_BYTES : COUNT_GLOBAL_READ_BYTES] += __builtin_popcount(w->active) * bytes;
}

/* The end of a launch */

static void count_classes(const cluster *c, int64_t *value)
{
    static const counter of_class[IR_CLASS_COUNT] = {
        [IR_ALU] = COUNT_ALU, [IR_SFU] = COUNT_SFU,       [IR_MEMORY] = COUNT_MEMORY,   [IR_SYNC] = COUNT_SYNC,
        [IR_TMA] = COUNT_TMA, [IR_TENSOR] = COUNT_TENSOR, [IR_CONTROL] = COUNT_CONTROL,
    };
    for (int i = 0; i < c->kernel->ir.inst_count; i++) {
        value[of_class[ir_op_class(c->kernel->ir.insts[i].op)]] += c->executed[i];
        value[COUNT_INSTRUCTIONS] += c->executed[i];
    }
}

/* The line's place among those with conflicts; NULL: there is no room for another one. */
static device_counter *line_of(counter_totals *totals, const ir_inst *inst)
{
    char where[WHERE_BYTES];
    snprintf(where, sizeof where, "%s:%d", inst->file, inst->line);
    int i = 0;
    while (i < totals->line_count && strcmp(totals->lines[i].where, where) != 0)
        i++;
    if (i == COUNT_OF(totals->lines))
        return NULL;
    if (i == totals->line_count) {
        totals->lines[totals->line_count++] = (device_counter){ .name = "bank conflicts" };
        memcpy(totals->lines[i].where, where, sizeof where);
    }
    return &totals->lines[i];
}

static void note_conflicts(counter_totals *totals, const cluster *c)
{
    for (int i = 0; i < c->kernel->ir.inst_count; i++) {
        device_counter *line = c->conflicts[i] ? line_of(totals, &c->kernel->ir.insts[i]) : NULL;
        if (line)
            line->value += c->conflicts[i];
    }
}

void counters_add(emulator *e, const cluster *c)
{
    pthread_mutex_lock(&e->counting);
    for (int i = 0; i < COUNTER_COUNT; i++)
        e->totals.value[i] += c->count[i];
    count_classes(c, e->totals.value);
    note_conflicts(&e->totals, c);
    pthread_mutex_unlock(&e->counting);
}

int counters_conflicts(ckl_device *d, device_counter *out, int max)
{
    emulator *e = (emulator *)d;
    pthread_mutex_lock(&e->counting);
    int count = max < e->totals.line_count ? max : e->totals.line_count;
    memcpy(out, e->totals.lines, (size_t)count * sizeof *out);
    pthread_mutex_unlock(&e->counting);
    return count;
}

static const char *worst_line(const counter_totals *totals)
{
    static const device_counter none;
    const device_counter *worst = &none;
    for (int i = 0; i < totals->line_count; i++)
        if (totals->lines[i].value > worst->value)
            worst = &totals->lines[i];
    return worst->where;
}

int counters_read(ckl_device *d, device_counter *out, int max)
{
    static const char *const names[] = {
#define X(name, text) text,
        COUNTERS(X)
#undef X
    };
    emulator *e = (emulator *)d;
    pthread_mutex_lock(&e->counting);
    int count = max < COUNTER_COUNT ? max : COUNTER_COUNT;
    for (int i = 0; i < count; i++) {
        out[i] = (device_counter){ .name = names[i], .value = e->totals.value[i] };
        if (i == COUNT_BANK_CONFLICTS)
            memcpy(out[i].where, worst_line(&e->totals), WHERE_BYTES);
    }
    pthread_mutex_unlock(&e->counting);
    return count;
}

void counters_clear(ckl_device *d)
{
    emulator *e = (emulator *)d;
    pthread_mutex_lock(&e->counting);
    e->totals = (counter_totals){ 0 };
    pthread_mutex_unlock(&e->counting);
}
