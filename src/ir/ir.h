/*
 * ir.h - the kernel IR: typed registers, instructions close to PTX's, structured control flow.
 *
 * A kernel is one flat list of instructions executed by every thread of every CTA. IF, ELSE, END_IF and LOOP, BREAK,
 * END_LOOP nest properly, so lanes of a warp that diverge at an IF reconverge at its END_IF. Registers are unlimited
 * and mutable: an instruction may write a register that another has written before.
 */
#pragma once

#include "base/arena.h"
#include "base/math.h"
#include "base/status.h"
#include "base/text.h"
#include "cutekernellib/tensor.h"
#include "cutekernellib/values.h"

/*
 * Types of values: the element types of memory and those that live in registers only. 8-bit types exist in memory
 * alone: loads widen them to 16-bit registers. A pair holds two 16-bit floats, element 0 in the low half.
 */
typedef ckl_dtype ir_type;
#define IR_PRED       ((ir_type)CKL_DTYPE_COUNT) // one bit
#define IR_U16        ((ir_type)(CKL_DTYPE_COUNT + 1))
#define IR_U32        ((ir_type)(CKL_DTYPE_COUNT + 2))
#define IR_U64        ((ir_type)(CKL_DTYPE_COUNT + 3))
#define IR_F16X2      ((ir_type)(CKL_DTYPE_COUNT + 4))
#define IR_BF16X2     ((ir_type)(CKL_DTYPE_COUNT + 5))
#define IR_TYPE_COUNT (CKL_DTYPE_COUNT + 6)

/*
 * A value: a register of the current kernel, or a constant (reg == IR_CONSTANT). {0} is no value. A constant is in `i`
 * if an integer, predicate or pair (as 32 bits), in `f` if a float.
 */
typedef ckl_val val;

enum { IR_CONSTANT = -1 };

typedef enum ir_space {
    IR_GLOBAL,         // 64-bit addresses
    IR_SHARED,         // 32-bit addresses in this CTA's window
    IR_SHARED_CLUSTER, // 32-bit addresses made by MAPA
} ir_space;

typedef enum ir_compare_kind {
    IR_EQ,
    IR_NE,
    IR_LT,
    IR_LE,
    IR_GT,
    IR_GE
} ir_compare_kind; // floats: ordered, but NE is unordered
typedef enum ir_shuffle_kind { IR_SHFL_IDX, IR_SHFL_UP, IR_SHFL_DOWN, IR_SHFL_XOR } ir_shuffle_kind;
typedef enum ir_vote_kind { IR_VOTE_ANY, IR_VOTE_ALL, IR_VOTE_BALLOT } ir_vote_kind;
typedef enum ir_tma_store_kind {
    IR_TMA_WRITE,
    IR_TMA_ADD,       // to what memory has
    IR_TMA_WRITE_SAME // bits that other CTAs may write there, too: they need no order
} ir_tma_store_kind;
typedef enum ir_reduction { IR_RED_ADD, IR_RED_MIN, IR_RED_MAX, IR_RED_AND, IR_RED_OR, IR_RED_EXCH } ir_reduction;
typedef enum ir_scope { IR_SCOPE_CTA, IR_SCOPE_CLUSTER, IR_SCOPE_GPU, IR_SCOPE_SYS } ir_scope;
typedef enum ir_order { // of an access to global memory; all but the first are strong: PTX's memory model, at [scope]
    IR_ORDER_DEFAULT,   // LD and ST: weak; ATOM and RED: relaxed
    IR_ORDER_RELAXED,
    IR_ORDER_ACQUIRE,
    IR_ORDER_RELEASE,
    IR_ORDER_ACQ_REL,
} ir_order;
typedef enum ir_cache { // hint of a global access
    IR_CACHE_DEFAULT,
    IR_CACHE_EVICT_FIRST, // not needed again
    IR_CACHE_EVICT_LAST,  // needed again soon
    IR_CACHE_READONLY,    // ld.global.nc L1::no_allocate: nothing writes it while the kernel runs
} ir_cache;

