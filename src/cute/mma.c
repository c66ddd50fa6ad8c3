/* mma.c - partitions by thread-value layouts, descriptors, and the matrix instructions. */
#include "cute/mma.h"

#include "cute/tiled_copy.h"

tiled_mma make_tiled_mma(const char *atom, int atoms_m, int atoms_n)
{
    tiled_mma mma = { .atoms_m = atoms_m, .atoms_n = atoms_n };
    if (!mma_atom_find(atom, &mma.atom)) {
        mma.atom = mma_atom_nearest(atom); // what follows finds an atom
        ir_fail("there is no MMA atom %s; the nearest is %s", atom, mma.atom.name);
    }
    return mma;
}

const char *mma_sync_atom(ckl_dtype factors)
{
    static const char *const atoms[CKL_DTYPE_COUNT] = { [CKL_F16] = "SM80_16x8x16_F32F16F16F32_TN",
                                                        [CKL_BF16] = "SM80_16x8x16_F32BF16BF16F32_TN",
                                                        [CKL_F32] = "SM80_16x8x8_F32TF32TF32F32_TN",
                                                        [CKL_I8] = "SM80_16x8x32_S32S8S8S32_TN" };
    return atoms[factors];
}

/* Partitions */

/*
 * ((THREAD,ATOMS_M,ATOMS_N), VALUE, REST_ROWS, REST_COLS) over a tile: CuTe's thrfrg. Every copy of the atom along N
 * reads the same A, and along M the same B.
 */
static layout thread_fragments(const tiled_mma *mma, mma_operand operand, layout tile)
{
    const bool is_a = operand == MMA_A, is_b = operand == MMA_B, is_c = operand == MMA_C;
    const mma_atom *atom = &mma->atom;
    layout tiler[] = { compact(leaf(is_b ? atom->n : atom->m)), compact(leaf(is_c ? atom->n : atom->k)) };
    layout divided = zipped_divide_by_mode(without_swizzle(tile), 2, tiler); // ((ROWS,COLS),(TILES_ROWS,TILES_COLS))
    layout tv = composition(layout_mode(divided, 0), mma_atom_layout(atom, operand));
    layout tiles = layout_mode(divided, 1); // each mode becomes (copies of the atom, repeats in time)
    layout rows = logical_divide(layout_mode(tiles, 0), compact(leaf(is_b ? mma->atoms_n : mma->atoms_m)));
    layout cols = logical_divide(layout_mode(tiles, 1), compact(leaf(is_c ? mma->atoms_n : 1)));
    layout along_m = is_b ? make_layout(leaf(mma->atoms_m), leaf(0)) : layout_mode(rows, 0);
    layout along_n = is_a ? make_layout(leaf(mma->atoms_n), leaf(0)) : layout_mode(is_b ? rows : cols, 0);
    layout threads = layouts_of(3, (layout[]){ layout_mode(tv, 0), along_m, along_n });
    return layouts_of(4, (layout[]){ threads, layout_mode(tv, 1), layout_mode(rows, 1), layout_mode(cols, 1) });
}

static tensor partition(const tiled_mma *mma, mma_operand operand, tensor t, val tid)
{
    swizzle sw = t.layout.sw;
    t.layout = thread_fragments(mma, operand, t.layout);
    t.layout.sw = sw;
    return tensor_slice(t, coord(tid, WILDCARD, WILDCARD, WILDCARD));
}

tensor partition_A(const tiled_mma *mma, tensor t, val tid)
{
    return partition(mma, MMA_A, t, tid);
}

tensor partition_B(const tiled_mma *mma, tensor t, val tid)
{
    return partition(mma, MMA_B, t, tid);
}

tensor partition_C(const tiled_mma *mma, tensor t, val tid)
{
    return partition(mma, MMA_C, t, tid);
}

layout mma_thread_values(const tiled_mma *mma, mma_operand operand, int rows, int cols)
{
    return group_modes(thread_fragments(mma, operand, compact(shape(rows, cols))), 1, 4);
}

