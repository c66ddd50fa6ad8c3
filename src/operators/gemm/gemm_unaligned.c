/*
 * gemm_unaligned.c - few or small matrices of 16-bit floats whose rows begin anywhere, without copies; for every GPU
 * from sm_80 on.
 *
 * A CTA computes a block of D^T = B * A^T. For every row, neighbouring threads copy the aligned 16-byte chunks that
 * hold a K tile. Beyond the end of K zeros arrive; bytes before the first element are not used (allocations begin at
 * multiples of 16 bytes, so they exist). Each warp multiplies a slice of the tile. A lane makes each word of a row from
 * the two that hold it. Along K it has 32 contiguous bytes, so K is summed in another order than that of memory, the
 * same for A and B.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"
#include "skeletons/stage_loop.h"

enum {
    CHUNK = 16, // bytes of a copy
    LINE = 8,   // rows of which each lane of a warp has a quarter of one
    LINES_MAX = 8,
    SLICE_BYTES = 128,                          // of a row in a K tile, of each warp
    ROWS_OF_COPY = LANES * CHUNK / SLICE_BYTES, // by all threads
    WORDS = SLICE_BYTES / 4 / 4,                // of a lane
    COPIES_MAX = LINES_MAX * LINE / ROWS_OF_COPY + LINES_MAX * LINE / LANES,
    STEP = 16, // of mma.sync along K
    STEPS = SLICE_BYTES / 2 / STEP,
};

/* The rows of A or B that a CTA multiplies, and a thread's work on them. */
typedef struct unaligned_rows {
    int count, place; // rows; bytes to them in a stage
    val pitch;        // bytes between rows
    val first;        // i64, among those of the matrix
    val there;        // i32: how many of them exist
    val start;        // address of the first one
    val from[COPIES_MAX],
        left[COPIES_MAX]; // chunks that this thread copies of the first tile: address, bytes of the row from there on
    val to, end;          // where to in a stage; and for the chunks after the tile
    val words[LINES_MAX]; // bytes to this thread's words of each line in a stage
    val selectors[LINES_MAX]; // which bytes of two words are one of them
} unaligned_rows;

typedef struct unaligned_kernel {
    const gemm_unaligned_config *cfg;
    gemm_values p;
    val tiles; // along K
    val ring;  // the first stage
    unaligned_rows A, B;
    tiled_mma mma;
    tensor acc; // (MMA,MMA_M,MMA_N)
} unaligned_kernel;

/* A row of a K tile and the chunk after it. With rows of this length lanes of a line read different banks. */
static int bytes_of_row(const gemm_unaligned_config *c)
{
    return c->warps * SLICE_BYTES + CHUNK;
}

static int bytes_of_stage(const gemm_unaligned_config *c)
{
    return (c->rows + c->columns) * bytes_of_row(c);
}

int64_t gemm_unaligned_smem(const gemm_unaligned_config *c)
{
    return (int64_t)c->stages * bytes_of_stage(c);
}

/* Bytes before a row in the chunk that it begins in. */
static val phase_of(val start)
{
    return convert(I32, bit_and(convert(U32, start), imm_as(U32, CHUNK - 1)));
}

/* What a thread reads of each line. */
static void place_words(const gemm_unaligned_config *c, unaligned_rows *x)
{
    val slice = mul(warp(), imm(SLICE_BYTES));
    for (int i = 0; i < x->count / LINE; i++) {
        val row = add(thread_at(lane(), 1, 4, 8), imm(i * LINE));
        val phase = phase_of(add(x->start, convert(U64, mul(convert(I64, row), x->pitch))));
        val words = add(mul(row, imm(bytes_of_row(c))), mul(thread_at(lane(), 0, 4, 8), imm(4 * WORDS)));
        x->words[i] = add(add(add(words, slice), imm(x->place)), bit_and(convert(U32, phase), imm_as(U32, CHUNK - 4)));
        x->selectors[i] = select(eq(bit_and(phase, imm(2)), imm(0)), imm_as(U32, 0x3210), imm_as(U32, 0x5432));
    }
}

