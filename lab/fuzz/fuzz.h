/*
 * fuzz.h - random kernels, executed on several devices whose memory must be the same bit for bit.
 *
 * Program I of a seed is always the same. FUZZ_BATCH programs in a row share one kernel, one for each cluster of the
 * grid, because compiling is what costs time on a GPU; ptxas takes more for each program if there are more than that. A
 * program ends by storing every value that it has; all it reads and writes lies in a slice of the batch's memory. Where
 * slices differ, or a batch fails, its programs are run one by one, and what still differs is made as short as it can
 * be (fuzz_minimise).
 *
 * What no program contains is listed in fuzz_absent, and the results that are made comparable in arithmetic.c.
 */
#pragma once

#include "device/device.h"

typedef enum fuzz_kind {
    FUZZ_ARITHMETIC, // values, conversions, selections under control flow of one warp's width
    FUZZ_CONTROL,    // nested branches and loops, divergent ones too; shuffles, votes, reductions
    FUZZ_SHARED,     // exchanges in shared memory, barriers, atomics, accesses of every width
    FUZZ_MATRIX,     // mma, wgmma, ldmatrix, stmatrix
    FUZZ_ASYNC,      // clusters, mbarriers, cp.async, bulk copies, TMA
    FUZZ_KIND_COUNT
} fuzz_kind;

extern const char *const fuzz_kind_names[FUZZ_KIND_COUNT + 1]; // ends with NULL

enum { FUZZ_BATCH = 16, FUZZ_KINDS_ALL = -1 };

/* Programs to choose from. */
typedef struct fuzz_set {
    uint64_t seed;
    int kind; // fuzz_kind, or FUZZ_KINDS_ALL: batches take turns
} fuzz_set;

/* Consecutive programs of a set, all of one batch, and the kernel that they share. */
typedef struct fuzz_batch {
    fuzz_set set;
    int64_t first;
    int count;
    fuzz_kind kind;
    ir_kernel *kernel;
    int64_t slice_bytes;      // of memory for each program
    ckl_dtype map_type;       // of the tensor maps over the inputs and over what bulk copies write
    int map_box[2], map_span; // elements, bytes of the swizzle
} fuzz_batch;

fuzz_kind fuzz_kind_of(fuzz_set set, int64_t number);
ir_target fuzz_target_of(fuzz_set set, int64_t number);

/* Describes and verifies the kernel of `count` programs from `first` on, all of one batch. Free it in any case. */
ckl_status fuzz_describe(fuzz_set set, int64_t first, int count, fuzz_batch *batch);
void fuzz_batch_free(fuzz_batch *batch);

/* Fills the memory of a batch: inputs with all kinds of numbers, the rest with zeros. */
void fuzz_fill(const fuzz_batch *batch, unsigned char *memory);

/* Executes a kernel of the batch (its own or a shorter one) on memory that the host holds, count * slice_bytes. */
ckl_status fuzz_execute(ckl_device *device, const fuzz_batch *batch, const ir_kernel *kernel, unsigned char *memory);

/* Can the device execute kernels for the target? */
bool fuzz_takes(const ckl_device *device, ir_target target);

/* The devices to compare; the first is the reference, an emulator: it says which shorter programs are sound. */
typedef struct fuzz_devices {
    ckl_device *const *all;
    int count;
} fuzz_devices;

/* A program that does not do the same everywhere. */
typedef struct fuzz_finding {
    int64_t program;
    const char *device; // the one that differs from the first, or that failed
    text what;          // sentences: what differs, or why it failed
    text ir;            // the shortest program that still does
    int length;         // its instructions
} fuzz_finding;

/* Is a device lost to further work? */
bool fuzz_is_lost(ckl_device *device);

/* Who hears of findings; `may_shorten` is asked before each: making one short takes up to a minute. */
typedef struct fuzz_listener {
    void (*report)(void *user, const fuzz_finding *finding);
    bool (*may_shorten)(void *user);
    void *user;
} fuzz_listener;

/*
 * Runs a batch on all devices that take it and reports every program that differs or fails; returns how many. Some
 * faults lose the device: then a batch is given up (FUZZ_LOST), and its programs must be checked alone; a single
 * program is reported as it is.
 */
enum { FUZZ_LOST = -1 };
int fuzz_check(fuzz_devices devices, fuzz_set set, int64_t first, int count, const fuzz_listener *listener);

/*
 * Shortens the kernel of a batch of one program as long as `fails` says so of what is left: by instructions, whole
 * blocks, and constants. The kernel is changed in place.
 */
typedef bool fuzz_fails(void *user, const ir_kernel *kernel);
void fuzz_minimise(ir_kernel *kernel, fuzz_fails *fails, void *user);

/* Ops that no program contains, each with its reason; ends with a NULL reason. */
typedef struct fuzz_absence {
    ir_op op;
    const char *reason;
} fuzz_absence;

extern const fuzz_absence fuzz_absent[];

/* Does a program of some kind contain this arithmetic? False also for what no device has. */
bool fuzz_has_arithmetic(ir_op op, ir_type type, ir_type from, ir_target target);
