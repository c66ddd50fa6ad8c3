/*
 * build.h - describing a kernel: functions that append instructions to this thread's current kernel.
 *
 * Constants are folded where all operands are constant; a constant operand takes the type of the register beside it.
 * The first error sticks and later calls are harmless; ir_describe_end() returns it.
 */
#pragma once

#include "ir/ir.h"

/* Starts describing on this thread. With a NULL name there is no kernel: only static values (the layout calculator). */
void ir_describe_begin(const char *name, ir_target target);

/* Ends the description. *kernel is the finished kernel, not yet verified; the caller frees it. NULL drops it. */
ckl_status ir_describe_end(ir_kernel **kernel);

/* Ends a description whose memory heap_guard() has freed; does nothing if there is none. */
void ir_describe_forget(void);

/* The kernel being described; NULL between kernels. For launch attributes (threads, cluster, note, ...). */
ir_kernel *ir_current(void);

/*
 * Records the first error: "file:line: sentence". CKL_INTERNAL in a kernel, CKL_INVALID in a calculation, which the
 * user wrote.
 */
void ir_fail(const char *format, ...) CKL_PRINTF(1, 2);
bool ir_failed(void);

/* Memory that lives as long as the kernel (or the calculation). */
void *ir_alloc(size_t count, size_t size);
const char *ir_text(text *from); // moved there

/* The C source line of the instructions that follow. */
void ir_at(const char *file, int line);

/* For crash reports: where this thread's description is; false between kernels. Takes no lock. */
bool ir_describing(const char **kernel, const char **file, int *line);

/* Values */
val ir_int(ir_type type, int64_t i);
val ir_u32(int64_t i);
val ir_float(ir_type type, double f);
val ir_reg(ir_type type);           // a fresh register, not yet written
bool ir_is_int(val v, int64_t i);   // the constant i
const ir_inst *ir_maker(val v);     // the instruction that makes a register of one value; NULL: a constant or variable
val ir_coerce(ir_type type, val v); // a constant becomes that type; a register must have it already

/* Appends a raw instruction, copying its operand lists. Everything below is built on it. */
ir_inst *ir_emit(ir_inst inst, int out_count, const val *out, int in_count, const val *in);

/* Arithmetic; see ir.h for the meaning of each op. */
val ir_unary(ir_op op, val x);
val ir_unary_ftz(ir_op op, val x); // EX2, RCP_APPROX: subnormals are 0
val ir_binary(ir_op op, val x, val y);
val ir_fma(val x, val y, val z);
val ir_and_or(val x, val y, val z);
val ir_permute_bytes(val x, val y, val selector);
val ir_compare(ir_compare_kind how, val x, val y);
val ir_select(val p, val x, val y);
val ir_convert(ir_type type, val x);
val ir_f16x2_of(ir_type from, val x); // two 8-bit floats in a U16
val ir_bitcast(ir_type type, val x);
val ir_pack(ir_type pair, val lo, val hi);
void ir_unpack(val x, ir_type type, val *lo, val *hi);
val ir_binary_nan(ir_op op, val x, val y); // MIN, MAX: NaN if either is
val ir_sreg(ir_sreg_kind which);
void ir_assign(val reg, val x); // reg = x

/*
 * Between these two, equal arithmetic on registers that never change is emitted once per block: for others' functions,
 * which are called for each element and recompute what elements have in common.
 */
void ir_share_begin(void);
void ir_share_end(void);

/* Parameters, in the order of the calls; the same name again gives the same parameter. */
val ir_scalar_param(ir_type type, const char *name);
val ir_tensor_map_param(const char *name);

/* Sets the box that a tensor map parameter moves; again only to the same box. */
void ir_tensor_map_set(val map, ir_tensor_map wanted);

/* Shared memory: the byte offset of a new allocation; ir_smem_address() is base + offset. align is a power of two. */
int64_t ir_smem_alloc(const char *name, int64_t bytes, int64_t align);
val ir_smem_address(int64_t offset);

