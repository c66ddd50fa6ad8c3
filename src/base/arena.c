/* arena.c - a list of blocks, each filled from its start. */
#include "base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/heap.h"

enum {
    FIRST_BYTES = 4000,
    BLOCK_BYTES = 64 * 1024,
    ALIGNMENT = 16
}; // most arenas are small, and each page costs a fault

struct arena_block {
    arena_block *before;
    size_t used, size;
    _Alignas(16) unsigned char memory[];
};

static arena_block *add_block(arena *a, size_t bytes)
{
    size_t size = a->last ? 2 * a->last->size : FIRST_BYTES;
    size = size > BLOCK_BYTES ? BLOCK_BYTES : size;
    size = bytes > size ? bytes : size;
    arena_block *block = heap_alloc(1, sizeof *block + size);
    *block = (arena_block){ .before = a->last, .size = size };
    return a->last = block;
}

void *arena_alloc(arena *a, size_t count, size_t size)
{
    assert(size == 0 || count <= SIZE_MAX / 2 / size);
    size_t bytes = (count * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    arena_block *block = a->last;
    if (!block || block->size - block->used < bytes)
        block = add_block(a, bytes);
    void *memory = block->memory + block->used;
    block->used += bytes;
    return memory;
}

char *arena_text(arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(arena_alloc(a, bytes, 1), text, bytes);
}

void arena_clear(arena *a)
{
    for (arena_block *block = a->last, *before; block; block = before) {
        before = block->before;
        heap_free(block);
    }
    a->last = NULL;
}
