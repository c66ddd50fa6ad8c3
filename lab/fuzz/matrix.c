/*
 * matrix.c - tensor cores and the instructions that feed them. 16-bit operands are +-0.5 to 1.75 in steps of an eighth
 * or a quarter, others +-0.5 to 2 or any bytes, and accumulators begin as small whole numbers: sums of 16-bit operands
 * are exact, so their rounding, which differs between GPUs, is not asked. Programs for sm_90a run on Hopper alone:
 * there some operands and accumulators are of any size, zeros, subnormals, infinities and NaNs among them, and every
 * bit of the sum counts.
 *
 * A wgmma takes A from registers that were loaded for it alone. ptxas (13.0) writes a register that holds a constant
 * only just before the wgmma, even if a store or an mma uses the same register earlier.
 */
#include "lab/fuzz/program.h"

#include "base/math.h"
#include "ir/rules.h"

enum { CHUNK = 16, A_ROWS = 64, N_MAX = 256, N_MOSTLY = 32, ACCUMULATORS_MAX = N_MAX / 2, KEPT = 4 };

static ir_type choose_half(program *p)
{
    return chance(p, 2) ? CKL_F16 : CKL_BF16;
}

/* The types of A and B that a wgmma multiplies. */
typedef struct factors {
    ir_type a, b;
    bool halves, integers;
} factors;

static factors choose_factors(program *p)
{
    static const ir_type f8[] = { CKL_E4M3, CKL_E5M2 }, bytes[] = { CKL_I8, CKL_U8 };
    int kind = choose(p, 5), a = choose(p, 2), b = choose(p, 2);
    if (kind == 0)
        return (factors){ f8[a], f8[b], .halves = false };
    if (kind == 1)
        return (factors){ bytes[a], bytes[a], .integers = true };
    if (kind == 2)
        return (factors){ CKL_F32, CKL_F32, .halves = false };
    ir_type half = choose_half(p);
    return (factors){ half, half, .halves = true };
}

/* A word of operands as described above, for GPUs of all generations. */
static val usual_operands(val word, ir_type type)
{
    static const struct {
        uint32_t random, set; // bits
    } forms[] = {
        [CKL_F16] = { 0x87008700, 0x38003800 },
        [CKL_BF16] = { 0x80e080e0, 0x3f003f00 },
        [CKL_F32] = { 0x80ffffff, 0x3f000000 },
        [CKL_E4M3] = { 0x8f8f8f8f, 0x30303030 },
        [CKL_E5M2] = { 0x87878787, 0x38383838 },
        [CKL_I8] = { ~0u, 0 },
        [CKL_U8] = { ~0u, 0 },
    };
    val bits = ir_binary(IR_AND, word, ir_u32(forms[type].random));
    return ir_binary(IR_OR, bits, ir_u32(forms[type].set));
}

/* On Hopper now and then of any size, of at most 1 or 2, or of tiny ones. */
static val operands_of(program *p, val word, ir_type type)
{
    static const uint32_t sizes[] = { 0xffffffff, 0xbfffbfff, 0x87ff87ff, 0xffff0000 };
    if (p->target != IR_SM90A || !chance(p, 3))
        return usual_operands(word, type);
    return ir_binary(IR_AND, word, ir_u32(sizes[choose(p, COUNT_OF(sizes))]));
}

static val some_operands(program *p, ir_type type)
{
    val word = pick_register(p, IR_U32);
    return operands_of(p, word, type);
}

/* A's registers of a wgmma, from inputs that nothing else uses. */
static void load_a(program *p, ir_type type, val a[4])
{
    val word[4];
    int64_t row = choose(p, (FUZZ_INPUT_BYTES - 16 * FUZZ_THREADS_MAX) / 16);
    for (int i = 0; i < 4; i++)
        word[i] = ir_reg(IR_U32);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, p->own, row * 16 - FUZZ_OWN, word);
    for (int i = 0; i < 4; i++)
        a[i] = operands_of(p, word[i], type);
}

