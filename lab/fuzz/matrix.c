/*
 * matrix.c - tensor cores and the instructions that feed them. Operands are +-0.5 to 1.75 in steps of an eighth or a quarter,
 * accumulators begin as small whole numbers: every sum is exact, so its rounding, which differs between GPUs, is not asked.
 */
#include "lab/fuzz/program.h"

#include "base/math.h"
#include "ir/rules.h"

enum { CHUNK = 16, A_ROWS = 64, N_MAX = 64, ACCUMULATORS_MAX = 128 };

static ir_type choose_half(program *p)
{
    return chance(p, 2) ? CKL_F16 : CKL_BF16;
}

/* Two halves as described above, as a u32. */
static val two_halves(program *p, ir_type half)
{
    bool f16 = half == CKL_F16;
    val bits = ir_binary(IR_AND, pick_register(p, IR_U32), ir_int(IR_U32, f16 ? 0x87008700 : 0x80e080e0));
    return ir_binary(IR_OR, bits, ir_int(IR_U32, f16 ? 0x38003800 : 0x3f003f00));
}

/* New registers with one of two small numbers, or 0. */
static void accumulators(program *p, int count, val *d)
{
    val first[3] = { ir_float(CKL_F32, 0) };
    for (int i = 1; i < 3; i++)
        first[i] = small_float(p, CKL_F32);
    for (int i = 0; i < count; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), first[choose(p, 3)]);
}

void do_mma(program *p)
{
    ir_at("mma", 1);
    ir_type half = choose_half(p);
    val d[4], a[4], b[2];
    accumulators(p, 4, d);
    for (int i = 0; i < 4; i++) {
        a[i] = two_halves(p, half);
        b[i / 2] = two_halves(p, half);
    }
    for (int i = 1 + choose(p, 2); i > 0; i--)
        ir_mma(half, d, a, b);
    for (int i = 0; i < 4; i++)
        keep(p, d[i]);
}

/* Fills the tile with halves for tensor cores, chunk by chunk. */
static void fill_tile(program *p, ir_type half)
{
    val v[4], mine = ir_binary(IR_ADD, p->smem, ir_binary(IR_MUL, p->thread, ir_int(IR_U32, CHUNK)));
    for (int i = 0; i < 4; i++)
        v[i] = two_halves(p, half);
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
    val row = ir_binary(IR_AND, pick_register(p, IR_U32), ir_int(IR_U32, FUZZ_TILE_BYTES / CHUNK / 2 - 1)), d[4];
    int n = 1 << choose(p, 3);
    bool transpose = chance(p, 2);
    for (int i = 0; i < n; i++)
        d[i] = ir_reg(IR_U32);
    ir_ldmatrix(n, transpose, ir_binary(IR_ADD, p->smem, ir_binary(IR_MUL, row, ir_int(IR_U32, CHUNK))),
                CHUNK * choose(p, 64), d);
    for (int i = 0; i < n; i++)
        keep(p, d[i]);
}

/* Every lane's row is its own; a thread then reads the row of another. */
void do_stmatrix(program *p)
{
    ir_at("stmatrix", 1);
    val x[4], d[4], slot = ir_binary(IR_XOR, p->thread, ir_int(IR_U32, choose(p, p->threads)));
    int n = 1 << choose(p, 3);
    for (int i = 0; i < n; i++)
        x[i] = pick(p, IR_U32);
    for (int i = 0; i < 4; i++)
        d[i] = ir_reg(IR_U32);
    val row = ir_binary(IR_ADD, p->smem, ir_binary(IR_MUL, slot, ir_int(IR_U32, CHUNK)));
    val zero[] = { ir_int(IR_U32, 0), ir_int(IR_U32, 0), ir_int(IR_U32, 0), ir_int(IR_U32, 0) };
    settle_smem(p);
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, zero);
    settle_smem(p);
    ir_stmatrix(n, chance(p, 2), row, 0, x);
    settle_smem(p);
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, d);
    for (int i = 0; i < 4; i++)
        keep(p, d[i]);
}

/*
 * A descriptor of rows x 16 halves that lie in the tile, as matrix.h of the emulator describes them; major: the rows are
 * contiguous instead of k. Offsets are multiples of what a swizzle repeats after.
 */
static val descriptor(program *p, int rows, bool major)
{
    static const int spans[] = { 0, 128, 64, 32 };
    int swizzle = choose(p, 4), span = spans[swizzle], atom = span ? 8 * span : 128;
    int leading = atom * (1 + choose(p, 2)), stride = atom * (1 + choose(p, 2)), start = 0, extent;
    if (!span)
        extent = (rows / 8) * stride + 2 * leading + atom;
    else if (major)
        extent = (rows * 2 / span + 1) * leading + 2 * stride + atom;
    else
        extent = (rows / 8) * stride + atom;
    if (extent > FUZZ_TILE_BYTES) {
        leading = stride = atom; // at most 64 rows: fits
        extent = (rows / 8 + 2) * atom;
    }
    int room = (FUZZ_TILE_BYTES - (int)min_i64(extent, FUZZ_TILE_BYTES)) / 1024;
    start = 1024 * choose(p, room + 1);
    if (span > 32 && !major)
        start += 32 * choose(p, span / 32); // a later k of the same rows
    val address = ir_binary(IR_SHR, ir_binary(IR_ADD, p->smem, ir_int(IR_U32, start)), ir_int(IR_U32, 4));
    uint64_t fields = (uint64_t)leading / 16 << 16 | (uint64_t)stride / 16 << 32 | (uint64_t)swizzle << 62;
    return ir_binary(IR_OR, ir_convert(IR_U64, address), ir_int(IR_U64, (int64_t)fields));
}

/* Up to two in a group, A from shared memory or from registers. */
void do_wgmma(program *p)
{
    ir_type half = choose_half(p);
    fill_tile(p, half);
    ir_at("wgmma", 1);
    int n = 8 * (1 + (chance(p, 3) ? choose(p, N_MAX / 8) : choose(p, 3))), many = 1 + choose(p, 2);
    bool registers = chance(p, 2), a_major = chance(p, 2), b_major = chance(p, 2) && n % 64 == 0;
    val d[ACCUMULATORS_MAX], a[4];
    for (int i = 0; i < 4; i++)
        a[i] = ir_reg(IR_U32), ir_assign(a[i], two_halves(p, half));
    accumulators(p, n / 2, d);
    for (int i = 0; i < many; i++) {
        val scale = i ? ir_int(IR_PRED, 1) : chance(p, 2) ? ir_int(IR_PRED, choose(p, 2)) : uniform_predicate(p);
        val da = descriptor(p, A_ROWS, a_major), db = descriptor(p, n, b_major);
        ir_plain(IR_WGMMA_FENCE, 0, 0);
        if (registers)
            ir_wgmma_rs(half, n, d, a, db, scale, b_major);
        else
            ir_wgmma(half, n, d, da, db, scale, a_major, b_major);
        ir_plain(IR_WGMMA_COMMIT, 0, 0);
        ir_plain(IR_WGMMA_WAIT, 0, 0);
    }
    for (int i = 0; i < n / 2 && i < 16; i++)
        keep(p, d[choose(p, n / 2)]);
}
