/*
 * state.h - a running kernel: decoded steps, warps, CTAs and clusters, and what they know of each other.
 *
 * One host thread executes one cluster at a time. Its warps run one after another; an instruction that must wait
 * returns BLOCKED and is tried again. Asynchronous work (TMA, cp.async, wgmma) is queued and done later, at a time that
 * the settings choose.
 *
 * Order of accesses to shared memory is judged by vector clocks. Agents are the warps and, for every kind of
 * asynchronous work that is waited for as one, an agent of its own: a phase of an mbarrier, a wgmma group, a bulk
 * group, a cp.async group. An access happened before another if the latter's warp has seen its agent's clock. Of what
 * the lanes of a warp did since its last warp_sync or barrier, the arrival of a lane passes on what that lane did
 * alone.
 *
 * Clusters can be ordered by strong accesses to global memory alone. A launch of a kernel that has any is "ordered": it
 * runs in one host thread, as many clusters are resident as the device holds, and what a cluster knows of others is its
 * past. Clusters of other launches have no order, and run on all host threads.
 */
#pragma once

#include "device/emulator/alu.h"
#include "device/emulator/emulator.h"
#include "device/emulator/lanes.h"

enum {
    WARPS_PER_GROUP = 4,
    NAMED_BARRIERS = 16,
    CLUSTER_MAX = 16,
    SHARED_BASE = 1024,         // shared address of byte 0; the hardware keeps the first KiB for itself
    CLUSTER_RANK_SHIFT = 24,    // MAPA: rank + 1 above the CTA's own address
    SHARED_POISON = 0xff,       // what was not written yet: NaN in every float type
    ASYNC_AGENTS_PER_CTA = 128, // mbarriers, wgmma, bulk and cp.async queues that may exist
    NO_AGENT = 0xffff,
};

typedef struct step step;
typedef struct warp warp;
typedef struct cta cta;
typedef struct cluster cluster;

typedef struct past past;
typedef struct clock_block clock_block;
typedef struct flag flag;

/* FAULTED is false, what a check returns. YIELDED: the instruction is done, and found nothing new; others shall run. */
typedef enum outcome { FAULTED, ADVANCE, JUMPED, BLOCKED, YIELDED } outcome;
typedef outcome handler(warp *w, const step *s);

/* Where an operand lies: 32 lanes in one of the warp's two banks. */
typedef enum bank { BANK_REGISTERS, BANK_CONSTANTS, BANK_COUNT } bank;

typedef struct operand {
    int32_t offset; // bytes
    int16_t bank;
    int16_t bytes; // of a lane
    int32_t reg;   // or IR_CONSTANT
} operand;

/* A decoded instruction. */
struct step {
    handler *run;
    handler *guarded; // what to run once the registers are found free of wgmma
    alu_function *compute;
    conversion convert;
    const ir_inst *inst;
    operand *out, *in;
    int index;
    int poll; // of a strong read: its number among them
};

struct device_kernel {
    emulator *device;
    ir_kernel ir; // a copy that owns nothing
    arena memory; // steps, operands, constants, names
    step *steps;  // inst_count of them, then an EXIT
    int step_count;
    unsigned char *constants;
    size_t constant_bytes, register_bytes;
    int depth_max; // open IFs and LOOPs
    int warps;     // per CTA
    int registers; // per thread at the start, as the driver would choose from threads and ctas_per_sm
    bool ordered;  // has strong accesses to global memory
    int poll_count;
};

typedef enum agent_kind {
    AGENT_WARP,
    AGENT_TRANSFER,
    AGENT_WGMMA,
    AGENT_BULK,
    AGENT_BULK_WRITE,
    AGENT_CP_ASYNC
} agent_kind;

typedef struct agent {
    agent_kind kind;
    int cta, warp; // the warp; or of AGENT_TRANSFER: the CTA of the mbarrier
    uint32_t offset;
} agent;

/* What a cell of global memory remembers in an ordered launch (global_epoch.c): an access, or a set of readers. */
typedef struct epoch {
    int64_t cluster;
    agent who;
    uint32_t clock;
    uint16_t agent;
    int rank;
    bool strong, async;
    ir_scope scope;
    uint32_t newest, others; // of a set: the epoch of the last reader, the epoch or set of those before
} epoch;

/* The addresses that strong accesses have written (strong.c). */
typedef struct flags {
    flag *table;
    uint32_t count, capacity;
} flags;

