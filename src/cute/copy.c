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

/* Narrow elements that fill words travel as words, all others as they are. */
static ir_type word_type(ckl_dtype dtype, int count)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(dtype);
    return bytes < 4 && count * bytes % 4 == 0 ? CKL_I32 : dtype;
}

packed packed_registers(ckl_dtype dtype, int count)
{
    ir_type word = word_type(dtype, count);
    int64_t words = count * (int64_t)ckl_dtype_bytes(dtype) / (int64_t)ckl_dtype_bytes(word);
    return (packed){ fragment(word, compact(leaf(words))), dtype, count };
}

void packed_load(tensor gX, int align, packed to)
{
    gX.dtype = to.rWords.dtype;
    gX.layout = to.rWords.layout; // (WORDS), or (VEC)
    tensor_copy(gX, to.rWords, align);
}

packed load_packed(tensor gX, int align)
{
    packed p = packed_registers(gX.dtype, (int)static_size(gX.layout));
    packed_load(gX, align, p);
    return p;
}

/* The elements of one word, as f32 or i32. */
static void unpack_word(val word, ckl_dtype dtype, ckl_dtype type, val *out)
{
    if (dtype == CKL_F16 || dtype == CKL_BF16) {
        val half[2];
        ir_unpack(ir_bitcast(dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2, word), CKL_F32, &half[0], &half[1]);
        for (int i = 0; i < 2; i++)
            ir_assign(out[i], ir_convert(type, half[i]));
        return;
    }
    for (int i = 0; i < 4; i++) {
        val byte = ir_binary(IR_SHR, ir_bitcast(IR_U32, word), ir_int(IR_U32, 8 * i));
        byte = ir_binary(IR_AND, byte, ir_int(IR_U32, 0xff));
        ir_assign(out[i], type == CKL_I32 ? ir_bitcast(CKL_I32, byte) : ir_convert(type, byte));
    }
}

tensor unpacked(packed p, ckl_dtype type)
{
    tensor rX = fragment(type, compact(leaf(p.count))); // (VEC)
    int64_t words = static_size(p.rWords.layout);
    int per_word = (int)(p.count / words);
    for (int64_t w = 0; w < words; w++) {
        val word = p.rWords.regs[w];
        if (per_word > 1)
            unpack_word(word, p.dtype, type, rX.regs + w * per_word);
        else
            ir_assign(rX.regs[w], ir_convert(type, word));
    }
    return rX;
}