typedef enum ir_sreg_kind {
    IR_TID_X,
    IR_LANE,
    IR_WARP, // tid.x / 32, the same value in every lane of a warp and known to be so
    IR_CTA_X,
    IR_CTA_Y,
    IR_CTA_Z,
    IR_GRID_X,
    IR_GRID_Y,
    IR_GRID_Z,
    IR_CLUSTER_RANK, // of this CTA in its cluster
    IR_SMEM_BASE,    // shared address of byte 0 of the kernel's shared memory, a multiple of 1024
    IR_SREG_COUNT
} ir_sreg_kind;

/*
 * The instructions. Columns: name, text, class. Operands are listed as out <- in; attributes in [brackets] are fields
 * of ir_inst. "Converged" instructions want every lane of the warp (warpgroup, CTA, cluster: as stated) to arrive
 * together.
 *
 * Arithmetic, `type` of operands and result unless stated: integers of 32 and 64 bits, f32; pairs have ADD, SUB, MUL
 * and FMA.
 *   MOV            d <- s
 *   ADD SUB MUL    d <- x, y             integers wrap; floats round to nearest
 *   FMA            d <- x, y, z          x*y+z; floats fused, integers mad.lo
 *   MUL_HI         d <- x, y             upper half of the product of two 32- or 64-bit integers
 *   DIV REM        d <- x, y             integers truncate; division by zero is a fault. f32 DIV: correctly rounded
 *   MIN MAX        d <- x, y             floats: the number if one is NaN; [mode] 1: NaN if either is NaN
 *   NEG ABS NOT    d <- x
 *   AND OR XOR     d <- x, y             integers and predicates
 *   AND_OR         d <- x, y, z          (x & y) | z of 32 bits, by one instruction; y and z are constants
 *   SHL SHR        d <- x, n             n is u32/i32; SHR of signed types is arithmetic; n >= width gives 0 (or sign)
 *   PRMT           d <- x, y, s          byte permute of 32-bit words: byte i of d is byte (s >> 4i & 7) of x (0..3)
 *                                        and y (4..7), or its sign in all bits where s >> 4i & 8
 *   COMPARE        p <- x, y             [mode] ir_compare_kind; `type` is that of the operands
 *   SELECT         d <- p, x, y          p ? x : y
 *   CONVERT        d <- x                [from] source type, `type` result. float->int truncates and saturates,
 *                                        int->float and narrowing float round to nearest even, int->int wraps or
 *                                        extends by source sign. 8-bit floats convert as one element: e4m3/e5m2 in the
 *                                        low byte of U16, or to F16X2 as two
 *   BITCAST        d <- x                same bits, same width, other type
 *   PACK           d <- lo, hi           pair from two 16-bit floats, or from two f32 (rounded, one cvt); u64 from two
 *                                        u32; [from] the type of lo and hi
 *   UNPACK         lo, hi <- x           [from] the type of x: pairs and u64; `type` of the results
 *   SQRT           d <- x                f32, correctly rounded
 *   Approximate, f32 (errors of the hardware stated by the PTX ISA; the emulator rounds correctly):
 *   RSQRT RCP_APPROX EX2 LG2 SIN COS   d <- x   [mode] 1 of RCP_APPROX and EX2: subnormals in and out are 0, which
 *                                        saves the instructions that scale them
 *   SREG           d <- ()               [mode] ir_sreg_kind; u32
 *   PARAM          d <- ()               [n] index of a scalar parameter; of a tensor map: its u64 generic address
 *
 * Memory. Addresses: u64 global, u32 shared, plus [offset] bytes. [n] elements (1, 2, 4; n * size <= 16 bytes) of
 * `type`, aligned to their whole size.
 *   LD             d0..dn-1 <- address   [space] [cache]; or [order] relaxed or acquire at [scope]
 *   ST             () <- address, s0..sn-1   [space] [cache]; or [order] relaxed or release at [scope]
 *   ATOM           d <- address, x           of global memory; [mode] ir_reduction [order] [scope]
 *   RED            () <- address, x          as ATOM without a result; relaxed or release
 *   ST_ASYNC       () <- address, mbarrier, x    one 32- or 64-bit value to shared memory of a CTA of the cluster,
 *                                        both addresses made by MAPA for that CTA; its bytes complete on the mbarrier,
 *                                        and whoever waits for them sees what this thread did before
 *   CP_ASYNC       () <- shared, global, bytes   copies [n] = 4, 8 or 16 bytes; only `bytes` of them are read, the rest
 *                                        is 0; of 16 bytes L2 is filled with the 256 around them, [mode] 1: no more
 *   CP_ASYNC_COMMIT, CP_ASYNC_WAIT [n]           groups of this thread; waits until at most n are pending
 *   FENCE          memory fence at [scope], acquire-release
 *   FENCE_PROXY_ASYNC   makes what this thread's ordinary accesses did, and what it knows of others', visible to TMA
 *                                        and wgmma: [mode] 0 in shared memory, 1 in global memory
 *   FENCE_MBARRIER_INIT makes this thread's MBARRIER_INITs visible to the cluster and to the async proxy
 *
 * Bulk copies and TMA (async proxy). The tensor map is a u64 address from PARAM. Coordinates are i32, innermost first,
 * [n] of them. The shared address is 128-byte aligned (1024 for the 128-byte swizzle).
 *   BULK_LOAD      () <- shared, global, bytes, mbarrier   1-D copy; all 16-byte multiples; completes on the mbarrier
 *   BULK_STORE     () <- global, shared, bytes             1-D copy of the thread's bulk group
 *   TMA_LOAD       () <- shared, map, mbarrier, mask, c0..cn-1    completes box bytes on the mbarrier; mask is a u32
 *                                        (constant 0: no multicast), else bit r gives the box to CTA r, at the same
 *                                        CTA-relative shared address and mbarrier; [cache] is a hint, too; [mode] 1:
 *                                        through a map of im2col mode, [n]-2 u32 offsets stand before c0
 *   TMA_STORE      () <- map, shared, c0..cn-1   part of the thread's bulk group; reads through the async proxy;
 *                                        [mode] is an ir_tma_store_kind
 *   BULK_COMMIT    closes the thread's bulk group
 *   BULK_WAIT      [n] pending groups allowed; [mode] 1: until the sources were read, 0: until complete
 *   TMA_PREFETCH   () <- map             prefetches the descriptor
 *   PREFETCH       () <- global          brings the line there to L2, as BULK_PREFETCH does
 *   DISCARD        () <- global          its 128 bytes are lost: L2 need not write them to memory
 *   BULK_PREFETCH  () <- global, bytes   brings them to L2, both multiples of 16; no access: may stand before
 *                                        GRID_WAIT, because what a kernel before still writes goes through L2 too.
 *                                        sm_80: nothing
 *
 * mbarriers: 8 bytes of shared memory, u32 address + [offset]. Barriers in the CTA unless said.
 *   MBARRIER_INIT     () <- bar, count
 *   MBARRIER_ARRIVE   () <- bar          [space] IR_SHARED, or IR_SHARED_CLUSTER for a peer's; one arrival; release at
 *                                        cta scope (own) or cluster scope (peer)
 *   MBARRIER_EXPECT   () <- bar, bytes   arrive and expect `bytes` more of the current phase
 *   MBARRIER_WAIT     () <- bar, parity  until the phase of that parity has completed; acquires (see [scope])
 *
 * CTA, cluster and warp
 *   BAR_SYNC       () <- id              [n] threads, a multiple of 32, that all arrive; converged warps; id 0..15
 *   BAR_ARRIVE     () <- id              [n] as BAR_SYNC, without waiting
 *   CLUSTER_ARRIVE (release), CLUSTER_WAIT (acquire)   all threads of the cluster
 *   MAPA           d <- shared address, rank     the address in CTA `rank` of the cluster, for IR_SHARED_CLUSTER
 *   WARP_SYNC      all lanes
 *   SHUFFLE        d <- x, lane          [mode] ir_shuffle_kind; 32-bit x; converged
 *   VOTE           d <- p                [mode] ir_vote_kind; predicate, or u32 for BALLOT; converged warp
 *   REDUX          d <- x                [mode] ir_reduction ADD, MIN, MAX, AND, OR of i32/u32 over the warp; converged
 *   ELECT          p <- ()               true in one lane (the lowest); converged warp
 *
 * Matrix
 *   LDMATRIX       d0..dn-1 <- address   [n] = 1, 2, 4 matrices of 8x8 16-bit; lane 8i+r gives the address of row r of
 *                                        matrix i; [mode] 1 transposes; results u32
 *   STMATRIX       () <- address, s0..sn-1   the inverse
 * Of one instruction A's rows and B's columns are 32 bytes of K, whatever their types: [from] of A and [from_b] of B.
 * These are the same type, or both 8-bit floats. f32 counts as tf32: its low 13 bits are ignored. Sums of i8 and u8 are
 * i32 and wrap, all others f32.
 *   MMA            d0..d3 <- a0..a3, b0, b1, c0..c3   m16 x n8; operands as u32; not of 8-bit floats
 *   WGMMA_FENCE    orders register accesses before the next WGMMA; converged warpgroup, as the next three
 *   WGMMA          d0..dk-1 <- a, b, scale_d, d0..dk-1   m64 x [n], k = n/2; a, b u64 descriptors; scale_d predicate
 *                                        (or constant): false ignores old d; [mode] bit 0: A is M-major, bit 1: B is
 *                                        N-major, 16-bit types alone; asynchronous
 *   WGMMA_RS       d.. <- a0..a3, b, scale_d, d..     A in registers, as u32
 *   WGMMA_COMMIT, WGMMA_WAIT [n]         groups of the warpgroup; waits until at most n are pending
 *   SETMAXNREG     [n] registers; [mode] 1 increases, 0 decreases; converged warpgroup
 *
 * Control
 *   IF p, ELSE, END_IF; LOOP, BREAK (IF p), END_LOOP     BREAK stands in LOOP or inside an IF in it and leaves the loop
 *                                        lane by lane; [match] links the partners
 *   EXIT           ends the active lanes
 *   GRID_WAIT      waits for the kernel before (programmatic dependent launch); LAUNCH_DEPENDENTS lets the next start
 */
