/* control.c - variables, loops and blocks of a kernel. */
#include "cute/control.h"

void cute_launch_bounds(int threads, int ctas_per_sm)
{
    ir_kernel *k = ir_current();
    k->threads = threads ? threads : k->threads;
    k->ctas_per_sm = ctas_per_sm ? ctas_per_sm : k->ctas_per_sm;
}

void cute_cluster_size(int ctas)
{
    ir_current()->cluster = ctas;
}

val cute_variable(ir_type type, val start)
{
    val reg = ir_reg(type);
    ir_assign(reg, start);
    return reg;
}

val cute_imm(int64_t i)
{
    if (i != (int32_t)i)
        ir_fail("imm(%" PRId64 ") does not fit 32 bits: imm64() does", i);
    return ir_int(CKL_I32, i);
}

cute_loop cute_loop_begin(val start, val count, val step)
{
    bool is_wide = start.type == CKL_I64 || count.type == CKL_I64; // of constants, which have no other type to go by
    ir_type of_constants = is_wide ? CKL_I64 : IR_U32;
    ir_type type = !ir_is_constant(count) ? count.type : !ir_is_constant(start) ? start.type : of_constants;
    val i = cute_variable(type, start);
    ir_loop();
    ir_break(ir_compare(IR_GE, i, count));
    return (cute_loop){ i, step, true };
}

void cute_loop_end(cute_loop *loop)
{
    ir_assign(loop->index, ir_binary(IR_ADD, loop->index, loop->step));
    ir_end_loop();
    loop->open = false;
}

void cute_block_left(const bool *open)
{
    if (*open)
        ir_block_left();
}

void cute_loop_left(cute_loop *loop)
{
    cute_block_left(&loop->open);
    loop->open = false;
}

void cute_cluster_sync(void)
{
    if (ir_failed())
        return;
    if (ir_current()->cluster > 1) {
        ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
        ir_plain(IR_CLUSTER_WAIT, 0, 0);
    } else {
        ir_bar_sync(ir_u32(0), ir_current()->threads);
    }
}
