/* heap.c - blocks that know the pool of their guard, and the jump out of a guard when there are no more. */
#include "base/heap.h"

#include <assert.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

typedef struct heap_block heap_block;

/* What was allocated under a guard. */
typedef struct heap_pool {
    heap_block *blocks;
} heap_pool;

struct heap_block {
    heap_block *before, *after; // in the pool
    heap_pool *pool;            // NULL: its guard has ended
    void *start;                // from calloc(), whose large blocks are zero untouched
    size_t bytes;
    _Alignas(ALIGNMENT) unsigned char memory[];
};

/* The guards of this thread, the innermost first. */
typedef struct guard {
    struct guard *outer;
    heap_pool *pool;
    jmp_buf *start;
    bool ran_out;
    size_t wanted; // bytes that were not there
} guard;

static _Thread_local guard *innermost;

static heap_block *block_of(void *memory)
{
    return (heap_block *)((unsigned char *)memory - offsetof(heap_block, memory));
}

static void link_block(heap_block *b, heap_pool *pool)
{
    b->pool = pool;
    b->before = NULL;
    b->after = pool ? pool->blocks : NULL;
    if (b->after)
        b->after->before = b;
    if (pool)
        pool->blocks = b;
}

static void unlink_block(heap_block *b)
{
    if (!b->pool)
        return;
    if (b->before)
        b->before->after = b->after;
    else
        b->pool->blocks = b->after;
    if (b->after)
        b->after->before = b->before;
}

_Noreturn void heap_run_out(size_t bytes)
{
    if (!innermost)
        abort();
    innermost->ran_out = true;
    innermost->wanted = bytes;
    longjmp(*innermost->start, 1);
}

static heap_block *block_new(size_t bytes, heap_pool *pool)
{
    size_t padded;
    bool fits = !__builtin_add_overflow(bytes, sizeof(heap_block) + ALIGNMENT, &padded);
    void *start = fits ? calloc(1, padded) : NULL;
    if (!start)
        heap_run_out(bytes);
    heap_block *b = (heap_block *)(((uintptr_t)start + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    b->start = start;
    b->bytes = bytes;
    link_block(b, pool);
    return b;
}

static size_t product(size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes;
}

void *heap_alloc(size_t count, size_t size)
{
    return block_new(product(count, size), innermost ? innermost->pool : NULL)->memory;
}

void *heap_resize(void *memory, size_t count, size_t size)
{
    if (!memory)
        return heap_alloc(count, size);
    heap_block *old = block_of(memory), *b = block_new(product(count, size), old->pool);
    memcpy(b->memory, old->memory, old->bytes < b->bytes ? old->bytes : b->bytes);
    heap_free(memory);
    return b->memory;
}

char *heap_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(heap_alloc(bytes, 1), text, bytes);
}

void heap_free(void *memory)
{
    if (!memory)
        return;
    heap_block *b = block_of(memory);
    unlink_block(b);
    free(b->start);
}

/* setjmp() in a function of its own: nothing that changes after it is a variable here. */
static ckl_status run(guard *g, ckl_status (*work)(void *user), void *user)
{
    jmp_buf start;
    g->start = &start;
    return setjmp(start) ? CKL_NO_MEMORY : work(user);
}

static void hand_over(heap_pool *pool)
{
    for (heap_block *b = pool->blocks, *after; b; b = after) {
        after = b->after;
        link_block(b, NULL);
    }
}

static void free_all(heap_pool *pool)
{
    while (pool->blocks)
        heap_free(pool->blocks->memory);
}

ckl_status heap_guard(const char *what, ckl_status (*work)(void *user), void *user)
{
    heap_pool pool = { 0 };
    guard g = { .outer = innermost, .pool = &pool };
    innermost = &g;
    ckl_status status = run(&g, work, user);
    innermost = g.outer;
    if (g.ran_out) {
        free_all(&pool);
        status_mute(false); // it may have been a ranking
        FAIL(CKL_NO_MEMORY, "%s: no host memory for %zu bytes", what, g.wanted);
    }
    hand_over(&pool);
    return status;
}