#define IR_OPS(X)                                       \
    X(MOV, "mov", ALU)                                  \
    X(ADD, "add", ALU)                                  \
    X(SUB, "sub", ALU)                                  \
    X(MUL, "mul", ALU)                                  \
    X(FMA, "fma", ALU)                                  \
    X(MUL_HI, "mul_hi", ALU)                            \
    X(DIV, "div", ALU)                                  \
    X(REM, "rem", ALU)                                  \
    X(MIN, "min", ALU)                                  \
    X(MAX, "max", ALU)                                  \
    X(NEG, "neg", ALU)                                  \
    X(ABS, "abs", ALU)                                  \
    X(NOT, "not", ALU)                                  \
    X(AND, "and", ALU)                                  \
    X(OR, "or", ALU)                                    \
    X(XOR, "xor", ALU)                                  \
    X(SHL, "shl", ALU)                                  \
    X(SHR, "shr", ALU)                                  \
    X(AND_OR, "and_or", ALU)                            \
    X(PRMT, "prmt", ALU)                                \
    X(COMPARE, "compare", ALU)                          \
    X(SELECT, "select", ALU)                            \
    X(CONVERT, "convert", ALU)                          \
    X(BITCAST, "bitcast", ALU)                          \
    X(PACK, "pack", ALU)                                \
    X(UNPACK, "unpack", ALU)                            \
    X(SQRT, "sqrt", SFU)                                \
    X(RSQRT, "rsqrt", SFU)                              \
    X(RCP_APPROX, "rcp_approx", SFU)                    \
    X(EX2, "ex2", SFU)                                  \
    X(LG2, "lg2", SFU)                                  \
    X(SIN, "sin", SFU)                                  \
    X(COS, "cos", SFU)                                  \
    X(SREG, "sreg", ALU)                                \
    X(PARAM, "param", ALU)                              \
    X(LD, "ld", MEMORY)                                 \
    X(ST, "st", MEMORY)                                 \
    X(ATOM, "atom", MEMORY)                             \
    X(RED, "red", MEMORY)                               \
    X(ST_ASYNC, "st_async", MEMORY)                     \
    X(CP_ASYNC, "cp_async", MEMORY)                     \
    X(CP_ASYNC_COMMIT, "cp_async_commit", SYNC)         \
    X(CP_ASYNC_WAIT, "cp_async_wait", SYNC)             \
    X(FENCE, "fence", SYNC)                             \
    X(FENCE_PROXY_ASYNC, "fence_proxy_async", SYNC)     \
    X(FENCE_MBARRIER_INIT, "fence_mbarrier_init", SYNC) \
    X(BULK_LOAD, "bulk_load", TMA)                      \
    X(BULK_STORE, "bulk_store", TMA)                    \
    X(TMA_LOAD, "tma_load", TMA)                        \
    X(TMA_STORE, "tma_store", TMA)                      \
    X(BULK_COMMIT, "bulk_commit", SYNC)                 \
    X(BULK_WAIT, "bulk_wait", SYNC)                     \
    X(TMA_PREFETCH, "tma_prefetch", TMA)                \
    X(BULK_PREFETCH, "bulk_prefetch", TMA)              \
    X(PREFETCH, "prefetch", MEMORY)                     \
    X(DISCARD, "discard", MEMORY)                       \
    X(MBARRIER_INIT, "mbarrier_init", SYNC)             \
    X(MBARRIER_ARRIVE, "mbarrier_arrive", SYNC)         \
    X(MBARRIER_EXPECT, "mbarrier_expect", SYNC)         \
    X(MBARRIER_WAIT, "mbarrier_wait", SYNC)             \
    X(BAR_SYNC, "bar_sync", SYNC)                       \
    X(BAR_ARRIVE, "bar_arrive", SYNC)                   \
    X(CLUSTER_ARRIVE, "cluster_arrive", SYNC)           \
    X(CLUSTER_WAIT, "cluster_wait", SYNC)               \
    X(MAPA, "mapa", ALU)                                \
    X(WARP_SYNC, "warp_sync", SYNC)                     \
    X(SHUFFLE, "shuffle", ALU)                          \
    X(VOTE, "vote", ALU)                                \
    X(REDUX, "redux", ALU)                              \
    X(ELECT, "elect", ALU)                              \
    X(LDMATRIX, "ldmatrix", MEMORY)                     \
    X(STMATRIX, "stmatrix", MEMORY)                     \
    X(MMA, "mma", TENSOR)                               \
    X(WGMMA_FENCE, "wgmma_fence", SYNC)                 \
    X(WGMMA, "wgmma", TENSOR)                           \
    X(WGMMA_RS, "wgmma_rs", TENSOR)                     \
    X(WGMMA_COMMIT, "wgmma_commit", SYNC)               \
    X(WGMMA_WAIT, "wgmma_wait", SYNC)                   \
    X(SETMAXNREG, "setmaxnreg", SYNC)                   \
    X(IF, "if", CONTROL)                                \
    X(ELSE, "else", CONTROL)                            \
    X(END_IF, "end_if", CONTROL)                        \
    X(LOOP, "loop", CONTROL)                            \
    X(BREAK, "break", CONTROL)                          \
    X(END_LOOP, "end_loop", CONTROL)                    \
    X(EXIT, "exit", CONTROL)                            \
    X(GRID_WAIT, "grid_wait", SYNC)                     \
    X(LAUNCH_DEPENDENTS, "launch_dependents", SYNC)

