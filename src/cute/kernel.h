/*
 * kernel.h - the language of kernel files: short names for what src/ir and src/cute build. Only kernel files, and
 * skeletons that are most of a kernel, include it.
 *
 * C's own for and if run while the kernel is described; LOOP, IF and FOREVER are control flow of the kernel. A value
 * that changes inside them is a variable(), set with assign(). Every name here records the line of the kernel file that
 * uses it, for the emulator's reports, the debugger and the profiler.
 */
#pragma once

#include <math.h>
#include <stdlib.h>

#include "cute/cluster_allreduce.h"
#include "cute/copy.h"
#include "cute/divisor.h"
#include "cute/dynamic_scheduler.h"
#include "cute/math.h"
#include "cute/mma.h"
#include "cute/pipeline.h"
#include "cute/reduce.h"
#include "cute/schedule.h"
#include "cute/staging.h"
#include "cute/tensor.h"
#include "cute/tiled_copy.h"
#include "cute/tma.h"
#include "ir/build.h"
#include "ir/params.h"

#define HERE       ir_at(__FILE__, __LINE__)
#define AT_HERE(x) cute_at_line(x, __FILE__, __LINE__)

/* Types of values */
#define F32  CKL_F32
#define F16  CKL_F16
#define BF16 CKL_BF16
#define I32  CKL_I32
#define I64  CKL_I64
#define U32  IR_U32
#define U64  IR_U64

/* The launch: threads of a CTA, and how many CTAs must fit an SM, which limits registers (0: no limit). */
#define launch_bounds(threads, ctas) cute_launch_bounds(threads, ctas)
#define min_ctas_per_sm(ctas)        cute_launch_bounds(0, ctas)
#define cluster_size(ctas)           cute_cluster_size(ctas)

/* Where this thread is. Indices are u32. */
#define thread()       (HERE, ir_sreg(IR_TID_X))
#define lane()         (HERE, ir_sreg(IR_LANE))
#define warp()         (HERE, ir_sreg(IR_WARP)) // uniform in the warp, and known to be
#define cta_x()        (HERE, ir_sreg(IR_CTA_X))
#define cta_y()        (HERE, ir_sreg(IR_CTA_Y))
#define cta_z()        (HERE, ir_sreg(IR_CTA_Z))
#define grid_x()       (HERE, ir_sreg(IR_GRID_X))
#define cluster_rank() (HERE, ir_sreg(IR_CLUSTER_RANK))

/* The same in warpgroups of 128 threads; the number is uniform in the warp, and known to be. */
#define warpgroup()        div(warp(), imm(4))
#define warpgroup_thread() rem(thread(), imm(128))

/*
 * Where one of them is in an arrangement: thread_at(thread(), 1, lanes, rows) is the row of thread 0, lanes, 2 * lanes,
 * ... The first size runs fastest.
 */
#define thread_at(i, mode, ...) AT_HERE(tensor_thread_at(i, shape(__VA_ARGS__), mode))

