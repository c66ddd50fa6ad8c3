/* global_shadow.c - memory for the cells of allocations: reserved, real where it is touched, and used again. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/heap.h"
#include "device/emulator/global.h"

enum { CAPACITY_MIN = 4096, SPARE_BYTES_MAX = 64 << 20 }; // bytes of global memory that shadows describe

static cells carve(unsigned char **at, size_t count)
{
    cells k = { .writer = (uint32_t *)*at };
    k.reader = k.writer + count;
    k.write_step = (uint16_t *)(k.reader + count);
    k.read_step = k.write_step + count;
    *at = (unsigned char *)(k.read_step + count);
    return k;
}

/* NULL if there is no memory. */
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

global_shadow *shadow_of(emulator *e, allocation *a)
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