/* Fragments */

static tensor operand_fragment(const tiled_mma *mma, mma_operand operand, ckl_dtype dtype, int rows, int cols)
{
    layout all = thread_fragments(mma, operand, compact(shape(rows, cols)));
    return fragment(dtype, compact(take_modes(all.shape, 1, 4)));
}

tensor fragment_A(const tiled_mma *mma, int m, int k)
{
    return operand_fragment(mma, MMA_A, mma->atom.a, m, k);
}

tensor fragment_B(const tiled_mma *mma, int n, int k)
{
    return operand_fragment(mma, MMA_B, mma->atom.b, n, k);
}

tensor fragment_C(const tiled_mma *mma, int m, int n)
{
    return operand_fragment(mma, MMA_C, mma->atom.c, m, n);
}

static tensor words_fragment(const tiled_mma *mma, mma_operand operand, ckl_dtype dtype, int rows, int cols)
{
    layout all = thread_fragments(mma, operand, compact(shape(rows, cols)));
    int64_t words = static_size(layout_mode(all, 1)) * (int64_t)ckl_dtype_bytes(dtype) / 4;
    return fragment(IR_U32, compact(shape(words, layout_mode(all, 2).shape, layout_mode(all, 3).shape)));
}

tensor fragment_A_words(const tiled_mma *mma, int m, int k)
{
    return words_fragment(mma, MMA_A, mma->atom.a, m, k);
}

tensor fragment_B_words(const tiled_mma *mma, int n, int k)
{
    return words_fragment(mma, MMA_B, mma->atom.b, n, k);
}

/* Do the accumulators cover as many elements as the pairs? */
static bool is_rounded_to(tensor acc, tensor rA)
{
    if (acc.dtype == CKL_F32 && rA.dtype == IR_U32 && static_size(acc.layout) == 2 * static_size(rA.layout))
        return true;
    ir_fail("accumulators_to_A: %" PRId64 " accumulators do not fill %" PRId64 " pairs of A", static_size(acc.layout),
            static_size(rA.layout));
    return false;
}

/*
 * Eight neighbouring values of C, those of 16 columns, are the eight of A's step along K in the same order (atoms.c).
 * The N atoms of mma.sync are 8 columns each, those of wgmma all of them.
 */
void accumulators_to_A(tensor acc, ckl_dtype dtype, tensor rA)
{
    ir_type pair = dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2;
    if (ir_failed() || !is_rounded_to(acc, rA))
        return;
    int64_t values = static_size(layout_mode(acc.layout, 0)), blocks = static_size(layout_mode(acc.layout, 1));
    int64_t pairs = static_size(layout_mode(rA.layout, 0));
    for (int64_t i = 0; i < static_size(rA.layout); i++) {
        int64_t p = i % pairs, block = i / pairs % blocks, step = i / pairs / blocks, at = step * 2 * pairs + 2 * p;
        int64_t first = at % values + values * (block + blocks * (at / values));
        val lo = acc.regs[index_at(acc.layout, first)], hi = acc.regs[index_at(acc.layout, first + 1)];
        ir_assign(rA.regs[index_at(rA.layout, i)], ir_bitcast(IR_U32, ir_pack(pair, lo, hi)));
    }
}

/* Does a tile of accumulators have these columns? N is that of the atom. */
static bool has_columns(tensor acc, int first, int count)
{
    layout values = layout_mode(acc.layout, 0);
    bool fragment = rank(acc.layout) == 3 && rank(values) == 3;
    int64_t n = fragment ? 8 * static_size(layout_mode(values, 2)) : 0;
    bool whole = count > 0 && count % 8 == 0 && first >= 0 && first % 8 == 0;
    if (whole && first + count <= n && static_size(layout_mode(acc.layout, 2)) == 1)
        return true;
    ir_fail("accumulator_columns: %d columns from %d on are no groups of 8 of one atom of %" PRId64 " columns", count,
            first, n);
    return false;
}

