/*
 * gemm_weights_copies.c - weights, A and scales by cp.async, for rows that start anywhere, of groups or of a list:
 * every lane copies 16 bytes, or pieces of them, of the rows that it has addresses of.
 */
#include "operators/gemm/gemm_weights.h"

enum {
    ROWS_OF_COPY = LANES * SLOT / ROW_A, // of A, by all lanes of a warp
    PAIR = 4,                            // bytes of a copy of scales
};

/* Copies of the scales of one block. */
static int copies_of_scales(const gemm_weights_config *c)
{
    return (c->rows / 2 + 1 + LANES - 1) / LANES;
}

static int bytes_of_scales(const gemm_weights_config *c)
{
    return copies_of_scales(c) * LANES * PAIR;
}

int gemm_weights_copied_bytes(const gemm_weights_config *c)
{
    return gemm_weights_blocks(c) * bytes_of_scales(c);
}

/* Where 16 bytes of a row of A lie in a stage, such that lanes read different banks. */
static val place_in_A(const weights_kernel *k, val row, val vector)
{
    val turned = bit_xor(bit_xor(vector, shift_right(vector, imm(3))), mul(bit_and(row, imm(1)), imm(3)));
    return add(add(mul(row, imm(ROW_A)), mul(turned, imm(SLOT))), imm(gemm_weights_bytes_B(k->cfg)));
}

/* What cp_async() copies of a slot, by elements of a type, `valid` bytes of them; other lanes wait for its copies. */
static void copy_narrow(val to, val from, ckl_dtype type, val valid)
{
    const int bytes = (int)ckl_dtype_bytes(type), count = SLOT / bytes;
    tensor rZeros = fragment(type, compact(leaf(count)));
    tensor sSlot = smem_view(to, type, compact(leaf(count)));
    fill(rZeros, convert(type, imm(0)));
    copy(rZeros, sSlot, SLOT);
    LOOP(i, convert(U32, div(valid, imm(bytes)))) // unrolled, the loads of all slots would spill
        set(sSlot, i, at(gmem_tensor(add(from, convert(U64, mul(i, imm(bytes)))), type, compact(leaf(1))), 0));
}

static val bytes_left(val length, val start)
{
    return convert(I32, max(min(sub(length, start), imm64(SLOT)), imm64(0)));
}

/* Copies a slot in pieces, where rows are no whole slots. */
static void copy_pieces(const weights_kernel *k, val to, val from, ckl_dtype type, val valid)
{
    const int piece = k->cfg->piece;
    if (piece == 1) {
        copy_narrow(to, from, type, valid);
        return;
    }
    for (int i = 0; i < SLOT; i += piece) {
        val bytes = max(min(sub(valid, imm(i)), imm(piece)), imm(0));
        cp_async(add(to, imm(i)), add(from, imm_as(U64, i)), piece, convert(U32, bytes));
    }
}

/*
 * Copies rows of B, a K tile's vectors by neighbouring lanes: four rows of bytes at once, or eight of 4-bit integers.
 * Beyond the end of K any weights do, as A is zero there.
 */
static void load_B(const weights_kernel *k, val tile, val at)
{
    val length = k->nibbles ? div(k->p.k, imm(2)) : k->p.k, to = add(at, k->to_B);
    val vector = mul(thread_at(lane(), 0, 4 * k->slots_B, 8 / k->slots_B), imm(SLOT));
    val start = add(mul(convert(I64, tile), imm(COPY * k->slots_B)), convert(I64, vector));
    const bool whole = k->cfg->piece == SLOT;
    val offset = convert(U64, whole ? min(start, sub(length, imm(SLOT))) : start);
    for (int i = 0; i < k->lines_B; i++)
        for (int s = 0; s < k->slots_B; s++) {
            val place = add(to, imm((i * k->slots_B * LANES + s * LANES / 2) * SLOT)),
                from = add(k->from_B[i][s], offset);
            if (whole)
                cp_async(place, from, SLOT, imm_as(U32, SLOT));
            else
                copy_pieces(k, place, from, CKL_U8, bytes_left(length, start));
        }
}

/* Copies rows of A, by all lanes of the warp; zeros beyond the ends. */
static void load_A(const weights_kernel *k, val tile, val at)
{
    val vector = add(mul(tile, imm(ROW_A / SLOT)), thread_at(lane(), 0, ROW_A / SLOT, ROWS_OF_COPY));
    val from = add(k->from_A, convert(U64, mul(convert(I64, tile), imm(ROW_A)))), to = add(at, k->to_A);
    for (int j = 0; j < k->cfg->columns / ROWS_OF_COPY; j++) {
        val source = k->cfg->epilogue.gather ? add(from, k->listed_A[j]) : from;
        if (k->cfg->piece < SLOT) {
            val left = bytes_left(mul(k->p.k, imm(2)), convert(I64, mul(vector, imm(SLOT))));
            copy_pieces(k, add(to, imm(j * LANES * SLOT)), source, k->cfg->epilogue.ab,
                        select(ne(k->limits_A[j], imm_as(U32, 0)), left, imm_as(I32, 0)));
        } else {
            val bytes = select(lt(vector, k->limits_A[j]), imm_as(U32, SLOT), imm_as(U32, 0));
            cp_async(add(to, imm(j * LANES * SLOT)), source, SLOT, bytes);
        }
        if (k->cfg->epilogue.gather)
            continue;
        from = add(from, convert(U64, mul(k->p.lda, imm(2 * ROWS_OF_COPY))));
    }
}

