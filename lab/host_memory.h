/*
 * host_memory.h - memory of the host for large images. Returned blocks are kept and reused, because new pages take the
 * system longer to hand out than the laboratory to fill. Any thread.
 */
#pragma once

#include <stddef.h>

/* `bytes` bytes or more, with any contents; NULL if there is no room. Give it back with the same number. */
void *host_memory_take(size_t bytes);
void host_memory_give(void *memory, size_t bytes);

/* Bytes that are kept. */
size_t host_memory_kept(void);

/* Returns kept memory to the system. */
void host_memory_forget(void);

/* Keeps up to `bytes` bytes from now on. */
void host_memory_keep(size_t bytes);

/* Told of every block that the system gives, and of each before it goes back. NULL: nobody listens. */
typedef struct host_memory_listener {
    void (*made)(void *memory, size_t bytes, void *user);
    void (*going)(void *memory, void *user);
    void *user;
} host_memory_listener;

void host_memory_listen(const host_memory_listener *listener);