tensor accumulator_columns(tensor acc, int first, int count)
{
    if (ir_failed() || !has_columns(acc, first, count))
        return acc;
    layout values = layout_mode(acc.layout, 0); // (2,2,N/8): the last mode counts groups of 8 columns
    layout groups = composition(layout_mode(values, 2), compact(leaf(count / 8)));
    values = layouts_of(3, (layout[]){ layout_mode(values, 0), layout_mode(values, 1), groups });
    layout some = layouts_of(3, (layout[]){ values, layout_mode(acc.layout, 1), layout_mode(acc.layout, 2) });
    tensor columns = tensor_slice(acc, coord(coord(WILDCARD, WILDCARD, first / 8), WILDCARD, WILDCARD));
    return tensor_with_layout(columns, some);
}

/* Descriptors */

/* What a descriptor says of an operand besides its address; bytes. */
typedef struct operand_form {
    int span; // of the swizzle; 0: not a tile that the tensor core can read
    bool mn_major;
    int64_t leading; // MN-major: from span to span along M or N
} operand_form;

/* The bits of a descriptor without its address: PTX ISA, "Matrix descriptor". */
static int64_t descriptor_bits(const operand_form *f)
{
    uint64_t mode = f->span == 128 ? 1 : f->span == 64 ? 2 : 3;
    int64_t between_groups = 8 * (int64_t)f->span; // bytes from 8 rows to the next 8
    int64_t leading = f->mn_major ? f->leading >> 4 : 1;
    return (int64_t)(mode << 62) | (between_groups >> 4) << 32 | leading << 16;
}

/* Do the indices of a mode go up by `step` within runs and by `far` from run to run? */
static bool steps_evenly(layout mode, int64_t step, int64_t run, int64_t far)
{
    for (int64_t i = 0; i < static_size(mode); i++)
        if (index_at(mode, i) != i % run * step + i / run * far)
            return false;
    return true;
}

/* The form of a tile that the tensor core can read; a span of 0 after ir_fail(). */
static operand_form form_of(const char *which, tensor t)
{
    int span = t.layout.sw.bits ? 16 << t.layout.sw.bits : 0, run = span / 2;
    layout plain = without_swizzle(t.layout), row = layout_mode(plain, 0), column = layout_mode(plain, 1);
    bool readable = layout_is_static(row) && layout_is_static(column) && span;
    int bytes = (int)ckl_dtype_bytes(t.dtype);
    if (readable && index_at(row, 1) * bytes == span && index_at(column, 1) == 1)
        return (operand_form){ .span = span };
    if (readable && bytes == 2 && static_size(row) % run == 0 && index_at(row, 1) == 1) {
        int64_t far = static_size(row) > run ? index_at(row, run) : 0;
        if (steps_evenly(row, 1, run, far) && steps_evenly(column, run, static_size(column), 0))
            return (operand_form){ span, true, far * 2 };
    }
    ir_fail("wgmma %s: the shared tile is %s; it must be K-major, its rows one swizzle span long, or of 16 bits and "
            "MN-major in runs of one span",
            which, layout_text(t.layout));
    return (operand_form){ 0 };
}

/* MN-major tiles consist of whole spans, and one atom may take less than all of them. */
static tensor descriptors(const char *which, tensor t, int rows, int cols)
{
    operand_form form = form_of(which, t);
    if (!form.span)
        return t;
    int modes = rank(t.layout);
    layout plain = without_swizzle(t.layout);
    int all_rows = (int)static_size(layout_mode(plain, 0));
    if (form.mn_major && rows < all_rows && all_rows - rows < form.span / 2)
        rows = all_rows;
    layout tiler[] = { compact(leaf(rows)), compact(leaf(cols)) };
    layout rest = layout_mode(zipped_divide_by_mode(plain, 2, tiler), 1); // (MMA_M,MMA_K[,STAGES]) in elements
    layout in_units[3];
    for (int i = 0; i < modes; i++) {
        layout mode = layout_mode(rest, i);
        int64_t step = static_size(mode) > 1 ? index_at(mode, 1) : 0;
        in_units[i] = make_layout(leaf(static_size(mode)), leaf(step * (int64_t)ckl_dtype_bytes(t.dtype) / 16));
    }
    val address = ir_binary(IR_AND, ir_binary(IR_SHR, t.address, ir_u32(4)), ir_u32(0x3fff));
    val first = ir_binary(IR_OR, ir_convert(IR_U64, address), ir_int(IR_U64, descriptor_bits(&form)));
    return (tensor){ .memory = DMEM,
                     .dtype = t.dtype,
                     .address = first,
                     .mn_major = form.mn_major,
                     .layout = layouts_of(modes, in_units) };
}

