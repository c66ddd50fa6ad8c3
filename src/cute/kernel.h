/*
 * kernel.h - the language of kernel files: short names for what src/ir and src/cute build. Only kernel files, and skeletons
 * that are most of a kernel, include it.
 *
 * C's own for and if run while the kernel is described; LOOP, IF and FOREVER are control flow of the kernel. A value that
 * changes inside them is a variable(), set with assign(). Every name here records the line of the kernel file that uses it,
 * for the emulator's reports, the debugger and the profiler.
 */
#ifndef CKL_CUTE_KERNEL_H
#define CKL_CUTE_KERNEL_H

#include <math.h>
#include <stdlib.h>

#include "cute/copy.h"
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

#define HERE ir_at(__FILE__, __LINE__)

/* Types of values */
#define F32  CKL_F32
#define F16  CKL_F16
#define BF16 CKL_BF16
#define I32  CKL_I32
#define I64  CKL_I64
#define U32  IR_U32
#define U64  IR_U64

/* Where this thread is. Indices are u32. */
#define thread()       (HERE, ir_sreg(IR_TID_X))
#define lane()         (HERE, ir_sreg(IR_LANE))
#define warp()         (HERE, ir_sreg(IR_WARP)) // uniform in the warp, and known to be
#define cta_x()        (HERE, ir_sreg(IR_CTA_X))
#define cta_y()        (HERE, ir_sreg(IR_CTA_Y))
#define cta_z()        (HERE, ir_sreg(IR_CTA_Z))
#define grid_x()       (HERE, ir_sreg(IR_GRID_X))
#define grid_y()       (HERE, ir_sreg(IR_GRID_Y))
#define cluster_rank() (HERE, ir_sreg(IR_CLUSTER_RANK))

/* Values */
#define param(type, name)     (HERE, ir_scalar_param(type, name))
#define pointer(name)         (HERE, ir_scalar_param(IR_U64, name))
#define imm(i)                ir_int(CKL_I32, (i))
#define immf(f)               ir_float(CKL_F32, (f))
#define yes()                 ir_int(IR_PRED, 1)
#define variable(type, start) (HERE, cute_variable(type, start))
#define assign(reg, x)        (HERE, ir_assign(reg, x))
#define add(x, y)             (HERE, ir_binary(IR_ADD, x, y))
#define sub(x, y)             (HERE, ir_binary(IR_SUB, x, y))
#define mul(x, y)             (HERE, ir_binary(IR_MUL, x, y))
#define div(x, y)             (HERE, ir_binary(IR_DIV, x, y))
#define rem(x, y)             (HERE, ir_binary(IR_REM, x, y))
#define min(x, y)             (HERE, ir_binary(IR_MIN, x, y))
#define max(x, y)             (HERE, ir_binary(IR_MAX, x, y))
#define logical_and(p, q)     (HERE, ir_binary(IR_AND, p, q))
#define logical_or(p, q)      (HERE, ir_binary(IR_OR, p, q))
#define logical_not(p)        (HERE, ir_unary(IR_NOT, p))
#define fma(x, y, z)          (HERE, ir_fma(x, y, z))
#define eq(x, y)              (HERE, ir_compare(IR_EQ, x, y))
#define ne(x, y)              (HERE, ir_compare(IR_NE, x, y))
#define lt(x, y)              (HERE, ir_compare(IR_LT, x, y))
#define ge(x, y)              (HERE, ir_compare(IR_GE, x, y))
#define select(p, x, y)       (HERE, ir_select(p, x, y))
#define convert(type, x)      (HERE, ir_convert(type, x))
#define tanh(x)               (HERE, ir_unary(IR_TANH, x))
#define exp2(x)               (HERE, ir_unary(IR_EX2, x))
#define rcp(x)                (HERE, ir_unary(IR_RCP_APPROX, x))
#define rsqrt(x)              (HERE, ir_unary(IR_RSQRT, x))
#define exp2_ftz(x)           (HERE, ir_unary_ftz(IR_EX2, x))
#define rcp_ftz(x)            (HERE, ir_unary_ftz(IR_RCP_APPROX, x))
#define elect()               (HERE, ir_elect())

/* Bits of integers */
#define bit_and(x, y)          (HERE, ir_binary(IR_AND, x, y))
#define bit_or(x, y)           (HERE, ir_binary(IR_OR, x, y))
#define bit_xor(x, y)          (HERE, ir_binary(IR_XOR, x, y))
#define bit_not(x)             (HERE, ir_unary(IR_NOT, x))
#define shift_left(x, n)       (HERE, ir_binary(IR_SHL, x, n))
#define shift_right(x, n)      (HERE, ir_binary(IR_SHR, x, n))
#define mul_hi(x, y)           (HERE, ir_binary(IR_MUL_HI, x, y))
#define pack(type, lo, hi)     (HERE, ir_pack(type, lo, hi))
#define permute_bytes(x, y, s) (HERE, ir_permute_bytes(x, y, s))

/* Control flow */
#define CUTE_PASTE_(a, b)           a##b
#define CUTE_PASTE(a, b)            CUTE_PASTE_(a, b)
#define CUTE_ONCE(open, begin, end) for (bool open = (HERE, begin, true); open; open = (end, false))
#define IF(p)                       CUTE_ONCE(CUTE_PASTE(if_open_, __COUNTER__), ir_if(p), ir_end_if())
#define ELSE                        CUTE_ONCE(CUTE_PASTE(else_open_, __COUNTER__), ir_reopen_else(), ir_end_if())
#define FOREVER                     CUTE_ONCE(CUTE_PASTE(loop_open_, __COUNTER__), ir_loop(), ir_end_loop())
#define BREAK_IF(p)                 (HERE, ir_break(p))
#define LOOP(i, count)              LOOP_FROM(i, imm(0), count, imm(1))
#define LOOP_FROM(i, start, count, step)                                                   \
    for (cute_loop i##_loop = (HERE, cute_loop_begin(start, count, step)); i##_loop.open;) \
        for (val i = i##_loop.index; i##_loop.open; cute_loop_end(&i##_loop))

/* Barriers and fences */
#define cta_sync()                (HERE, ir_bar_sync(imm(0), ir_current()->threads))
#define named_sync(id, threads)   (HERE, ir_bar_sync(id, threads))
#define named_arrive(id, threads) (HERE, ir_bar_arrive(id, threads))
#define cluster_sync()            (HERE, cute_cluster_sync())
#define fence_proxy_async()       (HERE, ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0))
#define fence_mbarrier_init()     (HERE, ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0))
#define warpgroup_reg_alloc(n)    (HERE, ir_plain(IR_SETMAXNREG, n, 1))
#define warpgroup_reg_dealloc(n)  (HERE, ir_plain(IR_SETMAXNREG, n, 0))
#define grid_wait()               (HERE, ir_plain(IR_GRID_WAIT, 0, 0)) // for the kernel before; nothing of its may be touched earlier
#define launch_dependents()       (HERE, ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0))
#define exit_thread()             (HERE, ir_plain(IR_EXIT, 0, 0))

/* Staged stores (staging.h) */
#define STAGED_STORE(s)      CUTE_ONCE(CUTE_PASTE(store_open_, __COUNTER__), staging_begin(s), staging_end())
#define LAST_STAGED_STORE(s) CUTE_ONCE(CUTE_PASTE(store_open_, __COUNTER__), staging_begin(s), staging_end_last())

/* Tensors and copies (tensor.h, copy.h, tiled_copy.h) */
#define at(t, ...) (HERE, tensor_at(t, coord(__VA_ARGS__)))
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

#endif
