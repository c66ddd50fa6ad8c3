/*
 * global.h - the shadow of global memory: its cells (global_shadow.c), the epochs that they remember (global_epoch.c),
 * and accesses to ranges of them (global.c).
 */
#pragma once

#include "device/emulator/machine.h"

/* Arrays, one element per word or byte of an allocation. Steps are cut to 16 bits. */
typedef struct cells {
    uint32_t *writer, *reader;
    uint16_t *write_step, *read_step;
} cells;

enum { WORD = 4 };

struct global_shadow {
    cells words, bytes;
    void *reservation;
    size_t reserved, capacity; // bytes of its own, bytes that it can describe
    global_shadow *next;       // of those that are spare
};

/* The shadow of an allocation, which outlives the launch. */
global_shadow *shadow_of(emulator *e, allocation *a);

static inline const epoch *epoch_of(const launch_state *l, uint32_t number)
{
    return &l->epochs[number - l->first_epoch];
}

/* The epoch of an access, and the reader of a cell after it, if it is a read. */
uint32_t epoch_own(const access *a);
uint32_t epoch_reader(const access *a, uint32_t own, uint32_t reader);

/* Does an order stand between an access and the writer or readers of a cell, by that step? False after a fault. */
bool epoch_check_writer(const access *a, uint32_t writer, uintptr_t address, uint16_t by);
bool epoch_check_readers(const access *a, uint32_t reader, uintptr_t address, uint16_t by);

/* The same of launches that may still run. */
bool epoch_check_overlap(const access *a, uint32_t writer, uint32_t reader, uintptr_t address);
