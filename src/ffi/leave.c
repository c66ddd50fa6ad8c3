/* leave.c - threads that are at work when their interpreter leaves. */
#include "ffi/leave.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

static atomic_bool leaving;
static pthread_t leaver; // written before leaving

void ffi_leave(void)
{
    leaver = pthread_self();
    atomic_store(&leaving, true);
}

void ffi_stay_if_leaving(void)
{
    while (atomic_load_explicit(&leaving, memory_order_acquire) && !pthread_equal(pthread_self(), leaver))
        pause();
}