/* Names the mbarriers of a ring of stages. */
void ir_add_ring(const char *name, int64_t full, int64_t empty, int stages);

/* Memory */
void ir_load(ir_space space, ir_cache cache, ir_type type, int n, val address, int64_t offset,
             val *out); // out: registers to write
void ir_store(ir_space space, ir_cache cache, ir_type type, int n, val address, int64_t offset, const val *values);

/* Strong accesses to one element of global memory; acquire and release order other accesses too. */
val ir_load_strong(ir_order order, ir_scope scope, ir_type type, val address, int64_t offset);
void ir_store_strong(ir_order order, ir_scope scope, ir_type type, val address, int64_t offset, val x);
val ir_atomic(ir_order order, ir_scope scope, ir_reduction op, val address, int64_t offset, val x);
void ir_reduce(ir_scope scope, ir_reduction op, val address, int64_t offset, val x);
void ir_fence(ir_scope scope);
void ir_store_async(val address, int64_t offset, val mbarrier, val x);

/* Of 16 bytes at a time, the former fills L2 with the 256 bytes around them; `alone` does not. */
void ir_cp_async(val shared, int64_t offset, val global, int bytes, val valid_bytes);
void ir_cp_async_alone(val shared, int64_t offset, val global, int bytes, val valid_bytes);

/* Ops that have no operands, or only [n] and [mode]. */
void ir_plain(ir_op op, int n, int mode);

/* TMA and bulk copies */
void ir_tma_load(val shared, int64_t offset, val map, val mbarrier, val mask, int n, const val *coordinates);
void ir_tma_load_im2col(val shared, int64_t offset, val map, val mbarrier, val mask, int n, const val *coordinates,
                        const val *offsets); // n - 2 of them
void ir_tma_store(ir_tma_store_kind how, val map, val shared, int64_t offset, int n, const val *coordinates);
void ir_tma_prefetch(val map);
void ir_bulk_load(val shared, int64_t offset, val global, val bytes, val mbarrier);
void ir_bulk_store(val global, val shared, int64_t offset, val bytes);
void ir_bulk_prefetch(val global, val bytes);
void ir_prefetch(val global);
void ir_discard(val global);

/* mbarriers */
void ir_mbarrier_init(val bar, int64_t offset, int count);
void ir_mbarrier_arrive(ir_space space, val bar, int64_t offset);
void ir_mbarrier_expect(val bar, int64_t offset, val bytes);
void ir_mbarrier_wait(val bar, int64_t offset, val parity);

/* CTA, cluster, warp */
void ir_bar_sync(val id, int threads);
void ir_bar_arrive(val id, int threads);
val ir_mapa(val shared, val rank);
val ir_shuffle(ir_shuffle_kind how, val x, val lane);
val ir_vote(ir_vote_kind how, val p);
val ir_redux(ir_reduction how, val x);
val ir_elect(void);

/* Matrix */
void ir_ldmatrix(int n, bool transpose, val address, int64_t offset, val *out); // out: u32 registers to write
void ir_stmatrix(int n, bool transpose, val address, int64_t offset, const val *values);
void ir_mma(ir_type from_a, ir_type from_b, val d[4], const val a[4], const val b[2]); // d += a * b
void ir_wgmma(ir_type from_a, ir_type from_b, int n, val *d, val a, val b, val scale_d, bool a_m_major, bool b_n_major);
void ir_wgmma_rs(ir_type from_a, ir_type from_b, int n, val *d, const val a[4], val b, val scale_d, bool b_n_major);

/* Control flow */
void ir_if(val p);
void ir_else(void);
void ir_end_if(void);
void ir_reopen_else(void); // turns the END_IF just written into an ELSE
void ir_loop(void);
void ir_break(val p);
void ir_end_loop(void);
void ir_block_left(void); // records that C left the innermost open block without its end: an error
