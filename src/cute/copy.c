/* copy.c - tiles over threads, and guarded copies. */
#include "cute/copy.h"

tensor thread_vectors(tensor tile, int vec, int threads, int steps, val tid)
{
    layout split = make_layout(shape(threads, coord(vec, steps)), stride(vec, coord(1, (int64_t)vec * threads)));
    layout parts = composition(tile.layout, split); // (THREADS,(VEC,STEPS))
    tensor mine = tensor_slice(tensor_with_layout(tile, parts), coord(tid, WILDCARD));
    return tensor_with_layout(mine, layout_mode(mine.layout, 0));
}

val thread_vectors_first(int vec, val tid)
{
    return ir_binary(IR_MUL, tid, ir_int(IR_U32, vec));
}

void copy_within(tensor from, tensor to, val first, val limit)
{
    bool loading = to.memory == RMEM;
    tensor memory = loading ? from : to, registers = loading ? to : from;
    int64_t count = static_size(memory.layout);
    for (int64_t i = 0; i < count && !ir_failed(); i++) {
        val reg = registers.regs[index_at(registers.layout, i)];
        int64_t distance = index_at(memory.layout, i);
        if (loading)
            ir_assign(reg, ir_int(reg.type, 0));
        ir_if(ir_compare(IR_LT, ir_binary(IR_ADD, first, ir_int(first.type, distance)), limit));
        if (loading)
            ir_assign(reg, ir_convert(reg.type, tensor_at(memory, leaf(i))));
        else
            tensor_set(memory, leaf(i), reg);
        ir_end_if();
    }
}