/* One launch. While it runs only an ordered one changes, in its one host thread; and the fault. */
typedef struct launch_state {
    emulator *device;
    const device_kernel *kernel;
    int64_t grid[3];
    uint64_t scalar[IR_PARAMS_MAX]; // bits of the value; of a tensor map: its address
    tensor_map_desc map[IR_PARAMS_MAX];
    unsigned char map_bytes[IR_PARAMS_MAX][IR_TENSOR_MAP_BYTES];
    int host_threads;
    bool ordered;
    uint32_t first_epoch; // lower ones are of launches before,
    uint32_t running;     // which may still run from this one on,
    uint32_t unawaited;   // up to this one even after GRID_WAIT (overlap.c)
    bool awaited;         // GRID_WAIT was executed,
    bool awaited_first;   // before LAUNCH_DEPENDENTS
    epoch *epochs;
    uint32_t epoch_count, epoch_capacity;
    uint32_t *set_slots; // hash table of sets of readers
    uint32_t set_count, set_capacity;
    flags flags;
    uint64_t changes;                               // of global memory by atomics
    int64_t clusters, ended, waiting, resident_max; // in a deadlock: how many wait
    int64_t fault_cluster;                          // the lowest that failed, or -1
    char fault[2048];                               // its sentence
} launch_state;

/*
 * What an agent or a barrier knows: per agent the latest clock seen, and the latest that the async proxy sees too in
 * shared and in global memory; per warp the clocks up to which all its lanes are known, and have read, and the lanes
 * that are known beyond; and the past of other clusters.
 */
typedef struct knowledge {
    uint32_t *seen, *visible, *global;
    uint32_t *whole, *read;
    lane_mask *lanes;
    past **past;
} knowledge;

/* An mbarrier of one CTA. */
typedef struct mbarrier {
    uint32_t offset; // in shared memory
    int count, pending;
    int64_t tx;     // bytes expected less bytes arrived
    uint32_t phase; // completed ones
    uint16_t agent; // its transfers
    uint16_t init_agent;
    uint32_t init_clock;
    bool fenced;   // the initialisation is visible to the async proxy and the cluster
    bool releases; // stages of a ring, which the barrier at `filled` fills
    uint32_t filled;
    uint32_t transfer_phase; // the latest phase + 1 that a transfer was issued for
    knowledge gather, done;  // of the phase under way, of the completed ones
} mbarrier;

typedef struct named_barrier {
    int threads, arrived; // 0 threads: nobody has arrived
    uint32_t generation;
    knowledge gather;
    lane_mask waiting; // warps of the CTA
    const step *at;    // the instruction at which they do
} named_barrier;

/*
 * Shadow of shared memory: of 16 bytes that are used as one, else of their words, else of bytes. Cells of the first
 * tier are cleared when a CTA starts; those of the next have meaning below a cell that is CELL_SPLIT.
 */
enum { TIERS = 3, TIER_CHUNK = 0, TIER_BYTE = TIERS - 1 };
static const uint32_t TIER_SPAN[TIERS] = { 16, 4, 1 };

enum { SHARED_BLOCK = 1024 }; // bytes that are cleared at once

typedef struct cell {
    uint32_t write_clock, read_clock; // 0: never; read_clock of a shared reader set: its index
    uint16_t write_agent, read_agent;
    uint32_t write_step, read_step;
    uint8_t write_lanes, read_lanes; // of a warp's access: the first, and how many (shared.c)
    uint8_t flags;
} cell;

enum { CELL_WRITTEN = 1, CELL_ASYNC = 2, CELL_SPLIT = 4, CELL_MBARRIER = 8, CELL_UNDEFINED = 16 };

/* An access to memory by a warp or on its behalf. */
typedef struct access {
    warp *w;
    const step *s;
    int lane;
    const knowledge *knows;
    uint16_t agent;
    uint32_t clock;
    bool write, async;
    bool strong; // to global memory, at a scope
    ir_scope scope;
    allocation *memory;        // of a range of global memory
    uintptr_t start;           // of the range: its address, or its offset in shared memory
    size_t lane_bytes;         // of lanes side by side from `lane` on; 0: all of it is that lane's
    const unsigned char *bits; // of a store that other CTAs may make, too: what it writes to the range
    size_t bit_bytes;
} access;