/* Values */
#define params_of(prefix)     (HERE, *(prefix##_values *)ir_declare_params(&prefix##_param_list)) // ir/params.h
#define imm(i)                (HERE, cute_imm(i))
#define imm64(i)              ir_int(CKL_I64, (i))
#define imm_as(type, i)       ir_int(type, (i)) // where no register beside it says the type
#define immf(f)               ir_float(CKL_F32, (f))
#define yes()                 ir_int(IR_PRED, 1)
#define no()                  ir_int(IR_PRED, 0)
#define coerce(type, x)       ir_coerce(type, AT_HERE(x)) // a constant becomes that type; others have it
#define variable(type, start) cute_variable(type, AT_HERE(start))
#define unwritten(type)       ir_reg(type) // a register without a value yet
#define type_bytes(type)      ir_type_bytes(type)
#define assign(reg, x)        ir_assign(reg, AT_HERE(x))
#define binary(op, x, y)      ir_binary(op, AT_HERE(x), AT_HERE(y)) // where op is chosen while describing
#define add(x, y)             ir_binary(IR_ADD, AT_HERE(x), AT_HERE(y))
#define sub(x, y)             ir_binary(IR_SUB, AT_HERE(x), AT_HERE(y))
#define mul(x, y)             ir_binary(IR_MUL, AT_HERE(x), AT_HERE(y))
#define div(x, y)             ir_binary(IR_DIV, AT_HERE(x), AT_HERE(y))
#define rem(x, y)             ir_binary(IR_REM, AT_HERE(x), AT_HERE(y))
#define div_up(x, n)          div(add(x, imm((n)-1)), imm(n)) // by a number of C: how many n hold x
#define min(x, y)             ir_binary(IR_MIN, AT_HERE(x), AT_HERE(y))
#define max(x, y)             ir_binary(IR_MAX, AT_HERE(x), AT_HERE(y))
#define neg(x)                ir_unary(IR_NEG, AT_HERE(x))
#define abs(x)                ir_unary(IR_ABS, AT_HERE(x))
#define logical_and(p, q)     ir_binary(IR_AND, AT_HERE(p), AT_HERE(q))
#define logical_or(p, q)      ir_binary(IR_OR, AT_HERE(p), AT_HERE(q))
#define logical_not(p)        ir_unary(IR_NOT, AT_HERE(p))
#define fma(x, y, z)          ir_fma(AT_HERE(x), AT_HERE(y), AT_HERE(z))
#define eq(x, y)              ir_compare(IR_EQ, AT_HERE(x), AT_HERE(y))
#define ne(x, y)              ir_compare(IR_NE, AT_HERE(x), AT_HERE(y))
#define lt(x, y)              ir_compare(IR_LT, AT_HERE(x), AT_HERE(y))
#define le(x, y)              ir_compare(IR_LE, AT_HERE(x), AT_HERE(y))
#define gt(x, y)              ir_compare(IR_GT, AT_HERE(x), AT_HERE(y))
#define ge(x, y)              ir_compare(IR_GE, AT_HERE(x), AT_HERE(y))
#define select(p, x, y)       ir_select(AT_HERE(p), AT_HERE(x), AT_HERE(y))
#define convert(type, x)      ir_convert(type, AT_HERE(x))
#define f16x2_of(from, x)     ir_f16x2_of(from, AT_HERE(x))
#define exp2(x)               ir_unary(IR_EX2, AT_HERE(x))
#define rcp(x)                ir_unary(IR_RCP_APPROX, AT_HERE(x))
#define rsqrt(x)              ir_unary(IR_RSQRT, AT_HERE(x))
#define exp2_ftz(x)           ir_unary_ftz(IR_EX2, AT_HERE(x))
#define rcp_ftz(x)            ir_unary_ftz(IR_RCP_APPROX, AT_HERE(x))
#define sqrt(x)               ir_unary(IR_SQRT, AT_HERE(x)) // correctly rounded
#define sin(x)                ir_unary(IR_SIN, AT_HERE(x))  // approximate, for small x: sincos_f32() for others
#define cos(x)                ir_unary(IR_COS, AT_HERE(x))
#define max_nan(x, y)         ir_binary_nan(IR_MAX, AT_HERE(x), AT_HERE(y)) // NaN if either is
#define min_nan(x, y)         ir_binary_nan(IR_MIN, AT_HERE(x), AT_HERE(y))
#define bitcast(type, x)      ir_bitcast(type, AT_HERE(x))
#define elect()               (HERE, ir_elect())

/*
 * Describing: UNROLL is C's for until the first error, behind which registers and layouts need not be what they should;
 * describing() says the same for other loops. Memory lives as long as the kernel.
 */
#define UNROLL(i, count)            for (int i = 0; i < (int)(count) && describing(); i++)
#define describing()                (!ir_failed())
#define describe_fail(...)          (HERE, ir_fail(__VA_ARGS__))
#define describe_alloc(count, size) ir_alloc(count, size)
#define scalar_param(type, name)    (HERE, ir_scalar_param(type, name)) // that params_of() has declared
#define share_begin()               ir_share_begin()                    // equal arithmetic is emitted once, until
#define share_end()                 ir_share_end()                      // ... here: ir/build.h