typedef enum ir_op {
#define X(name, text, class) IR_##name,
    IR_OPS(X)
#undef X
        IR_OP_COUNT
} ir_op;

typedef enum ir_class { IR_ALU, IR_SFU, IR_MEMORY, IR_SYNC, IR_TMA, IR_TENSOR, IR_CONTROL, IR_CLASS_COUNT } ir_class;

/* One instruction. Fields that its op does not mention are 0. */
typedef struct ir_inst {
    ir_op op;
    ir_type type, from;
    ir_type from_b; // of B, where [from] is that of A: MMA and WGMMA
    ir_space space;
    ir_cache cache;
    ir_scope scope;
    ir_order order;
    int mode;
    int n;
    int64_t offset; // bytes added to the address operand
    int out_count, in_count;
    val *out;  // registers
    val *in;   // registers and constants
    int match; // IF -> its ELSE or END_IF; ELSE -> END_IF; END_IF -> IF; LOOP <-> END_LOOP; BREAK -> END_LOOP
    const char *file;
    int line;
} ir_inst;

enum { IR_TENSOR_MAP_RANK_MAX = 5, IR_TENSOR_MAP_BYTES = 128, IR_MBARRIER_BYTES = 8, IR_PARAMS_MAX = 96 };

/* The kernel's side of a tensor map; the launch gives pointer, sizes and strides. Modes innermost first. */
typedef struct ir_tensor_map {
    ckl_dtype dtype;
    int rank; // 0: the kernel has not said
    int box[IR_TENSOR_MAP_RANK_MAX];
    int swizzle_bytes;
    int step[IR_TENSOR_MAP_RANK_MAX]; // elements of the tensor from one of the box to the next; 0 means 1
    bool im2col;                      // box: channels x pixels; pixels run on across rows and images
} ir_tensor_map;

