/* tensor.c - views of memory and registers, element access, loops. */
#include "cute/tensor.h"

static const char *const memory_names[] = {
    [GMEM] = "global", [SMEM] = "shared", [RMEM] = "register", [DMEM] = "descriptor"
};

static ir_space space_of(tensor t)
{
    return t.memory == GMEM ? IR_GLOBAL : IR_SHARED;
}

/* The type of a register that holds one element: 8-bit elements sit in 16 bits. */
static ir_type register_type(ckl_dtype dtype)
{
    return dtype < CKL_DTYPE_COUNT && ckl_dtype_bytes(dtype) == 1 ? IR_U16 : dtype;
}

/* Construction */

tensor gmem_tensor(val address, ckl_dtype dtype, layout a)
{
    return (tensor){ .memory = GMEM, .dtype = dtype, .address = address, .layout = a };
}

tensor smem_view(val address, ckl_dtype dtype, layout a)
{
    return (tensor){ .memory = SMEM, .dtype = dtype, .address = address, .layout = a };
}

tensor smem_tensor(const char *name, ckl_dtype dtype, layout a, int64_t align)
{
    int64_t bytes = cosize(a) * (int64_t)ckl_dtype_bytes(dtype);
    return smem_view(ir_smem_address(ir_smem_alloc(name, bytes, align)), dtype, a);
}

/* Registers have numbers, not addresses: their layout must be known while the kernel is described. */
static void check_static(layout a)
{
    if (layout_is_static(a))
        return;
    text found = { 0 };
    layout_print(a, &found);
    ir_fail("a fragment of %s: the layout of registers must be static", text_data(&found));
    text_free(&found);
}

tensor fragment(ckl_dtype dtype, layout a)
{
    check_static(a);
    int64_t count = cosize(a);
    val *regs = ir_alloc((size_t)count, sizeof *regs);
    for (int64_t i = 0; i < count; i++)
        regs[i] = ir_reg(register_type(dtype));
    return (tensor){ .memory = RMEM, .dtype = dtype, .regs = regs, .layout = a };
}

tensor fragment_like(tensor t, ckl_dtype dtype)
{
    return fragment(dtype, compact(t.layout.shape));
}

tensor with_cache(tensor gT, ir_cache cache)
{
    gT.cache = cache;
    return gT;
}

tensor tensor_with_layout(tensor t, layout a)
{
    t.layout = a;
    return t;
}

/* Views */

/* Are the strides of all modes that the coordinate fixes multiples of `unit`? */
static bool fixed_strides_divide(int_tuple coordinate, int_tuple strides, int64_t unit)
{
    if (coordinate == WILDCARD)
        return true;
    if (is_leaf(strides))
        return is_static(strides) && static_leaf(strides) % unit == 0;
    for (int i = 0; i < tuple_rank(strides); i++)
        if (!fixed_strides_divide(is_leaf(coordinate) ? coordinate : tuple_mode(coordinate, i), tuple_mode(strides, i),
                                  unit))
            return false;
    return true;
}

/* What a tensor's address counts for one step of its index: bytes of the element; DMEM counts in its own units. */
static int64_t address_unit(tensor t)
{
    return t.memory == DMEM ? 1 : (int64_t)ckl_dtype_bytes(t.dtype);
}

/* Moves element 0 by `index` elements. */
static tensor displaced(tensor t, val index)
{
    if (t.memory == RMEM) {
        if (!ir_is_constant(index))
            ir_fail("registers cannot be indexed at run time");
        else
            t.regs += index.i;
        return t;
    }
    ir_type type = t.memory == SMEM ? IR_U32 : IR_U64;
    t.address = ir_binary(IR_ADD, t.address, ir_binary(IR_MUL, ir_convert(type, index), ir_int(type, address_unit(t))));
    return t;
}