/* Makes chunk `chunk` of the first tile of a row copy i of this thread. */
static void place_chunk(unaligned_rows *x, int i, val k_bytes, val row, val start, val chunk)
{
    val offset = mul(chunk, imm(CHUNK));
    x->from[i] = add(bit_and(start, imm_as(U64, -CHUNK)), convert(U64, offset));
    x->left[i] = select(lt(row, x->there), sub(add(k_bytes, phase_of(start)), offset), imm_as(I32, 0));
}

/* What a thread copies: a chunk of every fourth row, and the chunks after the tile, one of a row each. */
static void place_copies(const gemm_unaligned_config *c, unaligned_rows *x, val k_bytes)
{
    const int chunks = c->warps * SLICE_BYTES / CHUNK, threads = c->warps * LANES;
    val number = convert(I32, thread()), row = div(number, imm(chunks)), chunk = rem(number, imm(chunks));
    val start = add(x->start, convert(U64, mul(convert(I64, row), x->pitch)));
    int copies = 0;
    x->to = convert(U32, add(add(mul(row, imm(bytes_of_row(c))), mul(chunk, imm(CHUNK))), imm(x->place)));
    for (int i = 0; i < x->count; i += ROWS_OF_COPY) {
        place_chunk(x, copies++, k_bytes, add(row, imm(i)), start, chunk);
        start = add(start, convert(U64, mul(x->pitch, imm(ROWS_OF_COPY))));
    }
    start = add(x->start, convert(U64, mul(convert(I64, number), x->pitch)));
    x->end = add(mul(thread(), imm(bytes_of_row(c))), imm(x->place + chunks * CHUNK));
    for (int i = 0; i < x->count; i += threads) {
        place_chunk(x, copies++, k_bytes, add(number, imm(i)), start, imm(chunks));
        start = add(start, convert(U64, mul(x->pitch, imm(threads))));
    }
}

/* The rows of block `block` of a matrix. */
static unaligned_rows rows_of(const gemm_unaligned_config *c, char matrix, const gemm_values *p, val block, int place)
{
    const bool is_a = matrix == 'a';
    const int count = is_a ? c->columns : c->rows;
    unaligned_rows x = { .count = count, .place = place };
    x.pitch = mul(is_a ? p->lda : p->ldb, imm(2));
    x.first = mul(convert(I64, block), imm(count));
    x.there = convert(I32, min(sub(is_a ? p->m : p->n, x.first), imm64(count)));
    x.start = add(is_a ? p->a : p->b, convert(U64, mul(x.first, x.pitch)));
    place_words(c, &x);
    place_copies(c, &x, convert(I32, mul(p->k, imm(2))));
    return x;
}

/* Loads */

static void load_chunk(const unaligned_rows *x, int i, val offset, val to)
{
    val bytes = max(min(sub(x->left[i], convert(I32, offset)), imm(CHUNK)), imm(0));
    cp_async(to, add(x->from[i], convert(U64, offset)), CHUNK, convert(U32, bytes));
}

static void load_rows(const gemm_unaligned_config *c, const unaligned_rows *x, val tile, val at)
{
    const int threads = c->warps * LANES;
    val offset = mul(tile, imm(c->warps * SLICE_BYTES)), to = add(at, x->to);
    int copies = 0;
    for (int i = 0; i < x->count; i += ROWS_OF_COPY)
        load_chunk(x, copies++, offset, add(to, imm(i * bytes_of_row(c))));
    for (int i = 0; i < x->count; i += threads, copies++)
        IF(lt(thread(), imm(x->count - i)))
            load_chunk(x, copies, offset, add(add(at, x->end), imm(i * bytes_of_row(c))));
}

/* Starts the copies of a K tile, if there is one. */
static void load_tile(const void *of, val tile, val stage)
{
    const unaligned_kernel *k = of;
    IF(lt(tile, k->tiles)) {
        val at = add(k->ring, mul(stage, imm(bytes_of_stage(k->cfg))));
        load_rows(k->cfg, &k->B, tile, at);
        load_rows(k->cfg, &k->A, tile, at);
    }
}