/* A parameter of the kernel: a scalar, or a tensor map (128 bytes, aligned to 64). */
typedef struct ir_param {
    const char *name;
    bool tensor_map;
    ir_type type;
    ir_tensor_map map;
} ir_param;

/* A named allocation in the kernel's shared memory; no two share a byte. */
typedef struct ir_smem {
    const char *name;
    int64_t offset, bytes, align;
} ir_smem;

/*
 * The barriers of a ring of stages: full[s] and empty[s] are 8 bytes each from these offsets on. For reports, which
 * name them, and for a check: a stage is not released more often than it was filled.
 */
typedef struct ir_ring {
    const char *name;
    int64_t full, empty;
    int stages;
} ir_ring;

/*
 * What a kernel is printed for. Later GPUs run it too, except sm_90a, which is Hopper's alone (wgmma, setmaxnreg);
 * sm_90 has all else, such as TMA and clusters.
 */
typedef enum ir_target { IR_SM80, IR_SM90, IR_SM90A } ir_target;

/* A described kernel. Everything it points to lives in its arena. */
typedef struct ir_kernel {
    arena memory;
    const char *name; // a C identifier, unique to operator and implementation
    const char *note; // operator and config, for people and profilers
    ir_target target;
    int threads;        // per CTA, a multiple of 32
    int cluster;        // CTAs of a cluster along x; 1: none
    int ctas_per_sm;    // at least: limits registers (.minnctapersm); 0: any
    int64_t smem_bytes; // dynamic shared memory
    ir_inst *insts;
    int inst_count, inst_capacity;
    ir_type *reg_types;
    int reg_count, reg_capacity;
    ir_param *params;
    int param_count, param_capacity;
    ir_smem *smem;
    int smem_count, smem_capacity;
    ir_ring *rings;
    int ring_count, ring_capacity;
} ir_kernel;