/* The same inside a swizzled tensor, where addresses follow only after the swizzle. */
static tensor displaced_origin(tensor t, val index)
{
    index = ir_convert(IR_U32, index);
    t.origin = t.origin.type == CKL_DTYPE_DEFAULT ? index : ir_binary(IR_ADD, t.origin, index);
    return t;
}

/* Do the registers of a slice lie in the tensor's? */
static bool registers_hold(tensor rT, int_tuple coordinate, val offset)
{
    if (!ir_is_constant(offset))
        return true; // displaced() has the sentence
    int64_t count = cosize(rT.layout), end = offset.i + cosize(slice_layout(coordinate, rT.layout));
    if (offset.i < 0 || end > count)
        ir_fail("a slice of registers %" PRId64 " to %" PRId64 " of a fragment that has %" PRId64, offset.i, end - 1,
                count);
    return offset.i >= 0 && end <= count;
}

tensor tensor_slice(tensor t, int_tuple coordinate)
{
    swizzle sw = t.layout.sw;
    int64_t atom = sw.bits ? (int64_t)1 << (sw.bits + sw.base + sw.shift) : 1; // elements that the swizzle permutes
    val offset = slice_offset(coordinate, t.layout);
    if (t.memory == RMEM && !registers_hold(t, coordinate, offset))
        return t;
    bool whole_atoms = !sw.bits || fixed_strides_divide(coordinate, t.layout.stride, atom);
    tensor part = whole_atoms ? displaced(t, offset) : displaced_origin(t, offset);
    part.layout = slice_layout(coordinate, t.layout);
    part.layout.sw = sw;
    return part;
}

tensor tensor_local_tile(tensor t, int_tuple tiler, int_tuple coordinate)
{
    int modes = tuple_rank(tiler);
    layout tiles[LAYOUT_MODES_MAX];
    for (int i = 0; i < modes; i++)
        tiles[i] = compact(tuple_mode(tiler, i));
    layout divided = zipped_divide_by_mode(t.layout, modes, tiles); // ((TILE...),(REST...))
    int_tuple all[LAYOUT_MODES_MAX];
    for (int i = 0; i < modes; i++)
        all[i] = WILDCARD;
    tensor tile = tensor_slice(tensor_with_layout(t, divided), tuple(tuple_of(modes, all), coordinate));
    if (rank(tile.layout) == 1) // CuTe's local_tile drops the grouping of the tile modes
        tile.layout = layout_mode(tile.layout, 0);
    return tile;
}

/* Single elements */

/* Index before the swizzle. */
static val element_index(tensor t, int_tuple coordinate)
{
    int_tuple at = tuple_rank(coordinate) == 1 && !is_leaf(coordinate) ? tuple_mode(coordinate, 0) : coordinate;
    return crd2idx(at, without_swizzle(t.layout));
}

/* The address of the element at an index before the swizzle; a static distance goes to *offset (bytes). */
static val address_at(tensor t, val index, int64_t *offset)
{
    *offset = 0;
    if (t.layout.sw.bits) {
        val origin = displaced_origin(t, index).origin;
        return displaced(t, swizzle_apply_val(t.layout.sw, origin)).address;
    }
    if (!ir_is_constant(index))
        return displaced(t, index).address;
    *offset = index.i * address_unit(t);
    return t.address;
}

val tensor_address(tensor t, int_tuple coordinate)
{
    int64_t offset;
    val address = address_at(t, element_index(t, coordinate), &offset);
    return ir_binary(IR_ADD, address, ir_int(address.type, offset));
}

/* The register of an element. */
static val register_at(tensor rT, int_tuple coordinate)
{
    val index = element_index(rT, coordinate);
    if (ir_is_constant(index) && index.i >= 0 && index.i < cosize(rT.layout))
        return rT.regs[index.i];
    if (!ir_failed())
        ir_fail("register tensor: the coordinate is not a constant inside the tensor");
    return ir_int(register_type(rT.dtype), 0);
}

