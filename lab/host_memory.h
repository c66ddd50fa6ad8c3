/*
 * host_memory.h - memory of the host for large images: what is given back is kept and taken again, because the system takes
 * longer to hand out new pages than the laboratory to fill them. Any thread.
 */
#ifndef CKL_LAB_HOST_MEMORY_H
#define CKL_LAB_HOST_MEMORY_H

#include <stddef.h>

/* So many bytes or more, whatever is in them; NULL if there is no room. Give it back with the same number. */
void *host_memory_take(size_t bytes);
void host_memory_give(void *memory, size_t bytes);

/* Bytes that are kept. */
size_t host_memory_kept(void);

/* Gives what is kept back to the system. */
void host_memory_forget(void);

/* Keeps up to so many bytes from now on. */
void host_memory_keep(size_t bytes);

/* Tells of every block that is got from the system, and of each before it goes back: NULL, nobody listens any more. */
typedef struct host_memory_listener {
    void (*made)(void *memory, size_t bytes, void *user);
    void (*going)(void *memory, void *user);
    void *user;
} host_memory_listener;

void host_memory_listen(const host_memory_listener *listener);

#endif