/* Name of an op ("ld"), a type ("bf16x2"), a class ("tensor"). */
const char *ir_op_text(ir_op op);
const char *ir_target_text(ir_target target); // "sm_90a"
const char *ir_type_text(ir_type type);
const char *ir_class_text(ir_class class);
ir_class ir_op_class(ir_op op);

/* Bytes of a register of the type: 1 (PRED), 2, 4, 8. */
int ir_type_bytes(ir_type type);
int ir_memory_bytes(ir_type type);   // of an element in memory: those of 8 bits lie in wider registers
bool ir_type_is_float(ir_type type); // pairs too
bool ir_type_is_signed(ir_type type);
bool ir_type_is_pair(ir_type type);

static inline bool ir_is_constant(val v)
{
    return v.reg == IR_CONSTANT;
}

/* Frees a kernel made by ir_describe_end(). NULL is allowed. */
void ir_kernel_free(ir_kernel *kernel);

/* Checks a whole kernel (verify.c lists the rules); the first fault is the sentence, with the C source line. */
ckl_status ir_verify(const ir_kernel *kernel);

/* Prints the kernel as PTX for its target. */
ckl_status ir_print_ptx(const ir_kernel *kernel, text *out);

/* Prints the IR for people, one instruction a line. */
void ir_print(const ir_kernel *kernel, text *out);
