/* control.h - variables, loops and blocks of a kernel: what kernel.h's LOOP, IF and FOREVER are made of. */
#pragma once

#include "ir/build.h"

/* Launch attributes; 0 keeps the present value. */
void cute_launch_bounds(int threads, int ctas_per_sm);
void cute_cluster_size(int ctas);

/* A variable of the kernel: a register with a first value, changed by ir_assign(). */
val cute_variable(ir_type type, val start);

/* A constant of 32 bits; ir_fail() for a number that needs more. */
val cute_imm(int64_t i);

/* The value x, with this line recorded again: what computes x may have recorded other lines. */
static inline val cute_at_line(val x, const char *file, int line)
{
    ir_at(file, line);
    return x;
}

/* for (i = start; i < count; i += step) in the kernel; between begin and end the body is described. */
typedef struct cute_loop {
    val index, step;
    bool open;
} cute_loop;
cute_loop cute_loop_begin(val start, val count, val step);
void cute_loop_end(cute_loop *loop);

/*
 * Cleanups of the C variables that hold a block open: one that is still open when its variable goes was left by C's
 * break, return or goto. The body's instructions would then stand in a block without end, so this is an error.
 */
void cute_block_left(const bool *open);
void cute_loop_left(cute_loop *loop);

/* Arrive and wait of the whole cluster; of the CTA where there is no cluster. */
void cute_cluster_sync(void);
