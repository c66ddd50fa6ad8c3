/* copy.c - copies in the widest vectors, packed registers. */
#include "cute/copy.h"

#include "cute/layout_core.h"
#include "cute/vectors.h"

/* Vectors */

/* Elements of one access: `length` of them, and the coordinates of all elements in the order of the vectors. */
typedef struct vectors {
    int64_t length;
    layout order; // (LENGTH,VECTORS) -> linear coordinate
} vectors;

/* Are the vectors in this order contiguous, at multiples of their length? */
static bool is_contiguous(layout memory, vectors v)
{
    int64_t count = static_size(memory);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = i / v.length * v.length, start = index_at(memory, index_at(v.order, first));
        if (start % v.length != 0 || index_at(memory, index_at(v.order, i)) != start + (i - first))
            return false;
    }
    return true;
}

/* The order that begins with what lies side by side in memory; false if vectors of that length miss some elements. */
static bool common_order(layout memory, int64_t length, vectors *v)
{
    layout side_by_side = max_common_layout(memory, memory), vector, rest[2], all = compact(leaf(static_size(memory)));
    if (static_size(side_by_side) < length || compose(side_by_side, compact(leaf(length)), &vector) != NULL)
        return false;
    rest[0] = vector;
    rest[1] = complement(vector, static_size(memory));
    *v = (vectors){ length, layouts_of(2, rest) };
    return static_size(v->order) == static_size(all);
}

/* The longest vectors of 16 bytes or less that the memory's layout and alignment allow: powers of two. */
static vectors widest_vectors(tensor t, int align)
{
    int64_t bytes = ir_memory_bytes(t.dtype), count = static_size(t.layout);
    layout memory = without_swizzle(t.layout); // a swizzle keeps 16 bytes together
    vectors in_order = { 16 / bytes, compact(leaf(count)) }, permuted;
    for (; in_order.length > 1; in_order.length /= 2) {
        if (align % (in_order.length * bytes) || count % in_order.length)
            continue;
        if (is_contiguous(memory, in_order))
            return in_order;
        if (common_order(memory, in_order.length, &permuted) && is_contiguous(memory, permuted))
            return permuted;
    }
    return in_order;
}

/* The registers of a tensor in the order of the vectors. */
static val *registers_in(tensor rT, vectors v)
{
    int64_t count = static_size(rT.layout);
    val *regs = ir_alloc((size_t)count, sizeof *regs);
    for (int64_t i = 0; i < count; i++)
        regs[i] = rT.regs[index_at(rT.layout, index_at(v.order, i))];
    return regs;
}

static vector_at *addresses_in(tensor t, vectors v)
{
    int64_t count = static_size(t.layout) / v.length;
    vector_at *at = ir_alloc((size_t)count, sizeof *at);
    for (int64_t i = 0; i < count; i++) {
        at[i].address = tensor_address_near(t, index_at(v.order, i * v.length), &at[i].offset);
        at[i].guard = ir_int(IR_PRED, 1);
    }
    return at;
}

static void load_vectors(tensor from, tensor to, vectors v)
{
    int count = (int)(static_size(from.layout) / v.length);
    vectors_load(addresses_in(from, v), count, (int)v.length, from, registers_in(to, v), 0);
}

static void store_vectors(tensor from, tensor to, vectors v)
{
    const vector_at *at = addresses_in(to, v);
    const val *regs = registers_in(from, v);
    for (int64_t i = 0; i < static_size(to.layout) / v.length; i++)
        vector_store(&at[i], (int)v.length, regs + i * v.length, to);
}

static void copy_registers(tensor from, tensor to)
{
    int64_t count = static_size(from.layout);
    for (int64_t i = 0; i < count; i++) {
        val reg = to.regs[index_at(to.layout, i)];
        ir_assign(reg, ir_convert(reg.type, from.regs[index_at(from.layout, i)]));
    }
}