tensor descriptors_A(const tiled_mma *mma, tensor sA)
{
    return descriptors("A", sA, mma->atom.m, mma->atom.k);
}

tensor descriptors_B(const tiled_mma *mma, tensor sB)
{
    return descriptors("B", sB, mma->atom.n, mma->atom.k);
}

/* Matrix instructions */

/* The registers of atom (i,j) of a fragment (MMA,REST,REST), in order. */
static int atom_registers(tensor r, int64_t i, int64_t j, val *out)
{
    tensor one = tensor_slice(r, coord(WILDCARD, i, j));
    int count = (int)static_size(one.layout);
    for (int v = 0; v < count; v++)
        out[v] = one.regs[index_at(one.layout, v)];
    return count;
}

static val descriptor_at(tensor t, int64_t i, int64_t j)
{
    return tensor_address(t, coord(i, j));
}

/* Fragment registers as words: 16-bit ones in pairs, those of f32 alone; they may be words already. */
static void packed_registers(tensor r, int64_t i, int64_t j, val *out)
{
    val elements[16];
    int count = atom_registers(r, i, j, r.dtype == IR_U32 ? out : elements);
    ir_type pair = r.dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2;
    if (r.dtype == CKL_F32)
        for (int v = 0; v < count; v++)
            out[v] = ir_bitcast(IR_U32, elements[v]);
    else
        for (int v = 0; v < count && r.dtype != IR_U32; v += 2)
            out[v / 2] = ir_bitcast(IR_U32, ir_pack(pair, elements[v], elements[v + 1]));
}

/* Does t have rows x cols operands of the atom, of `values` a thread each, or words of them? Descriptors have none. */
static bool is_operand(tensor t, mma_source from, ckl_dtype dtype, int64_t values, int64_t rows, int64_t cols)
{
    int first = t.memory == DMEM ? 0 : 1;
    values /= t.dtype == IR_U32 ? 4 / (int64_t)ckl_dtype_bytes(dtype) : 1;
    return t.memory == (from == MMA_DESCRIPTOR ? DMEM : RMEM) && layout_is_static(t.layout) &&
           rank(t.layout) == first + 2 && (!first || static_size(layout_mode(t.layout, 0)) == values) &&
           static_size(layout_mode(t.layout, first)) == rows && static_size(layout_mode(t.layout, first + 1)) == cols;
}

/* Mode i of what is repeated: 0 the rows, 1 the columns; 0 where there is no such mode. */
static int64_t repeats(tensor t, int i)
{
    int mode = t.memory == DMEM ? i : i + 1;
    bool known = layout_is_static(t.layout) && mode < rank(t.layout);
    return known ? static_size(layout_mode(t.layout, mode)) : 0;
}