/* What is known of a value while describing */
#define is_constant(x) ir_is_constant(x)
#define is_imm(x, i)   ir_is_int(x, i)
#define maker(x)       ir_maker(x) // the instruction that makes it; NULL: a constant or variable

/* Bits of integers */
#define bit_and(x, y)           ir_binary(IR_AND, AT_HERE(x), AT_HERE(y))
#define bit_or(x, y)            ir_binary(IR_OR, AT_HERE(x), AT_HERE(y))
#define bit_xor(x, y)           ir_binary(IR_XOR, AT_HERE(x), AT_HERE(y))
#define bit_and_or(x, y, z)     ir_and_or(AT_HERE(x), AT_HERE(y), AT_HERE(z))
#define bit_not(x)              ir_unary(IR_NOT, AT_HERE(x))
#define shift_left(x, n)        ir_binary(IR_SHL, AT_HERE(x), AT_HERE(n))
#define shift_right(x, n)       ir_binary(IR_SHR, AT_HERE(x), AT_HERE(n))
#define mul_hi(x, y)            ir_binary(IR_MUL_HI, AT_HERE(x), AT_HERE(y))
#define pack(type, lo, hi)      ir_pack(type, AT_HERE(lo), AT_HERE(hi))
#define unpack(x, type, lo, hi) ir_unpack(AT_HERE(x), type, lo, hi)
#define permute_bytes(x, y, s)  ir_permute_bytes(AT_HERE(x), AT_HERE(y), AT_HERE(s))

/* Control flow */
#define CUTE_PASTE_(a, b) a##b
#define CUTE_PASTE(a, b)  CUTE_PASTE_(a, b)
#define CUTE_ONCE(block, begin, end) \
    for (__attribute__((cleanup(cute_block_left))) bool block = (HERE, begin, true); block; block = (end, false))
