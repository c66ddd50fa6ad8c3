/* vectors.c - packed loads and stores under guards. */
#include "cute/vectors.h"

#include "base/dtype.h"

enum { WORDS_MAX = 4, WORD_BYTES = 4 }; // of an access, of 16 bytes at most

words words_of(ckl_dtype dtype, int count)
{
    int bytes = ir_memory_bytes(dtype);
    if (bytes >= 4 || count == 1)
        return (words){ dtype, count, 1 };
    if (bytes * count == 2)
        return (words){ IR_U16, 1, 2 };
    if (dtype == CKL_F16 || dtype == CKL_BF16)
        return (words){ dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2, count / 2, 2 };
    return (words){ IR_U32, count * bytes / 4, 4 / bytes };
}

ir_type element_register(ckl_dtype dtype)
{
    return dtype < CKL_DTYPE_COUNT && ckl_dtype_bytes(dtype) == 1 ? IR_U16 : dtype;
}

static ir_type word_register(words w)
{
    return element_register((ckl_dtype)w.type);
}

val element_value(ckl_dtype dtype, val x)
{
    const bool rounded = (dtype == CKL_E4M3 || dtype == CKL_E5M2) && ir_type_is_float(x.type);
    return ir_convert(rounded ? (ir_type)dtype : element_register(dtype), x);
}

/* Element e of a word of small integers, as u32. */
static val field_of(words w, val word, int e)
{
    int bits = 8 * (int)ir_type_bytes(w.type) / w.per;
    val field = ir_binary(IR_SHR, ir_convert(IR_U32, word), ir_u32(bits * e));
    return ir_binary(IR_AND, field, ir_u32((INT64_C(1) << bits) - 1));
}

static val converted(ir_type type, ckl_dtype dtype, val field)
{
    if (dtype == CKL_I16) // with its sign
        return ir_convert(type, ir_bitcast(CKL_I16, ir_convert(IR_U16, field)));
    return type == CKL_I32 ? ir_bitcast(type, field) : ir_convert(type, field);
}

static void unpack_word(words w, val word, ckl_dtype dtype, const val *out)
{
    if (w.per == 1) {
        ir_assign(out[0], ir_convert(out[0].type, word));
    } else if (ir_type_is_pair(w.type)) {
        val half[2];
        ir_unpack(word, dtype, &half[0], &half[1]);
        for (int e = 0; e < 2; e++)
            ir_assign(out[e], ir_convert(out[e].type, half[e]));
    } else {
        for (int e = 0; e < w.per; e++)
            ir_assign(out[e], converted(out[e].type, dtype, field_of(w, word, e)));
    }
}

void words_unpack(words w, const val *loaded, ckl_dtype dtype, const val *out)
{
    for (int i = 0; i < w.n; i++)
        unpack_word(w, loaded[i], dtype, out + i * w.per);
}

/* Half of a pair: f32 is rounded by the packing itself. */
static val half_of(ckl_dtype dtype, val x)
{
    return x.type == CKL_F32 || x.type == dtype ? x : ir_convert(dtype, x);
}

static val pack_word(words w, ckl_dtype dtype, const val *elements)
{
    if (w.per == 1)
        return element_value((ckl_dtype)w.type, elements[0]);
    if (ir_type_is_pair(w.type))
        return ir_pack(w.type, half_of(dtype, elements[0]), half_of(dtype, elements[1]));
    int bits = 8 * (int)ir_type_bytes(w.type) / w.per;
    val word = ir_u32(0);
    for (int e = 0; e < w.per; e++) {
        val element = element_value(dtype, elements[e]);
        val field = ir_convert(IR_U32, ir_bitcast(IR_U16, element));
        if (bits == 8)
            field = ir_binary(IR_AND, field, ir_u32(0xff));
        word = ir_binary(IR_OR, word, ir_binary(IR_SHL, field, ir_u32(bits * e)));
    }
    return ir_convert(w.type, word);
}