static val place_of_scales(const weights_kernel *k, val at, int block)
{
    const int before = gemm_weights_bytes_B(k->cfg) + k->cfg->columns * ROW_A;
    return add(at, imm(before + block * bytes_of_scales(k->cfg)));
}

/* Copies scales by whole pairs, from the one that holds the first; none for blocks beyond the last. */
static void load_scales(const weights_kernel *k, val tile, int block, val at)
{
    val end = add(k->p.scale_b, convert(U64, mul(mul(convert(I64, k->blocks), k->p.n), imm(2))));
    val lane_offset = mul(lane(), imm(PAIR));
    val first = bit_and(gemm_weights_scales(k, tile, block), imm_as(U64, ~(int64_t)(PAIR - 1)));
    val left = convert(I32, min(sub(convert(I64, end), convert(I64, first)), imm64(bytes_of_scales(k->cfg)))); // bytes
    for (int i = 0; i < copies_of_scales(k->cfg); i++) {
        val offset = add(lane_offset, imm(i * LANES * PAIR));
        val bytes = max(min(sub(left, convert(I32, offset)), imm(PAIR)), imm(0));
        cp_async(add(place_of_scales(k, at, block), offset), add(first, convert(U64, offset)), PAIR,
                 convert(U32, bytes));
    }
}

void gemm_weights_load_copies(const weights_kernel *k, val tile, val stage)
{
    IF(lt(tile, k->tiles)) {
        val at = gemm_weights_stage(k, stage);
        load_B(k, tile, at);
        load_A(k, tile, at);
        for (int block = 0; block < gemm_weights_blocks(k->cfg); block++)
            load_scales(k, tile, block, at);
    }
    cp_async_commit();
}

val gemm_weights_copied_scales(const weights_kernel *k, val tile, val stage, int block)
{
    val into_pair = bit_and(convert(U32, gemm_weights_scales(k, tile, block)), imm_as(U32, PAIR - 1));
    return add(place_of_scales(k, gemm_weights_stage(k, stage), block), into_pair);
}

/* The vectors of B that this lane copies. */
static void place_copies_of_B(weights_kernel *k)
{
    const gemm_values *p = &k->p;
    const int lanes = 4 * k->slots_B; // of a row
    val row = thread_at(lane(), 1, lanes, LANES / lanes), piece = thread_at(lane(), 0, lanes, LANES / lanes);
    val first = add(k->block_B, convert(I64, row));
    for (int i = 0; i < k->lines_B; i++)
        for (int s = 0; s < k->slots_B; s++) {
            val nearest = min(add(first, imm(8 * i + 4 * s)), sub(p->n, imm64(1))); // beyond B the last row again
            k->from_B[i][s] = add(p->b, convert(U64, mul(nearest, p->ldb)));
        }
    k->to_B = add(add(mul(div(piece, imm(4)), imm(LANES * SLOT)), mul(row, imm(4 * SLOT))),
                  mul(rem(piece, imm(4)), imm(SLOT)));
}

/* Those of A. */
static void place_copies_of_A(weights_kernel *k, val row, val vectors)
{
    const gemm_values *p = &k->p;
    const bool gather = k->cfg->epilogue.gather;
    const int copies = k->cfg->columns / ROWS_OF_COPY;
    val first = add(k->block_A, convert(I64, row));
    val start = mul(thread_at(lane(), 0, ROW_A / SLOT, ROWS_OF_COPY), imm(SLOT));
    val rows_before = gather ? imm64(0) : first;
    k->from_A = add(p->a, convert(U64, add(mul(mul(rows_before, p->lda), imm(2)), convert(I64, start))));
    for (int j = 0; gather && j < copies; j++) {
        val listed = min(add(first, imm(ROWS_OF_COPY * j)), sub(p->m, imm64(1)));
        k->listed_A[j] = convert(U64, mul(mul(gemm_row_of_A(k->cfg->epilogue, p, listed), p->lda), imm(2)));
    }
    k->to_A = place_in_A(k, row, thread_at(lane(), 0, ROW_A / SLOT, ROWS_OF_COPY));
    for (int j = 0; j < copies; j++)
        k->limits_A[j] = select(lt(add(first, imm(ROWS_OF_COPY * j)), p->m), vectors, imm_as(U32, 0));
}

void gemm_weights_prepare_copies(weights_kernel *k)
{
    val row_A = thread_at(lane(), 1, ROW_A / SLOT, ROWS_OF_COPY);
    val vectors = k->cfg->piece < SLOT ? imm_as(U32, 1) : convert(U32, div(k->p.k, imm(SLOT / 2))); // 1: the row exists
    place_copies_of_B(k);
    place_copies_of_A(k, row_A, vectors);
    for (int s = 0; s < SLOTS_A; s++)
        k->lane_A[s] = place_in_A(k, k->lane_line, gemm_weights_vector_of_A(k, s));
}