#define IF(p)          CUTE_ONCE(CUTE_PASTE(if_open_, __COUNTER__), ir_if(AT_HERE(p)), ir_end_if())
#define ELSE           CUTE_ONCE(CUTE_PASTE(else_open_, __COUNTER__), ir_reopen_else(), ir_end_if())
#define begin_if(p)    (HERE, ir_if(AT_HERE(p))) // an IF that ends in another function of C
#define begin_else()   (HERE, ir_else())
#define end_if()       (HERE, ir_end_if())
#define FOREVER        CUTE_ONCE(CUTE_PASTE(loop_open_, __COUNTER__), ir_loop(), ir_end_loop())
#define BREAK_IF(p)    ir_break(AT_HERE(p))
#define LOOP(i, count) LOOP_FROM(i, imm(0), count, imm(1))
#define LOOP_FROM(i, start, count, step)                                                                            \
    for (__attribute__((cleanup(cute_loop_left))) cute_loop i##_loop = (HERE, cute_loop_begin(start, count, step)); \
         i##_loop.open; cute_loop_left(&i##_loop))                                                                  \
        for (__attribute__((unused)) val i = i##_loop.index; i##_loop.open; cute_loop_end(&i##_loop))

/* Barriers and fences */
#define cta_sync()                (HERE, ir_bar_sync(imm(0), ir_current()->threads))
#define named_sync(id, threads)   (HERE, ir_bar_sync(id, threads))
#define named_arrive(id, threads) (HERE, ir_bar_arrive(id, threads))
#define cluster_sync()            (HERE, cute_cluster_sync())
#define fence_proxy_async()       (HERE, ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0))
#define fence_mbarrier_init()     (HERE, ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0))
#define warpgroup_reg_alloc(n)    (HERE, ir_plain(IR_SETMAXNREG, n, 1))
#define warpgroup_reg_dealloc(n)  (HERE, ir_plain(IR_SETMAXNREG, n, 0))
#define mma_fence()               (HERE, ir_plain(IR_WGMMA_FENCE, 0, 0))
#define mma_commit()              (HERE, ir_plain(IR_WGMMA_COMMIT, 0, 0))
#define mma_wait(pending)         (HERE, ir_plain(IR_WGMMA_WAIT, pending, 0)) // for all groups but the last `pending`
#define grid_wait()               (HERE, ir_plain(IR_GRID_WAIT, 0, 0)) // for the results of the kernel before this one
#define launch_dependents()       (HERE, ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0))
#define exit_thread()             (HERE, ir_plain(IR_EXIT, 0, 0))
#define warp_sync()               (HERE, ir_plain(IR_WARP_SYNC, 0, 0))
#define cluster_arrive()          (HERE, ir_plain(IR_CLUSTER_ARRIVE, 0, 0))
#define cluster_wait()            (HERE, ir_plain(IR_CLUSTER_WAIT, 0, 0))
#define fence_gpu()               (HERE, ir_fence(IR_SCOPE_GPU))               // CUDA's __threadfence()
#define fence_proxy_async_gmem()  (HERE, ir_plain(IR_FENCE_PROXY_ASYNC, 0, 1)) // for TMA of what ordinary stores wrote

/* Shared memory by offset and address; copies, barriers and atomics by address */
#define smem_alloc(name, bytes, align)         (HERE, ir_smem_alloc(name, bytes, align))
#define smem_address(offset)                   (HERE, ir_smem_address(offset))
#define mapa(address, rank)                    (HERE, ir_mapa(address, rank)) // in CTA `rank` of the cluster
#define cp_async(shared, global, bytes, valid) (HERE, ir_cp_async(shared, 0, global, bytes, valid))
#define cp_async_alone(shared, global, bytes, valid) \
    (HERE, ir_cp_async_alone(shared, 0, global, bytes, valid)) // fills L2 with no more
#define cp_async_commit()                 (HERE, ir_plain(IR_CP_ASYNC_COMMIT, 0, 0))
#define cp_async_wait(pending)            (HERE, ir_plain(IR_CP_ASYNC_WAIT, pending, 0))
#define ldmatrix(address, n, registers)   (HERE, ir_ldmatrix(n, false, address, 0, registers)) // n matrices of 8x8
#define ldmatrix_T(address, n, registers) (HERE, ir_ldmatrix(n, true, address, 0, registers))  // n transposed matrices
#define stmatrix(address, n, registers)   (HERE, ir_stmatrix(n, false, address, 0, registers))
#define bulk_load_at(shared, offset, global, bytes, barrier) \
    (HERE, ir_bulk_load(shared, offset, global, bytes, barrier))
#define bulk_prefetch(global, bytes)          (HERE, ir_bulk_prefetch(global, bytes))
#define prefetch_L2(global)                   (HERE, ir_prefetch(global))
#define discard_L2(global)                    (HERE, ir_discard(global)) // a line of 128 bytes
#define mbarrier_init(barrier, arrivals)      (HERE, ir_mbarrier_init(barrier, 0, arrivals))
#define mbarrier_expect(barrier, bytes)       (HERE, ir_mbarrier_expect(barrier, 0, bytes))
#define mbarrier_wait(barrier, parity)        (HERE, ir_mbarrier_wait(barrier, 0, parity))
#define mbarrier_arrive_at(peer)              (HERE, ir_mbarrier_arrive(IR_SHARED_CLUSTER, peer, 0)) // peer: mapa()
#define store_async(peer, offset, barrier, x) (HERE, ir_store_async(peer, offset, barrier, x))
#define atomic_add(address, x)                atomic_of(ADD, DEFAULT, address, x)
#define red_max(address, x)                   (HERE, ir_reduce(IR_SCOPE_GPU, IR_RED_MAX, address, 0, x))
#define atomic_exchange(address, x)           atomic_of(EXCH, DEFAULT, address, x)
#define atomic_of(op, order, at, x)           (HERE, ir_atomic(IR_ORDER_##order, IR_SCOPE_GPU, IR_RED_##op, at, 0, x))

/*
 * Accesses to global memory by which CTAs wait for each other, all at gpu scope: who acquires what another released
 * sees all that came before the release. Atomics without such a word are relaxed: they need a fence_gpu() beside them.
 */
#define atomic_add_release(address, x)  atomic_of(ADD, RELEASE, address, x)
#define atomic_add_acq_rel(address, x)  atomic_of(ADD, ACQ_REL, address, x)
#define load_relaxed(type, address)     (HERE, ir_load_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, type, address, 0))
#define load_acquire(type, address)     (HERE, ir_load_strong(IR_ORDER_ACQUIRE, IR_SCOPE_GPU, type, address, 0))
#define store_relaxed(type, address, x) (HERE, ir_store_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, type, address, 0, x))
#define store_release(type, address, x) (HERE, ir_store_strong(IR_ORDER_RELEASE, IR_SCOPE_GPU, type, address, 0, x))

/* n elements from or to adjacent addresses, by one instruction; with a hint to the caches. */
#define load_at(space, cache, type, n, address, offset, registers) \
    (HERE, ir_load(space, cache, type, n, address, offset, registers))
#define store_at(space, cache, type, n, address, offset, registers) \
    (HERE, ir_store(space, cache, type, n, address, offset, registers))
#define store_cluster(type, peer, offset, x) \
    (HERE,                                   \
     ir_store(IR_SHARED_CLUSTER, IR_CACHE_DEFAULT, type, 1, peer, offset, (val[]){ x })) // in a CTA's memory: mapa()
#define store_global(type, address, offset, x) \
    (HERE, ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, type, 1, address, offset, (val[]){ x }))

/* Between all lanes of a warp */
#define shuffle(x, from)         ir_shuffle(IR_SHFL_IDX, AT_HERE(x), AT_HERE(from))
#define shuffle_down(x, lanes)   ir_shuffle(IR_SHFL_DOWN, AT_HERE(x), AT_HERE(lanes))
#define shuffle_xor(x, distance) ir_shuffle(IR_SHFL_XOR, AT_HERE(x), AT_HERE(distance))
#define redux_max(x)             ir_redux(IR_RED_MAX, AT_HERE(x)) // of integers
#define vote_any(p)              ir_vote(IR_VOTE_ANY, AT_HERE(p))
#define vote_all(p)              ir_vote(IR_VOTE_ALL, AT_HERE(p))
#define vote_ballot(p)           ir_vote(IR_VOTE_BALLOT, AT_HERE(p))

/* Staged stores (staging.h) */
#define STAGED_STORE(s)      CUTE_ONCE(CUTE_PASTE(store_open_, __COUNTER__), staging_begin(s), staging_end())
#define LAST_STAGED_STORE(s) CUTE_ONCE(CUTE_PASTE(store_open_, __COUNTER__), staging_begin(s), staging_end_last())

/* Tensors and copies (tensor.h, copy.h, tiled_copy.h) */
#define at(t, ...)     (HERE, tensor_at(t, coord(__VA_ARGS__)))
#define at_f32(t, ...) ir_convert(CKL_F32, at(t, __VA_ARGS__))
#define set(t, i, x)                        \
    do {                                    \
        val set_value = (x);                \
        HERE;                               \
        tensor_set(t, coord(i), set_value); \
    } while (0)
#define slice(t, ...)                             (HERE, tensor_slice(t, coord(__VA_ARGS__)))
#define local_tile(t, tiler, coordinate)          (HERE, tensor_local_tile(t, tiler, coordinate))
#define local_partition(t, threads, tid)          (HERE, tensor_local_partition(t, threads, tid))
#define coordinate(t, mode, ...)                  (HERE, tensor_coordinate(t, coord(__VA_ARGS__), mode))
#define partition_S(copy, t, tid)                 (HERE, partition_S(copy, t, tid))
#define partition_D(copy, t, tid)                 (HERE, partition_D(copy, t, tid))
#define copy(from, to, align)                     (HERE, tensor_copy(from, to, align))
#define copy_tiled(copy, from, to)                (HERE, copy_tiled(copy, from, to))
#define copy_if(copy, cX, limits, from, to, fill) (HERE, copy_tiled_if(copy, cX, limits, from, to, fill))
#define fill(t, x)                                (HERE, tensor_fill(t, x))
#define _                                         WILDCARD

#include "cute/kernel_calls.h"