/*
 * New registers with one of two numbers, or 0; sums of integers begin anywhere. The numbers are used for nothing else:
 * of a value that is used again ptxas 13.0 may make the accumulator itself.
 */
static void accumulators(program *p, ir_type from, int count, val *d)
{
    bool floats = ir_type_is_float(from);
    ir_type type = floats ? CKL_F32 : CKL_I32;
    val first[3] = { floats ? ir_float(type, 0) : ir_int(type, 0) };
    for (int i = 1; i < 3; i++)
        first[i] = !floats || (p->target == IR_SM90A && chance(p, 3)) ? load_input(p, type) : small_float(p, type);
    for (int i = 0; i < count; i++)
        ir_assign(d[i] = ir_reg(type), first[choose(p, 3)]);
}

void do_mma(program *p)
{
    ir_at("mma", 1);
    ir_type half = choose_half(p);
    val d[4], a[4], b[2];
    accumulators(p, half, 4, d);
    for (int i = 0; i < 4; i++) {
        a[i] = some_operands(p, half);
        b[i / 2] = some_operands(p, half);
    }
    for (int i = 1 + choose(p, 2); i > 0; i--)
        ir_mma(half, half, d, a, b);
    for (int i = 0; i < 4; i++)
        keep(p, d[i]);
}

/* Fills the tile with operands of tensor cores, chunk by chunk. */
static void fill_tile(program *p, ir_type type)
{
    val v[4], mine = element_at(p->smem, p->thread, CHUNK);
    for (int i = 0; i < 4; i++)
        v[i] = some_operands(p, type);
    settle_smem(p);
    for (int at = 0; at < FUZZ_TILE_BYTES; at += CHUNK * p->threads) {
        val rotated[] = { v[at / CHUNK % 3], v[(at / 2048 + 1) % 4], v[(at / 2048 + 2) % 4], v[(at / 2048 + 3) % 4] };
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, mine, at, rotated);
    }
    settle_smem(p);
}

void do_ldmatrix(program *p)
{
    fill_tile(p, choose_half(p));
    ir_at("ldmatrix", 1);
    val row = ir_binary(IR_AND, pick_register(p, IR_U32), ir_u32(FUZZ_TILE_BYTES / CHUNK / 2 - 1)), d[4];
    int n = 1 << choose(p, 3);
    bool transpose = chance(p, 2);
    for (int i = 0; i < n; i++)
        d[i] = ir_reg(IR_U32);
    ir_ldmatrix(n, transpose, element_at(p->smem, row, CHUNK), CHUNK * choose(p, 64), d);
    for (int i = 0; i < n; i++)
        keep(p, d[i]);
}

/* Every lane's row is its own; a thread then reads the row of another. */
void do_stmatrix(program *p)
{
    ir_at("stmatrix", 1);
    val x[4], d[4], slot = ir_binary(IR_XOR, p->thread, ir_u32(choose(p, p->threads)));
    int n = 1 << choose(p, 3);
    for (int i = 0; i < n; i++)
        x[i] = pick(p, IR_U32);
    for (int i = 0; i < 4; i++)
        d[i] = ir_reg(IR_U32);
    val row = element_at(p->smem, slot, CHUNK);
    val zero[] = { ir_u32(0), ir_u32(0), ir_u32(0), ir_u32(0) };
    settle_smem(p);
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, zero);
    settle_smem(p);
    ir_stmatrix(n, chance(p, 2), row, 0, x);
    settle_smem(p);
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, d);
    for (int i = 0; i < 4; i++)
        keep(p, d[i]);
}

/* How operands lie in shared memory; matrix.h of the emulator has the formulas. */
typedef struct placement {
    int swizzle, span;   // field of the descriptor; bytes, 0: none
    int leading, stride; // bytes
} placement;

