/* vectors.c - packed loads and stores under guards. */
#include "cute/vectors.h"

#include "base/dtype.h"

enum { ELEMENTS_MAX = 16 };

/* One access moves `n` registers of `type`, each of `per` elements. */
typedef struct words {
    ir_type type;
    int n, per;
} words;

static words words_of(ckl_dtype dtype, int vec)
{
    if (ckl_dtype_bytes(dtype) == 1)
        return vec < 4 ? (words){ vec == 1 ? dtype : IR_U16, 1, vec } : (words){ IR_U32, vec / 4, 4 };
    if (ckl_dtype_bytes(dtype) != 2 || vec == 1)
        return (words){ dtype, vec, 1 };
    return (words){ dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2, vec / 2, 2 };
}

/* The type of a register for a word: there are none of 8 bits. */
static ir_type word_register(words w)
{
    return w.type < CKL_DTYPE_COUNT && ckl_dtype_bytes(w.type) == 1 ? IR_U16 : w.type;
}

static val filled(words w, ckl_dtype dtype, double value)
{
    val element = dtype_is_float(dtype) ? ir_float(dtype, value) : ir_int(word_register(w), (int64_t)value);
    return ir_type_is_pair(w.type) ? ir_pack(w.type, element, element) : element;
}

/* Element e of a loaded word; hi keeps the second of a pair between calls. */
static val element_of(words w, val word, ckl_dtype dtype, int e, val *hi)
{
    val lo = *hi;
    if (w.per == 1)
        return word;
    if (!ir_type_is_pair(w.type)) {
        val byte = ir_binary(IR_SHR, ir_convert(IR_U32, word), ir_int(IR_U32, 8 * e));
        return ir_binary(IR_AND, byte, ir_int(IR_U32, 0xff));
    }
    if (e == 0)
        ir_unpack(word, dtype, &lo, hi);
    return lo;
}

static void unpack(words w, const val *loaded, ckl_dtype dtype, const val *out)
{
    val hi = { 0 };
    for (int i = 0; i < w.n * w.per; i++)
        ir_assign(out[i], ir_convert(out[i].type, element_of(w, loaded[i / w.per], dtype, i % w.per, &hi)));
}

static bool is_supported(tensor memory)
{
    size_t bytes = ckl_dtype_bytes(memory.dtype);
    bool known = dtype_is_float(memory.dtype) ? bytes >= 2 : bytes != 2 && memory.dtype != CKL_I8;
    if (!known || memory.memory == RMEM || memory.memory == DMEM)
        ir_fail("vectors of %s are not loaded or stored here", ckl_dtype_name(memory.dtype));
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

static ir_space space_of(tensor memory)
{
    return memory.memory == SMEM ? IR_SHARED : IR_GLOBAL;
}

static void load(const vector_at *at, words w, tensor memory, val fill, val *loaded)
{
    for (int i = 0; i < w.n; i++)
        loaded[i] = ir_is_int(at->guard, 1) ? ir_reg(word_register(w)) : cute_variable(word_register(w), fill);
    open_guard(at->guard);
    ir_load(space_of(memory), memory.cache, w.type, w.n, at->address, at->offset, loaded);
    close_guard(at->guard);
}

void vectors_load(const vector_at *at, int count, int vec, tensor memory, const val *out, double fill)
{
    if (!is_supported(memory))
        return;
    words w = words_of(memory.dtype, vec);
    val *loaded = ir_alloc((size_t)(count * w.n), sizeof *loaded), outside = filled(w, memory.dtype, fill);
    for (int i = 0; i < count; i++)
        load(&at[i], w, memory, outside, loaded + i * w.n);
    for (int i = 0; i < count; i++)
        unpack(w, loaded + i * w.n, memory.dtype, out + i * vec);
}

void vector_store(const vector_at *at, int vec, const val *elements, tensor memory)
{
    if (!is_supported(memory))
        return;
    words w = words_of(memory.dtype, vec);
    val stored[ELEMENTS_MAX];
    if (w.per > 1 && !ir_type_is_pair(w.type))
        ir_fail("vectors of %s are not stored here", ckl_dtype_name(memory.dtype));
    for (int i = 0; i < w.n; i++)
        stored[i] =
            w.per == 1 ? ir_convert(memory.dtype, elements[i]) : ir_pack(w.type, elements[2 * i], elements[2 * i + 1]);
    open_guard(at->guard);
    ir_store(space_of(memory), memory.cache, w.type, w.n, at->address, at->offset, stored);
    close_guard(at->guard);
}