/* Products */

/* This thread's words of a line: two of each step. */
static void read_line(const unaligned_rows *x, val at, int line, val words[WORDS])
{
    tensor rWords = fragment(I32, compact(leaf(WORDS + 1)));
    copy(smem_view(add(at, x->words[line]), I32, compact(leaf(WORDS + 1))), rWords, 4);
    for (int i = 0; i < WORDS; i++)
        words[i] = permute_bytes(bitcast(U32, at(rWords, i)), bitcast(U32, at(rWords, i + 1)), x->selectors[line]);
}

/* acc += A * B of this warp's slice of a stage. */
static void multiply_slice(const void *of, val stage)
{
    const unaligned_kernel *k = of;
    val at = add(k->ring, mul(stage, imm(bytes_of_stage(k->cfg))));
    val words_A[LINES_MAX][WORDS], words_B[LINES_MAX][WORDS];
    for (int i = 0; i < k->A.count / LINE; i++)
        read_line(&k->A, at, i, words_A[i]);
    for (int i = 0; i < k->B.count / LINE; i++)
        read_line(&k->B, at, i, words_B[i]);
    UNROLL(step, STEPS) {
        tensor tB = fragment_A_words(&k->mma, k->B.count, STEP); // (WORDS,MMA_M,1): rows of B are those of D^T
        tensor tA = fragment_B_words(&k->mma, k->A.count, STEP); // (WORDS,MMA_N,1)
        for (int i = 0; i < k->B.count / LINE; i++)
            for (int w = 0; w < 2; w++)
                set(tB, coord(i % 2 + 2 * w, i / 2, 0), words_B[i][2 * step + w]);
        for (int i = 0; i < k->A.count / LINE; i++)
            for (int w = 0; w < 2; w++)
                set(tA, coord(w, i, 0), words_A[i][2 * step + w]);
        gemm(&k->mma, tB, tA, k->acc, yes());
    }
}

void gemm_unaligned(const void *config, int kernel)
{
    const gemm_unaligned_config *cfg = config;
    const int depth = cfg->warps * SLICE_BYTES / 2;
    (void)kernel;
    launch_bounds(cfg->warps * LANES, 0);
    const gemm_values all = params_of(gemm);
    val blocks_B = convert(U32, div_up(all.n, cfg->rows));
    val blocks_A = convert(U32, div_up(all.m, cfg->columns));
    val block_B = rem(cta_x(), blocks_B), rest = div(cta_x(), blocks_B);
    unaligned_kernel k = { .cfg = cfg, .p = gemm_product_of(cfg->epilogue, 0, &all, div(rest, blocks_A)) };
    k.tiles = convert(U32, div_up(all.k, depth));
    k.ring = smem_address(smem_alloc("ring", gemm_unaligned_smem(cfg), CHUNK));
    k.B = rows_of(cfg, 'b', &k.p, block_B, 0);
    k.A = rows_of(cfg, 'a', &k.p, rem(rest, blocks_A), cfg->rows * bytes_of_row(cfg));
    k.mma = make_tiled_mma(mma_sync_atom(cfg->epilogue.ab), 1, 1);
    k.acc = fragment_C(&k.mma, cfg->rows, cfg->columns);
    fill(k.acc, immf(0));
    prefetch_early(32, all.early, all.early_bytes, 2);
    grid_wait();
    launch_dependents();
    const gemm_warp_sums sums = { cfg->rows, cfg->columns, cfg->warps, k.ring, cfg->rows * cfg->columns,
                                  k.A.first, k.B.first };
    tensor rC = gemm_load_block_C(cfg->epilogue, &k.p, &sums); // (ELEMENTS)
    stage_loop(&(stage_work){ cfg->stages, load_tile, NULL, multiply_slice, &k }, k.tiles);
    cta_sync(); // all are done with the ring, where the sums go
    gemm_add_warps(cfg->epilogue, &k.p, &k.mma, k.acc, rC, &sums);
}
