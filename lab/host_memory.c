/* host_memory.c - lists of blocks, a list for each power of two. */
#include "lab/host_memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SMALLEST = 20, LISTS = 20, HUGE_PAGE = 2 << 20 };

/* As many images as a problem of a gigabyte has, twice. */
static size_t kept_max = (size_t)4 << 30;

/* The start of a block that nobody uses. */
typedef struct block {
    struct block *next;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *lists[LISTS];
static size_t kept;
static host_memory_listener ears; // who listens; set before there are threads

/* The list whose blocks hold so many bytes; LISTS: blocks of that size are not kept. */
static int list_of(size_t bytes)
{
    int list = 0;
    if (bytes < (size_t)1 << SMALLEST)
        return LISTS;
    while (list < LISTS && (size_t)1 << (SMALLEST + list) < bytes)
        list++;
    return list;
}

static size_t bytes_of(int list)
{
    return (size_t)1 << (SMALLEST + list);
}

/* Pages that are never touched take no memory. Huge ones are quicker to get. */
static void *make_block(int list)
{
    void *made = NULL;
    if (posix_memalign(&made, HUGE_PAGE, bytes_of(list)) != 0)
        return NULL;
    (void)madvise(made, bytes_of(list), MADV_HUGEPAGE);
    if (ears.made)
        ears.made(made, bytes_of(list), ears.user);
    return made;
}

static void free_block(void *memory)
{
    if (ears.going)
        ears.going(memory, ears.user);
    free(memory);
}

void *host_memory_take(size_t bytes)
{
    int list = list_of(bytes);
    if (list == LISTS)
        return malloc(bytes ? bytes : 1);
    pthread_mutex_lock(&lock);
    block *found = lists[list];
    if (found) {
        lists[list] = found->next;
        kept -= bytes_of(list);
    }
    pthread_mutex_unlock(&lock);
    return found ? (void *)found : make_block(list);
}

void host_memory_give(void *memory, size_t bytes)
{
    int list = list_of(bytes);
    block *given = memory;
    if (!memory)
        return;
    pthread_mutex_lock(&lock);
    bool keeps = list < LISTS && kept + bytes_of(list) <= kept_max;
    if (keeps) {
        *given = (block){ lists[list] };
        lists[list] = given;
        kept += bytes_of(list);
    }
    pthread_mutex_unlock(&lock);
    if (!keeps && list < LISTS)
        free_block(memory);
    else if (!keeps)
        free(memory);
}

static void free_list(block *first)
{
    while (first) {
        block *next = first->next;
        free_block(first);
        first = next;
    }
}

void host_memory_forget(void)
{
    pthread_mutex_lock(&lock);
    for (int list = 0; list < LISTS; list++) {
        free_list(lists[list]);
        lists[list] = NULL;
    }
    kept = 0;
    pthread_mutex_unlock(&lock);
}

size_t host_memory_kept(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes = kept;
    pthread_mutex_unlock(&lock);
    return bytes;
}

void host_memory_keep(size_t bytes)
{
    pthread_mutex_lock(&lock);
    kept_max = bytes;
    pthread_mutex_unlock(&lock);
}

void host_memory_listen(const host_memory_listener *listener)
{
    ears = listener ? *listener : (host_memory_listener){ 0 };
}