val tensor_at(tensor t, int_tuple coordinate)
{
    if (t.memory == RMEM)
        return register_at(t, coordinate);
    val out = ir_reg(register_type(t.dtype));
    ir_load(space_of(t), t.cache, t.dtype, 1, tensor_address(t, coordinate), 0, &out);
    return out;
}

void tensor_set(tensor t, int_tuple coordinate, val x)
{
    if (t.memory == RMEM) {
        val reg = register_at(t, coordinate);
        if (!ir_is_constant(reg))
            ir_assign(reg, x);
        return;
    }
    val value = ir_convert(register_type(t.dtype), x);
    ir_store(space_of(t), t.cache, t.dtype, 1, tensor_address(t, coordinate), 0, &value);
}

void tensor_fill(tensor rT, val x)
{
    int64_t count = static_size(rT.layout);
    for (int64_t i = 0; i < count; i++)
        ir_assign(rT.regs[index_at(rT.layout, i)], x);
}

/* Copies */

/* The index of element i before the swizzle. */
static int64_t plain_index(tensor t, int64_t i)
{
    return index_at(without_swizzle(t.layout), i);
}

/* How many elements, from every multiple of it on, lie side by side in memory: a power of two. */
static int64_t vector_length(tensor t, int align)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(t.dtype), count = static_size(t.layout);
    int64_t length = 16 / bytes; // also a swizzle keeps 16 bytes together
    while (length > 1 && (align % (length * bytes) || count % length))
        length /= 2;
    for (int64_t i = 0; i < count && length > 1; i++) {
        int64_t first = i / length * length, start = plain_index(t, first);
        if (start % length || plain_index(t, i) != start + (i - first)) {
            length /= 2;
            i = -1; // once more with the shorter vector
        }
    }
    return length;
}

/* The memory access that moves `bytes` at once: type and count of the registers it takes. */
typedef struct access {
    ir_type type;
    int n;
} access;

static access access_of(ckl_dtype dtype, int64_t bytes)
{
    size_t element = ckl_dtype_bytes(dtype);
    if (element >= 4 || bytes == (int64_t)element)
        return (access){ dtype, (int)(bytes / (int64_t)element) };
    if (bytes == 2)
        return (access){ IR_U16, 1 };
    if (dtype == CKL_F16 || dtype == CKL_BF16)
        return (access){ dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2, (int)(bytes / 4) };
    return (access){ IR_U32, (int)(bytes / 4) };
}

/* Element e of a loaded vector, as a register of the element's own type. */
static val extract(const access *a, const val *loaded, ckl_dtype dtype, int64_t e, val *pair_hi)
{
    int64_t per_register = (int64_t)ir_type_bytes(a->type) / (int64_t)ckl_dtype_bytes(dtype);
    if (per_register <= 1 || (ckl_dtype_bytes(dtype) == 1 && a->n == 1 && a->type != IR_U32 && a->type != IR_U16))
        return loaded[e];
    val word = loaded[e / per_register];
    if (ir_type_is_pair(a->type)) {
        val lo;
        if (e % 2 == 0)
            ir_unpack(word, dtype, &lo, pair_hi);
        else
            lo = *pair_hi;
        return lo;
    }
    if (ckl_dtype_bytes(dtype) == 2) { // 16-bit integers
        val half = ir_binary(IR_SHR, word, ir_int(IR_U32, e % 2 * 16));
        return ir_bitcast(dtype, ir_convert(IR_U16, half));
    }
    val byte = ir_binary(IR_SHR, ir_convert(IR_U32, word), ir_int(IR_U32, e % per_register * 8));
    return ir_convert(IR_U16, ir_binary(IR_AND, byte, ir_int(IR_U32, 0xff)));
}

