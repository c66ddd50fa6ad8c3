/* arena.h - memory that is released all at once. Running out of it ends the guard (heap.h). */
#pragma once

#include <stddef.h>

typedef struct arena_block arena_block;

/* {0} is an empty arena. One thread at a time. */
typedef struct arena {
    arena_block *last;
} arena;

/* Zeroed memory for count objects of the given size, aligned to 16 bytes; lives until arena_clear(). Never NULL. */
void *arena_alloc(arena *a, size_t count, size_t size);

/* A copy of a string in the arena. */
char *arena_text(arena *a, const char *text);

/* Releases everything; the arena is empty and usable again. */
void arena_clear(arena *a);
