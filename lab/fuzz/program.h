/* program.h - a program under construction: its random choices, its values, and the statements that it is made of. */
#pragma once

#include "ir/build.h"
#include "lab/fuzz/fuzz.h"

/* A program's slice of global memory, bytes. What it stores at its end follows. */
enum {
    FUZZ_INPUT_BYTES = 8192, // read only; also two tensors of 16 rows, one for each CTA
    FUZZ_ROW_BYTES = 256,    // of these tensors
    FUZZ_ROWS = 16,
    FUZZ_BULK_BYTES = FUZZ_INPUT_BYTES,           // the same shape, written by bulk copies
    FUZZ_BULK = FUZZ_INPUT_BYTES,                 // where it begins
    FUZZ_OWN = FUZZ_BULK + FUZZ_BULK_BYTES,       // 16 bytes for each thread
    FUZZ_THREADS_MAX = 256,                       // of a cluster
    FUZZ_SUMS = FUZZ_OWN + 16 * FUZZ_THREADS_MAX, // 128 bytes for each statement with atomics
    FUZZ_SUMS_MAX = 8,
    FUZZ_OUTPUT = FUZZ_SUMS + 128 * FUZZ_SUMS_MAX,
};

/* Its shared memory. */
enum {
    FUZZ_TILE_BYTES = 16384,                  // operands of matrices, boxes of TMA
    FUZZ_EXCHANGE = FUZZ_TILE_BYTES,          // 16 bytes for each thread of a CTA
    FUZZ_BARRIERS = FUZZ_EXCHANGE + 16 * 128, // 8 bytes for each mbarrier
    FUZZ_BARRIERS_MAX = 16,
    FUZZ_SMEM_BYTES = FUZZ_BARRIERS + 8 * FUZZ_BARRIERS_MAX,
};

enum { POOL_MAX = 128, VARIABLES_MAX = 16, DEPTH_MAX = 3 };

typedef struct program {
    const fuzz_batch *batch;
    uint64_t random;
    ir_target target;
    int threads, cluster; // threads of a CTA, CTAs
    int depth;            // of control flow
    bool converged;       // all threads of the cluster are here
    bool in_loop;
    int sums, barriers; // used so far
    val number;         // of this program in the batch, i32
    val base;           // address of the slice
    val input, own;     // addresses of this thread's inputs (8 bytes apart) and of its own 16 bytes
    val thread, rank;   // u32; rank of the CTA in its cluster
    val leader;         // predicate: thread 0 of the CTA
    val smem;           // u32 address of shared memory
    val maps[2];        // of the inputs and of what bulk copies write
    val pool[POOL_MAX]; // all values; floats are numbers or the NaN of this GPU's arithmetic
    int count;
    val variables[VARIABLES_MAX]; // that branches and loops may assign
    int variable_count;
} program;

/* Choices. At most one of them stands in the arguments of a call: C leaves their order open. */
int choose(program *p, int count); // 0 .. count - 1
bool chance(program *p, int one_in);
ir_type choose_type(program *p, uint32_t set); // of a set of types, 1 << type each

/* Values */
void keep(program *p, val v);       // into the pool
val pick(program *p, ir_type type); // any value of the type, a constant now and then
val pick_register(program *p, ir_type type);
val number_of(val v); // floats: NaNs replaced, because their bits are not promised
val load_input(program *p, ir_type type);
val small_float(program *p, ir_type type);      // -8 .. 7, of halves 0 or 1: sums of a cluster are exact in any order
val barrier_address(program *p);                // of the next mbarrier
val element_at(val base, val index, int bytes); // the address of element `index`, u32, of so many bytes

/* The register that holds an element of memory: 8-bit types live in 16 bits. */
ir_type register_type(ir_type memory);

/* A predicate that all threads of the cluster agree on: of an input that they all read. */
val uniform_predicate(program *p);

/* A barrier of all threads that may use shared memory next, the async proxy too. */
void settle_smem(program *p);

/* Statements. Each appends instructions and keeps its results. */
typedef void statement(program *p);
statement do_arithmetic, do_input_vector;                                                 // arithmetic.c
statement do_if, do_loop, do_variable, do_exit;                                           // control.c
statement do_shuffle, do_vote, do_redux, do_elect, do_warp_sync, do_special;              // warp.c
statement do_own_memory, do_own_atomic, do_global_sums, do_exchange, do_pair_of_barriers; // memory.c
statement do_mma, do_ldmatrix, do_stmatrix, do_wgmma;                                     // matrix.c
statement do_cp_async, do_mbarrier, do_bulk, do_tma, do_prefetch, do_cluster_exchange, do_store_async,
    do_multicast; // async.c

void do_statements(program *p, int count); // program.c: any that fit here