static void check_operands(const tiled_mma *mma, tensor a, tensor b, tensor acc)
{
    static const char *const kinds[] = { [MMA_REGISTERS] = "fragments", [MMA_DESCRIPTOR] = "descriptors" };
    const mma_atom *atom = &mma->atom;
    int64_t m = repeats(a, 0), n = repeats(b, 0), k = repeats(a, 1);
    if (acc.dtype == atom->c && is_operand(a, atom->a_from, atom->a, atom->m * atom->k / atom->threads, m, k) &&
        is_operand(b, atom->b_from, atom->b, atom->n * atom->k / atom->threads, n, k) &&
        is_operand(acc, MMA_REGISTERS, atom->c, atom->m * atom->n / atom->threads, m, n))
        return;
    ir_fail("gemm with %s: A is %s, B is %s, acc is %s; wanted are %s (MMA_M,MMA_K), %s (MMA_N,MMA_K) and fragments "
            "(MMA,MMA_M,MMA_N)",
            atom->name, layout_text(a.layout), layout_text(b.layout), layout_text(acc.layout), kinds[atom->a_from],
            kinds[atom->b_from]);
}

/* What the atom takes of a fragment: values where each thread multiplies alone, else words. Descriptors have none. */
static void operand_registers(const mma_atom *atom, tensor t, int64_t i, int64_t k, val *out)
{
    if (t.memory == RMEM && atom->op == IR_FMA)
        atom_registers(t, i, k, out);
    else if (t.memory == RMEM)
        packed_registers(t, i, k, out);
}

/* K outermost: neighbours among the accumulators are independent. */
void gemm(const tiled_mma *mma, tensor tCrA, tensor tCrB, tensor acc, val accumulate)
{
    const mma_atom *atom = &mma->atom;
    if (!ir_failed())
        check_operands(mma, tCrA, tCrB, acc);
    for (int64_t k = 0; !ir_failed() && k < repeats(tCrA, 1); k++)
        for (int64_t m = 0; m < repeats(tCrA, 0); m++) {
            val a[4], b[2], d[128], adds = k == 0 ? accumulate : ir_int(IR_PRED, 1);
            operand_registers(atom, tCrA, m, k, a);
            for (int64_t n = 0; n < repeats(tCrB, 0); n++) {
                operand_registers(atom, tCrB, n, k, b);
                atom_registers(acc, m, n, d);
                if (tCrA.memory == DMEM)
                    ir_wgmma(atom->a, atom->b, atom->n, d, descriptor_at(tCrA, m, k), descriptor_at(tCrB, n, k), adds,
                             tCrA.mn_major, tCrB.mn_major);
                else if (tCrB.memory == DMEM)
                    ir_wgmma_rs(atom->a, atom->b, atom->n, d, a, descriptor_at(tCrB, n, k), adds, tCrB.mn_major);
                else if (atom->op == IR_FMA)
                    ir_emit((ir_inst){ .op = IR_FMA, .type = CKL_F32 }, 1, d, 3, (val[]){ a[0], b[0], d[0] });
                else
                    ir_mma(atom->a, atom->b, d, a, b);
            }
        }
}

/* 8x8 matrices */

static int extent(tensor t, int mode)
{
    return (int)static_size(layout_mode(t.layout, mode));
}

void ldmatrix_A(const tiled_mma *mma, tensor sA, val tid, tensor rA)
{
    tiled_copy c = make_tiled_copy_A("SM75_U32x4_LDSM_N", sA.dtype, mma, extent(sA, 0), extent(sA, 1));
    copy_tiled(&c, partition_S(&c, sA, tid), rA);
}

void ldmatrix_B(const tiled_mma *mma, tensor sB, val tid, tensor rB)
{
    tiled_copy c = make_tiled_copy_B("SM75_U32x4_LDSM_N", sB.dtype, mma, extent(sB, 0), extent(sB, 1));
    copy_tiled(&c, partition_S(&c, sB, tid), rB);
}

void stmatrix_C(const tiled_mma *mma, tensor rC, tensor sC, val tid)
{
    bool by_columns =
        !ir_failed() && static_size(layout_mode(sC.layout, 0)) > 1 && index_at(without_swizzle(sC.layout), 1) == 1;
    tiled_copy c = make_tiled_copy_C(by_columns ? "SM90_U16x8_STSM_T" : "SM90_U32x4_STSM_N", sC.dtype, mma,
                                     extent(sC, 0), extent(sC, 1));
    copy_tiled(&c, rC, partition_D(&c, sC, tid));
}