/* Can elements be copied one by one, in this order? */
static bool is_copyable(tensor from, tensor to)
{
    if (ir_failed())
        return false;
    if (layout_is_static(from.layout) && layout_is_static(to.layout) &&
        static_size(from.layout) == static_size(to.layout))
        return true;
    ir_fail("copy from %s to %s: the layouts must be static and of equal size", tensor_text(from), tensor_text(to));
    return false;
}

void tensor_copy(tensor from, tensor to, int align)
{
    if (!is_copyable(from, to))
        return;
    if (from.memory == RMEM && to.memory == RMEM) {
        copy_registers(from, to);
    } else if (to.memory == RMEM) {
        load_vectors(from, to, widest_vectors(from, align));
    } else if (from.memory == RMEM) {
        store_vectors(from, to, widest_vectors(to, align));
    } else {
        tensor rT = fragment_like(from, from.dtype);
        tensor_copy(from, rT, align);
        tensor_copy(rT, to, align);
    }
}

/* Bulk copies */

/* The bytes of a contiguous tensor. */
static val bulk_bytes(tensor t)
{
    layout all = coalesce(without_swizzle(t.layout));
    if (!is_leaf(all.shape) || !ir_is_int(all.stride->leaf, 1))
        ir_fail("bulk copy: %s is not contiguous", tensor_text(t));
    return ir_binary(IR_MUL, ir_convert(IR_U32, size(t.layout)), ir_u32(ir_memory_bytes(t.dtype)));
}

void bulk_load(tensor gX, tensor sX, val barrier)
{
    ir_bulk_load(sX.address, 0, gX.address, bulk_bytes(gX), barrier);
}

void bulk_store(tensor sX, tensor gX)
{
    ir_bulk_store(gX.address, sX.address, 0, bulk_bytes(gX));
}

/* Packed registers */

/* Narrow elements that fill words travel as words, all others as they are. */
static ir_type word_type(ckl_dtype dtype, int count)
{
    int64_t bytes = ir_memory_bytes(dtype);
    return bytes < 4 && count * bytes % 4 == 0 ? CKL_I32 : dtype;
}

packed packed_registers(ckl_dtype dtype, int count)
{
    ir_type word = word_type(dtype, count);
    int64_t registers = count * ir_memory_bytes(dtype) / ir_memory_bytes(word);
    return (packed){ fragment(word, compact(leaf(registers))), dtype, count };
}

/* Of elements that are narrower than their words, and promise no alignment of those: one by one. */
static void load_elements(tensor gX, int align, packed to)
{
    tensor rX = fragment_like(gX, gX.dtype); // (VEC)
    const int registers = (int)static_size(to.rWords.layout);
    const words one = words_of(to.dtype, to.count / registers);
    tensor_copy(gX, rX, align);
    for (int i = 0; i < registers; i++) {
        val word;
        words_pack(one, to.dtype, rX.regs + i * one.per, &word);
        ir_assign(to.rWords.regs[i], ir_bitcast(to.rWords.dtype, word));
    }
}

void packed_load(tensor gX, int align, packed to)
{
    if (align < ir_memory_bytes(to.rWords.dtype)) {
        load_elements(gX, align, to);
        return;
    }
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

packed load_packed_if(val exists, tensor gX, int align)
{
    packed p = packed_registers(gX.dtype, (int)static_size(gX.layout));
    tensor_fill(p.rWords, ir_convert(p.rWords.dtype, ir_int(CKL_I32, 0)));
    ir_if(exists);
    packed_load(gX, align, p);
    ir_end_if();
    return p;
}

tensor unpacked(packed p, ckl_dtype type)
{
    tensor rX = fragment(type, compact(leaf(p.count))); // (VEC)
    int registers = (int)static_size(p.rWords.layout);
    words one = words_of(p.dtype, p.count / registers);
    for (int i = 0; i < registers; i++) {
        val word = one.per > 1 ? ir_bitcast(one.type, p.rWords.regs[i]) : p.rWords.regs[i];
        words_unpack(one, &word, p.dtype, rX.regs + i * one.per);
    }
    return rX;
}