/* Two kinds of blocks: IF waits to run its else lanes, LOOP gathers lanes that broke. */
typedef struct frame {
    int step; // the IF, ELSE or LOOP
    lane_mask otherwise, rejoin;
} frame;

typedef enum wait_kind {
    WAIT_NONE,
    WAIT_NAMED,
    WAIT_MBARRIER,
    WAIT_CLUSTER,
    WAIT_WGMMA,
    WAIT_REGISTERS,
    WAIT_GLOBAL,
} wait_kind;

struct warp {
    unsigned char *bank[BANK_COUNT];
    lane_mask active, exited;
    int pc;
    bool done;
    frame *stack;
    int depth;
    int64_t executed;
    allocation *near; // the allocation of the last global access
    cluster *cluster;
    cta *cta;
    int index;      // in the CTA
    uint16_t agent; // also its index in the cluster
    knowledge knows;
    uint32_t grid_wait; // its clock then; 0: it has not waited

    wait_kind waits; // of the instruction that returned BLOCKED last
    uint32_t wait_at, wait_for;
    bool arrived; // at the named barrier waited for, in that generation of it
    uint32_t named_generation;
    bool cluster_arrived; // and has not waited yet
    uint32_t cluster_generation;

    uint16_t cp_agent; // NO_AGENT until used
    uint32_t cp_groups;

    /* wgmma: counted per warp, executed once all four warps of the group have issued */
    uint32_t wgmma_issued, wgmma_groups, wgmma_waited;
    bool wgmma_fenced, wgmma_open; // a WGMMA_FENCE was seen; some WGMMA is not committed yet
    uint32_t *in_flight;           // per register: the wgmma group that still uses it
    bool *unfenced;                // per register: written since the last WGMMA_FENCE
    bool any_unfenced;
    bool has_read; // shared memory, since its lanes exchanged values last
    int registers; // setmaxnreg

    /* Strong accesses: what fences have covered, and what was read and not acquired yet, by scope up to the GPU's. */
    past *fenced[IR_SCOPE_GPU + 1], *observed[IR_SCOPE_GPU + 1];
    uint64_t *polled; // per strong read: a hash of what it brought last
    uintptr_t poll_at;
    int64_t idle_until; // the instruction up to which it may be in the loop of a poll
};

/* The bulk groups of one thread. */
typedef struct bulk_queue {
    uint16_t agent;  // reads the sources
    uint16_t writer; // of an ordered launch: writes to global memory
    int warp, lane;
    uint32_t groups, waited;
    bool open; // has transfers since the last commit
} bulk_queue;

/* One WGMMA of a warpgroup. */
typedef struct matrix_op {
    const step *s;
    uint64_t a, b;
    bool accumulate;
    uint32_t group;
    int issued;      // warps
    knowledge knows; // of all the warps that issued it
} matrix_op;

typedef struct warpgroup {
    uint16_t agent;
    matrix_op *ops; // not executed yet, in order
    uint32_t first; // number of the first of them since the start
    uint32_t count, capacity;
    const step *registers_at; // the SETMAXNREG under way,
    lane_mask registers_done; // which these of its warps have executed
} warpgroup;

/* The last access of a warp of another CTA to this one's shared memory. */
typedef struct visitor {
    uint32_t clock;
    const step *s;
} visitor;

struct cta {
    cluster *cluster;
    int rank;
    int64_t at[3];
    warp *warps;
    int warps_left;
    unsigned char *shared;
    cell *cells[TIERS];   // NULL: nothing is split so far yet
    bool *touched;        // SHARED_BLOCKs that hold what the next CTA must not find
    uint16_t *barrier_of; // per 8 bytes: number of its mbarrier + 1
    mbarrier *barriers;
    int barrier_count;
    named_barrier named[NAMED_BARRIERS];
    warpgroup *groups;
    bulk_queue *bulk;
    int bulk_count, bulk_capacity;
    int registers_free; // of those that the CTA began with
    visitor *visitors;  // per warp of the cluster
    bool visited;
};

/* What each lane of a CP_ASYNC copies. */
typedef struct cp_async_lanes {
    lane_mask active;
    uint32_t offset[LANES], valid[LANES];
    uintptr_t global[LANES];
} cp_async_lanes;

/* Asynchronous copies that are not done yet (transfer.c). */
typedef enum transfer_kind { TRANSFER_LOAD, TRANSFER_VALUE, TRANSFER_STORE, TRANSFER_CP_ASYNC } transfer_kind;

