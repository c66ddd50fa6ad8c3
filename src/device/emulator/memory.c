/* memory.c - emulated global memory: sparse host memory between guard pages, and the shadow of what was written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/emulator/emulator.h"

/* Fresh memory holds NaNs of every float type. Filling all of a huge sparse allocation would make it real. */
enum { PAGE = 4096, POISON = 0xff };
#define POISON_BYTES_MAX ((size_t)64 << 20)

void memory_init(memory_space *m, size_t bytes_max)
{
    *m = (memory_space){ .bytes_max = bytes_max };
    pthread_rwlock_init(&m->lock, NULL);
}

static void destroy(allocation *a)
{
    munmap(a->reservation, a->reserved);
    free(a);
}

void memory_clear(memory_space *m)
{
    for (int i = 0; i < m->count; i++)
        destroy(m->list[i]);
    free(m->list);
    pthread_rwlock_destroy(&m->lock);
}

/* The number of allocations that begin at or before the address. */
static int count_before(const memory_space *m, uintptr_t address)
{
    int low = 0, high = m->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m->list[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

allocation *memory_find(const memory_space *m, uintptr_t address, size_t bytes)
{
    int i = count_before(m, address) - 1;
    if (i < 0)
        return NULL;
    allocation *a = m->list[i];
    size_t offset = address - a->base;
    return offset <= a->bytes && bytes <= a->bytes - offset ? a : NULL;
}

/* One reservation: a guard page, the data, a guard page, the shadow. False: there is no room for it. */
static bool reserve(size_t bytes, allocation *a)
{
    size_t data = (bytes + PAGE - 1) / PAGE * PAGE, total = 2 * data + 2 * PAGE;
    unsigned char *memory =
        mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    mprotect(memory, PAGE, PROT_NONE);
    mprotect(memory + PAGE + data, PAGE, PROT_NONE);
    memset(memory + PAGE, POISON, bytes < POISON_BYTES_MAX ? bytes : POISON_BYTES_MAX);
    *a = (allocation){ .base = (uintptr_t)(memory + PAGE),
                       .bytes = bytes,
                       .written = memory + 2 * PAGE + data,
                       .reservation = memory,
                       .reserved = total };
    return true;
}

/* Makes room in the list for one more. */
static bool grow_list(memory_space *m)
{
    if (m->count < m->capacity)
        return true;
    int larger = m->capacity ? 2 * m->capacity : 64;
    allocation **list = realloc(m->list, (size_t)larger * sizeof(allocation *));
    if (!list)
        return false;
    m->list = list;
    m->capacity = larger;
    return true;
}

static void insert(memory_space *m, allocation *a)
{
    int at = count_before(m, a->base);
    memmove(m->list + at + 1, m->list + at, (size_t)(m->count - at) * sizeof(allocation *));
    m->list[at] = a;
    m->count++;
    m->bytes += a->bytes;
}

ckl_status memory_alloc(memory_space *m, size_t bytes, void **memory)
{
    if (bytes == 0) {
        *memory = NULL;
        return CKL_OK;
    }
    pthread_rwlock_wrlock(&m->lock);
    bool fits = bytes <= m->bytes_max - m->bytes;
    allocation *a = fits && grow_list(m) ? malloc(sizeof *a) : NULL;
    bool made = a && reserve(bytes, a);
    if (made)
        insert(m, a);
    else
        free(a);
    size_t used = m->bytes;
    pthread_rwlock_unlock(&m->lock);
    if (fits && !made)
        FAIL(CKL_NO_MEMORY, "device memory: no host memory for %zu emulated bytes", bytes);
    if (!fits)
        FAIL(CKL_NO_MEMORY, "device memory: %zu bytes do not fit, %zu of %zu are in use", bytes, used, m->bytes_max);
    *memory = (void *)a->base;
    return CKL_OK;
}

void memory_release(memory_space *m, void *memory)
{
    pthread_rwlock_wrlock(&m->lock);
    int at = count_before(m, (uintptr_t)memory) - 1;
    if (at >= 0 && m->list[at]->base == (uintptr_t)memory) {
        allocation *a = m->list[at];
        m->count--;
        memmove(m->list + at, m->list + at + 1, (size_t)(m->count - at) * sizeof(allocation *));
        m->bytes -= a->bytes;
        destroy(a);
    }
    pthread_rwlock_unlock(&m->lock);
}

void memory_name(memory_space *m, uintptr_t address, const char *name)
{
    pthread_rwlock_wrlock(&m->lock);
    allocation *a = memory_find(m, address, 0);
    if (a) {
        a->named = address;
        snprintf(a->name, sizeof a->name, "%s", name);
    }
    pthread_rwlock_unlock(&m->lock);
}

void memory_mark(allocation *a, uintptr_t address, size_t bytes)
{
    if (a->all_written)
        return;
    memset(a->written + (address - a->base), 1, bytes);
    if (bytes == a->bytes)
        a->all_written = true;
}

bool memory_is_written(const allocation *a, uintptr_t address, size_t bytes)
{
    return a->all_written || !memchr(a->written + (address - a->base), 0, bytes);
}

const allocation *memory_explain(const memory_space *m, uintptr_t address, size_t bytes, char *why, size_t why_bytes)
{
    int after = count_before(m, address);
    const allocation *below = after > 0 ? m->list[after - 1] : NULL;
    const allocation *above = after < m->count ? m->list[after] : NULL;
    size_t past = below ? address + bytes - (below->base + below->bytes) : SIZE_MAX;
    size_t before = above ? above->base - address : SIZE_MAX;
    if (!below && !above)
        snprintf(why, why_bytes, "there is no allocation");
    else if (past <= before)
        snprintf(why, why_bytes, "%zu bytes past the end of the allocation of %zu bytes at 0x%zx", past, below->bytes,
                 (size_t)below->base);
    else
        snprintf(why, why_bytes, "%zu bytes before the allocation of %zu bytes at 0x%zx", before, above->bytes,
                 (size_t)above->base);
    return past <= before ? below : above;
}