static void load_vectors(tensor from, tensor to, int64_t length)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(from.dtype), count = static_size(from.layout);
    access a = access_of(from.dtype, length * bytes);
    for (int64_t i = 0; i < count; i += length) {
        val loaded[16], pair_hi = { 0 };
        for (int j = 0; j < a.n; j++)
            loaded[j] = ir_reg(register_type(a.type));
        int64_t offset;
        val address = address_at(from, ir_int(CKL_I64, plain_index(from, i)), &offset);
        ir_load(space_of(from), from.cache, a.type, a.n, address, offset, loaded);
        for (int64_t e = 0; e < length; e++) {
            val element = extract(&a, loaded, from.dtype, e, &pair_hi);
            ir_assign(to.regs[index_at(to.layout, i + e)], ir_convert(register_type(to.dtype), element));
        }
    }
}

/* The register number j of an access, built from the elements e.. of a register tensor that start at element i. */
static val assemble(const access *a, tensor from, ckl_dtype dtype, int64_t i, int j)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(dtype), per_register = (int64_t)ir_type_bytes(a->type) / bytes;
    if (per_register <= 1 || a->type == dtype)
        return ir_convert(register_type(dtype), from.regs[index_at(from.layout, i + j)]);
    if (ir_type_is_pair(a->type)) {
        val lo = from.regs[index_at(from.layout, i + 2 * j)], hi = from.regs[index_at(from.layout, i + 2 * j + 1)];
        bool direct = lo.type == CKL_F32 || lo.type == dtype;
        return ir_pack(a->type, direct ? lo : ir_convert(dtype, lo), direct ? hi : ir_convert(dtype, hi));
    }
    val word = ir_int(IR_U32, 0);
    for (int64_t e = 0; e < per_register; e++) {
        val element = ir_convert(register_type(dtype), from.regs[index_at(from.layout, i + j * per_register + e)]);
        val wide = ir_convert(IR_U32, ir_bitcast(IR_U16, element));
        if (bytes == 1)
            wide = ir_binary(IR_AND, wide, ir_int(IR_U32, 0xff));
        word = ir_binary(IR_OR, word, ir_binary(IR_SHL, wide, ir_int(IR_U32, e * bytes * 8)));
    }
    return ir_convert(register_type(a->type), word);
}

static void store_vectors(tensor from, tensor to, int64_t length)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(to.dtype), count = static_size(to.layout);
    access a = access_of(to.dtype, length * bytes);
    for (int64_t i = 0; i < count; i += length) {
        val words[16];
        for (int j = 0; j < a.n; j++)
            words[j] = assemble(&a, from, to.dtype, i, j);
        int64_t offset;
        val address = address_at(to, ir_int(CKL_I64, plain_index(to, i)), &offset);
        ir_store(space_of(to), to.cache, a.type, a.n, address, offset, words);
    }
}

static void copy_registers(tensor from, tensor to)
{
    int64_t count = static_size(from.layout);
    for (int64_t i = 0; i < count; i++)
        ir_assign(to.regs[index_at(to.layout, i)],
                  ir_convert(register_type(to.dtype), from.regs[index_at(from.layout, i)]));
}

void tensor_copy(tensor from, tensor to, int align)
{
    if (ir_failed())
        return;
    if (!layout_is_static(from.layout) || !layout_is_static(to.layout) ||
        static_size(from.layout) != static_size(to.layout)) {
        text f = { 0 }, t = { 0 };
        layout_print(from.layout, &f);
        layout_print(to.layout, &t);
        ir_fail("copy from %s %s to %s %s: the layouts must be static and of equal size", memory_names[from.memory],
                text_data(&f), memory_names[to.memory], text_data(&t));
        text_free(&f);
        text_free(&t);
    } else if (from.memory == RMEM && to.memory == RMEM) {
        copy_registers(from, to);
    } else if (to.memory == RMEM) {
        load_vectors(from, to, vector_length(from, align));
    } else if (from.memory == RMEM) {
        store_vectors(from, to, vector_length(to, align));
    } else {
        tensor rT = fragment_like(from, from.dtype);
        tensor_copy(from, rT, align);
        tensor_copy(rT, to, align);
    }
}