/* Bytes from the first to behind the last of rows x 16 halves; major: rows are contiguous instead of k. */
static int extent_of(placement x, int rows, bool major)
{
    int atom = x.span ? 8 * x.span : 128;
    if (!x.span)
        return rows / 8 * x.stride + 2 * x.leading + atom;
    if (major)
        return (rows * 2 / x.span + 1) * x.leading + 2 * x.stride + atom;
    return rows / 8 * x.stride + atom;
}

/* Offsets are multiples of what the swizzle repeats after; closer, or with a smaller swizzle, if they do not fit. */
static placement choose_placement(program *p, int rows, bool major)
{
    static const int spans[] = { 0, 128, 64, 32 };
    for (int swizzle = choose(p, 4);; swizzle++) {
        int span = spans[swizzle % 4], atom = span ? 8 * span : 128;
        if (major && span && rows * 2 % span) // rows of a swizzle's width are not divided
            continue;
        placement x = { swizzle % 4, span, atom * (1 + choose(p, 2)), 0 };
        x.stride = atom * (1 + choose(p, 2));
        if (extent_of(x, rows, major) > FUZZ_TILE_BYTES)
            x.leading = x.stride = atom;
        if (extent_of(x, rows, major) <= FUZZ_TILE_BYTES)
            return x;
    }
}

/* A descriptor of rows x 16 halves somewhere in the tile. */
static val descriptor(program *p, int rows, bool major)
{
    placement x = choose_placement(p, rows, major);
    int start = 1024 * choose(p, (FUZZ_TILE_BYTES - extent_of(x, rows, major)) / 1024 + 1);
    if (x.span > 32 && !major)
        start += 32 * choose(p, x.span / 32); // a later k of the same rows
    val address = ir_binary(IR_SHR, ir_binary(IR_ADD, p->smem, ir_u32(start)), ir_u32(4));
    uint64_t fields = (uint64_t)x.leading / 16 << 16 | (uint64_t)x.stride / 16 << 32 | (uint64_t)x.swizzle << 62;
    return ir_binary(IR_OR, ir_convert(IR_U64, address), ir_int(IR_U64, (int64_t)fields));
}

/* Some accumulators, and all of them as one word. */
static void keep_accumulators(program *p, int count, const val *d)
{
    val all = ir_bitcast(IR_U32, d[0]);
    for (int i = 1; i < count; i++)
        all = ir_binary(IR_XOR, ir_binary(IR_MUL, all, ir_u32(3)), ir_bitcast(IR_U32, d[i]));
    keep(p, all);
    for (int i = 0; i < KEPT; i++)
        keep(p, d[choose(p, count)]);
}

/* Up to two in a group, A from shared memory or from registers. */
void do_wgmma(program *p)
{
    factors f = choose_factors(p);
    fill_tile(p, f.b);
    ir_at("wgmma", 1);
    int step = f.integers ? 16 : 8, n = step * (1 + choose(p, (chance(p, 6) ? N_MAX : N_MOSTLY) / step));
    int many = 1 + choose(p, 2);
    bool registers = chance(p, 2), a_major = f.halves && chance(p, 2), b_major = f.halves && chance(p, 2);
    val d[ACCUMULATORS_MAX], a[4];
    load_a(p, f.a, a);
    accumulators(p, f.a, n / 2, d);
    for (int i = 0; i < many; i++) {
        val scale = i ? ir_int(IR_PRED, 1) : chance(p, 2) ? ir_int(IR_PRED, choose(p, 2)) : uniform_predicate(p);
        val da = descriptor(p, A_ROWS, a_major), db = descriptor(p, n, b_major);
        ir_plain(IR_WGMMA_FENCE, 0, 0);
        if (registers)
            ir_wgmma_rs(f.a, f.b, n, d, a, db, scale, b_major);
        else
            ir_wgmma(f.a, f.b, n, d, da, db, scale, a_major, b_major);
        ir_plain(IR_WGMMA_COMMIT, 0, 0);
        ir_plain(IR_WGMMA_WAIT, 0, 0);
    }
    keep_accumulators(p, n / 2, d);
}
