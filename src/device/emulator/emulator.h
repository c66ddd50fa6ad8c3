/*
 * emulator.h - the emulated GPU as a device: settings, memory, counters and loaded kernels.
 *
 * Settings come from the environment when the device is opened: CKL_EMULATOR="seed=7 schedule=random". docs/emulator.md
 * says what they mean, what the emulator models, and under "Limits" what it does not.
 */
#pragma once

#include <pthread.h>

#include "device/device.h"
#include "device/emulator/matrix.h"

typedef enum emulator_schedule { SCHEDULE_ROUNDS, SCHEDULE_RANDOM } emulator_schedule;
typedef enum emulator_completion { COMPLETION_EAGER, COMPLETION_LAZY, COMPLETION_RANDOM } emulator_completion;

typedef struct emulator_options {
    uint64_t seed;
    emulator_schedule schedule;
    emulator_completion completion;
    int64_t budget;
    int threads, resident;
} emulator_options;

/* rounds, lazy, seed 1, a budget of some seconds. */
emulator_options emulator_options_default(void);

/* Reads settings over what *options holds; CKL_INVALID and a sentence for an unknown key or value. */
ckl_status emulator_options_parse(const char *line, emulator_options *options);

/* As emulator_open(), with settings that the environment does not change. */
ckl_status emulator_open_with(const char *which, const emulator_options *options, ckl_device **device);

/*
 * Global memory (memory.c). Device addresses are host addresses. Beside every allocation lies its shadow, one byte per
 * byte: 1 once written. Both are reserved sparsely, so an allocation costs what is touched of it.
 */
enum { MEMORY_NAME_BYTES = 40 };

typedef struct global_shadow global_shadow; // who wrote and read it last (global_shadow.c)

typedef struct allocation {
    uintptr_t base;
    size_t bytes;
    uint8_t *written;
    bool all_written;      // no need to look at the shadow
    global_shadow *shadow; // NULL: no kernel has used the memory
    void *reservation;
    size_t reserved;
    uintptr_t named; // the address that has a name, or 0
    char name[MEMORY_NAME_BYTES];
} allocation;

typedef struct memory_space {
    pthread_rwlock_t lock; // launches and copies read the list, alloc and release change it
    allocation **list;     // by address
    int count, capacity;
    size_t bytes, bytes_max;
    global_shadow *spare; // of memory that was released
    size_t spare_bytes;
} memory_space;

void global_shadow_give_back(memory_space *m, global_shadow *shadow); // NULL is allowed
void global_shadows_clear(memory_space *m);                           // all of them

void memory_init(memory_space *m, size_t bytes_max);
void memory_clear(memory_space *m);
ckl_status memory_alloc(memory_space *m, size_t bytes, void **memory);
void memory_release(memory_space *m, void *memory);

/* The allocation that holds all of [address, address + bytes), or NULL. The lock is the caller's business. */
allocation *memory_find(const memory_space *m, uintptr_t address, size_t bytes);

/* Gives an address in an allocation a name for reports. */
void memory_name(memory_space *m, uintptr_t address, const char *name);

/* Marks as written, or asks whether all was; the range lies in the allocation. */
void memory_mark(allocation *a, uintptr_t address, size_t bytes);
bool memory_is_written(const allocation *a, uintptr_t address, size_t bytes);

/*
 * Why an address is in no allocation: "1024 bytes past the end of the allocation of 4096 bytes at 0x...". Returns the
 * nearest one, or NULL.
 */
const allocation *memory_explain(const memory_space *m, uintptr_t address, size_t bytes, char *why, size_t why_bytes);

/* What was counted. Per-instruction figures are kept while a launch runs and summed up at its end (counters.c). */
#define COUNTERS(X)                                   \
    X(LAUNCHES, "launches")                           \
    X(CTAS, "ctas")                                   \
    X(WARPS, "warps")                                 \
    X(INSTRUCTIONS, "warp instructions")              \
    X(ALU, "alu instructions")                        \
    X(SFU, "sfu instructions")                        \
    X(MEMORY, "memory instructions")                  \
    X(SYNC, "sync instructions")                      \
    X(TMA, "tma instructions")                        \
    X(TENSOR, "tensor instructions")                  \
    X(CONTROL, "control instructions")                \
    X(GLOBAL_READ_BYTES, "global bytes read")         \
    X(GLOBAL_WRITE_BYTES, "global bytes written")     \
    X(GLOBAL_READ_REQUESTS, "global read requests")   \
    X(GLOBAL_READ_SECTORS, "global read sectors")     \
    X(GLOBAL_WRITE_REQUESTS, "global write requests") \
    X(GLOBAL_WRITE_SECTORS, "global write sectors")   \
    X(SHARED_READ_BYTES, "shared bytes read")         \
    X(SHARED_WRITE_BYTES, "shared bytes written")     \
    X(SHARED_WAVEFRONTS, "shared wavefronts")         \
    X(BANK_CONFLICTS, "bank conflicts")               \
    X(TMA_LOAD_BYTES, "tma bytes loaded")             \
    X(TMA_STORE_BYTES, "tma bytes stored")            \
    X(TENSOR_FLOPS, "tensor flops")                   \
    X(BARRIER_WAITS, "barrier waits")

typedef enum counter {
#define X(name, text) COUNT_##name,
    COUNTERS(X)
#undef X
        COUNTER_COUNT
} counter;

enum { CONFLICT_LINES_MAX = 64 }; // conflicts of further lines are in the sum alone

typedef struct counter_totals {
    int64_t value[COUNTER_COUNT];
    device_counter lines[CONFLICT_LINES_MAX]; // with bank conflicts
    int line_count;
} counter_totals;

/* A lock on part of the shadow of global memory, on a cache line of its own. */
typedef struct stripe {
    _Alignas(64) bool taken;
} stripe;

enum { STRIPES = 64 };

typedef struct emulator {
    ckl_device base;
    emulator_options options;
    int ctas_per_sm_max, threads_per_sm;
    const tensor_core *core;
    memory_space memory;
    pthread_mutex_t launching; // one launch at a time
    uint32_t epochs;           // of all launches so far
    ckl_stream stream;         // of the last one; its next one begins while
    uint32_t running;          // launches from this epoch on may still run, 0: none,
    uint32_t unawaited;        // those before this one even when it has waited
    stripe stripes[STRIPES];
    pthread_mutex_t counting;
    counter_totals totals;
} emulator;

int counters_read(ckl_device *d, device_counter *out, int max);
int counters_conflicts(ckl_device *d, device_counter *out, int max);
void counters_clear(ckl_device *d);

/* Decoded kernels (decode.c) and their execution (launch.c). */
ckl_status kernel_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded);
void kernel_unload(ckl_device *d, device_kernel *kernel);
ckl_status kernel_launch(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s);
ckl_status kernel_clusters_resident(ckl_device *d, const device_kernel *kernel, int *count);