typedef struct transfer {
    transfer_kind kind;
    warp *w;
    const step *s;
    int lane;
    const tensor_map_desc *map;                                        // NULL: a bulk copy
    int32_t coordinates[TENSOR_MAP_RANK_MAX + TENSOR_MAP_PIXEL_MODES]; // and, im2col, offsets
    uintptr_t global;                                                  // TRANSFER_VALUE: the value
    uint32_t offset, bytes;                                            // in shared memory
    uint32_t to_ctas;                                                  // ranks
    uint32_t barrier;                                                  // offset
    uint32_t phase[CLUSTER_MAX];                                       // of each destination's mbarrier
    uint32_t group;
    cp_async_lanes *lanes; // NULL but for TRANSFER_CP_ASYNC
} transfer;

/* Readers of a cell that do not know of each other. */
typedef struct reader_set {
    uint32_t *clock; // per agent
    uint8_t *lanes;  // per warp, at that clock
    uint32_t next_free;
} reader_set;

/* Epochs that accesses of a cluster had lately. */
typedef struct recent_epoch {
    uint32_t number, clock;
    uint16_t agent;
    bool strong;
    ir_scope scope;
} recent_epoch;

struct cluster {
    launch_state *launch;
    const device_kernel *kernel;
    int64_t index;
    int cta_count, warp_count;
    cta ctas[CLUSTER_MAX];
    warp *warps; // of all CTAs
    int warps_left;
    uint64_t random;
    uint64_t progress;  // counts executed instructions and finished transfers
    bool busy;          // in this round some warp did more than wait
    bool polls;         // in this round some warp read global memory to no avail
    int rounds;         // since asynchronous work was done
    uint64_t stores;    // to global memory
    uint64_t completed; // transfers
    uint64_t yields;    // reads that found nothing new
    recent_epoch recent[64];

    agent *agents;
    int agent_count, agent_max, agent_peak; // of all clusters so far
    clock_block **pool;                     // memory of knowledge
    int pool_used, pool_count;
    reader_set *sets;
    uint32_t set_count, set_capacity, set_free;

    int cluster_arrived;
    uint32_t cluster_generation;
    knowledge cluster_gather, cluster_done;

    transfer *queue; // queue_count transfers from queue_first on, the oldest first
    int queue_first, queue_count, queue_capacity;

    int64_t *executed;  // per step
    int64_t *conflicts; // per step: extra wavefronts
    int64_t count[COUNTER_COUNT];
    bool faulted;
    bool endless; // a warp has used up its budget
    char fault[2048];
    warp *stopped;  // by a read of what nobody has written yet:
    cta *unwritten; // of this CTA's shared memory, NULL otherwise
    uint32_t unwritten_at;
};

static inline void *lanes_of(const warp *w, operand o)
{
    return w->bank[o.bank] + o.offset;
}

static inline uint32_t u32_of(const warp *w, operand o, int lane)
{
    return ((const lane_u32 *)lanes_of(w, o))[lane];
}

static inline uint64_t u64_of(const warp *w, operand o, int lane)
{
    return ((const lane_u64 *)lanes_of(w, o))[lane];
}

/* The lane that accesses an address, or offset, of the range. */
static inline int access_lane(const access *a, uintptr_t at)
{
    return a->lane_bytes ? a->lane + (int)((at - a->start) / a->lane_bytes) : a->lane;
}

static inline int first_lane(lane_mask mask)
{
    return __builtin_ctz(mask);
}

/* Lanes that have not left the kernel all take part. */
static inline bool is_converged(const warp *w)
{
    return w->active == ~w->exited;
}

/* The index of the CTA's shared memory byte of an address of its window; the caller has checked it. */
static inline uint32_t shared_offset(uint32_t address)
{
    return address - SHARED_BASE;
}

/* Memory of a step's result while some lanes are inactive: written whole, then blended. */
typedef struct result {
    _Alignas(64) unsigned char lanes[LANES_BYTES_MAX];
} result;

static inline void *result_begin(warp *w, operand o, result *aside)
{
    return w->active == ALL_LANES ? lanes_of(w, o) : aside->lanes;
}

static inline void result_end(warp *w, operand o, const result *aside)
{
    if (w->active != ALL_LANES)
        lanes_blend(lanes_of(w, o), aside->lanes, w->active, o.bytes);
}