void words_pack(words w, ckl_dtype dtype, const val *elements, val *stored)
{
    for (int i = 0; i < w.n; i++)
        stored[i] = pack_word(w, dtype, elements + i * w.per);
}

val words_filled(words w, ckl_dtype dtype, double value)
{
    if (value == 0 && w.per > 1)
        return ir_type_is_pair(w.type) ? ir_pack(w.type, ir_float(dtype, 0), ir_float(dtype, 0)) : ir_int(w.type, 0);
    val elements[4], element = dtype_is_float(dtype) && ckl_dtype_bytes(dtype) > 1
                                   ? ir_float(dtype, value)
                                   : ir_int(element_register(dtype), (int64_t)value);
    for (int e = 0; e < w.per; e++)
        elements[e] = element;
    return pack_word(w, dtype, elements);
}

words_cut words_cut_from(const val *pair, int count, val bytes, int element)
{
    words_cut cut = { .element = element };
    val moves[WORDS_MAX];
    int left = 2 * count;
    for (int i = 0; i < left; i++)
        cut.shifted[i] = pair[i];
    for (int by = count / 2; by > 0; by /= 2)
        moves[by] = ir_compare(IR_NE, ir_binary(IR_AND, bytes, ir_u32(by * WORD_BYTES)), ir_u32(0));
    for (int by = count / 2; by > 0; by /= 2) {
        left -= by;
        for (int i = 0; i < left; i++)
            cut.shifted[i] = ir_select(moves[by], cut.shifted[i + by], cut.shifted[i]);
    }
    val past = ir_binary(IR_AND, bytes, ir_u32(WORD_BYTES - 1));
    cut.selector = ir_binary(IR_ADD, ir_binary(IR_MUL, past, ir_u32(0x1111)), ir_u32(0x3210));
    return cut;
}

val words_cut_word(const words_cut *cut, int i)
{
    if (cut->element >= WORD_BYTES)
        return cut->shifted[i];
    return ir_permute_bytes(cut->shifted[i], cut->shifted[i + 1], cut->selector);
}

static bool is_memory(tensor t)
{
    if (t.memory != GMEM && t.memory != SMEM)
        ir_fail("vectors are of global or shared memory, this tensor is in neither");
    return !ir_failed();
}

static void open_guard(val p)
{
    if (!ir_is_int(p, 1))
        ir_if(p);
}

static void close_guard(val p)
{
    if (!ir_is_int(p, 1))
        ir_end_if();
}

static void load(const vector_at *at, words w, tensor memory, val fill, val *loaded)
{
    for (int i = 0; i < w.n; i++)
        loaded[i] = ir_is_int(at->guard, 1) ? ir_reg(word_register(w)) : cute_variable(word_register(w), fill);
    open_guard(at->guard);
    ir_load(tensor_space(memory), memory.cache, w.type, w.n, at->address, at->offset, loaded);
    close_guard(at->guard);
}

void vectors_load(const vector_at *at, int count, int vec, tensor memory, const val *out, double fill)
{
    if (!is_memory(memory))
        return;
    words w = words_of(memory.dtype, vec);
    val *loaded = ir_alloc((size_t)(count * w.n), sizeof *loaded), outside = words_filled(w, memory.dtype, fill);
    for (int i = 0; i < count; i++)
        load(&at[i], w, memory, outside, loaded + i * w.n);
    for (int i = 0; i < count; i++)
        words_unpack(w, loaded + i * w.n, memory.dtype, out + i * vec);
}

void vector_store(const vector_at *at, int vec, const val *elements, tensor memory)
{
    if (!is_memory(memory))
        return;
    words w = words_of(memory.dtype, vec);
    val stored[WORDS_MAX];
    words_pack(w, memory.dtype, elements, stored);
    open_guard(at->guard);
    ir_store(tensor_space(memory), memory.cache, w.type, w.n, at->address, at->offset, stored);
    close_guard(at->guard);
}
