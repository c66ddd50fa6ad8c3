/* exchange.c - lanes of a warp among themselves: shuffles, votes, reductions, matrices through ldmatrix and mma. */
#include <string.h>

#include "device/emulator/machine.h"
#include "device/emulator/matrix.h"

bool warp_is_whole(warp *w, const step *s)
{
    if (is_converged(w))
        return true;
    fault(w, s, first_lane(~(w->active | w->exited)), "divergence at a converged instruction",
          "%s wants all lanes of the warp, only 0x%08x are here", ir_op_text(s->inst->op), w->active);
    return false;
}

outcome run_warp_sync(warp *w, const step *s)
{
    if (!warp_is_whole(w, s))
        return FAULTED;
    warp_lanes_meet(w);
    return ADVANCE;
}

static int shuffle_source(ir_shuffle_kind how, int lane, int by, int width)
{
    int first = lane / width * width, source;
    switch (how) {
    case IR_SHFL_IDX:
        return first + by % width;
    case IR_SHFL_UP:
        source = lane - by;
        return source < first ? lane : source;
    case IR_SHFL_DOWN:
        source = lane + by;
        return source >= first + width ? lane : source;
    case IR_SHFL_XOR:
        source = lane ^ by;
        return source >= first + width ? lane : source;
    }
    return lane;
}

outcome run_shuffle(warp *w, const step *s)
{
    if (!warp_is_whole(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    result x, aside;
    memcpy(x.lanes, lanes_of(w, s->in[0]), LANES * sizeof(uint32_t));
    const lane_u32 *from = (const lane_u32 *)x.lanes, *by = lanes_of(w, s->in[1]);
    lane_u32 *d = (lane_u32 *)aside.lanes;
    for (int i = 0; i < LANES; i++)
        d[i] = from[shuffle_source((ir_shuffle_kind)s->inst->mode, i, (int)(by[i] & (LANES - 1)), s->inst->n)];
    lanes_blend(lanes_of(w, s->out[0]), aside.lanes, w->active, s->out[0].bytes);
    return ADVANCE;
}

outcome run_vote(warp *w, const step *s)
{
    if (!warp_is_whole(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    result aside;
    lane_mask yes = mask_of(lanes_of(w, s->in[0])) & w->active;
    ir_vote_kind how = (ir_vote_kind)s->inst->mode;
    void *d = result_begin(w, s->out[0], &aside);
    if (how == IR_VOTE_BALLOT)
        EACH_LANE(i)
            ((lane_u32 *)d)[i] = yes;
    else
        memset(d, how == IR_VOTE_ANY ? yes != 0 : yes == w->active, LANES);
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

outcome run_redux(warp *w, const step *s)
{
    if (!warp_is_whole(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    const lane_u32 *x = lanes_of(w, s->in[0]);
    int first = first_lane(w->active);
    uint32_t sum = x[first];
    EACH_ACTIVE(i, w->active & ~(1U << first))
        move_atomic(s->inst, &sum, x[i], 0);
    result aside;
    lane_u32 *d = result_begin(w, s->out[0], &aside);
    EACH_LANE(i)
        d[i] = sum;
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

outcome run_elect(warp *w, const step *s)
{
    if (!warp_is_whole(w, s))
        return FAULTED;
    result aside;
    lane_u8 *d = result_begin(w, s->out[0], &aside);
    int leader = first_lane(w->active);
    EACH_LANE(i)
        d[i] = i == leader;
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

/* ldmatrix, stmatrix */

enum { ROWS = 8, ROW_BYTES = 16, ROW_ELEMENTS = 8 };

/* Checks the rows that lanes 0 .. 8n-1 point to; pointers to them in `rows`. */
static bool matrix_rows(warp *w, const step *s, bool write, lane_u16 **rows)
{
    uint32_t offset[LANES];
    const lane_u32 *base = lanes_of(w, s->in[0]);
    access a = warp_access(w, s, 0, write);
    int count = ROWS * s->inst->n;
    if (!warp_is_whole(w, s))
        return false;
    for (int i = 0; i < count; i++) {
        a.lane = i;
        uint32_t address = base[i] + (uint32_t)s->inst->offset;
        if (!shared_find(w, s, i, IR_SHARED, address, ROW_BYTES, ROW_BYTES, &offset[i]) ||
            !shared_touch(w->cta, &a, offset[i], ROW_BYTES))
            return false;
        rows[i] = (lane_u16 *)(w->cta->shared + offset[i]);
    }
    lane_mask all = w->active;
    w->active &= count == LANES ? ALL_LANES : (1U << count) - 1;
    for (int i = count; i < LANES; i++)
        offset[i] = offset[0];
    count_shared(w, s, offset, ROW_BYTES, write);
    w->active = all;
    return true;
}

/* Halves 2(lane%4) and 2(lane%4)+1 of row lane/4; of the transposed matrix with `transpose`. */
static lane_u16 *element(lane_u16 **rows, int matrix, int lane, int half, bool transpose)
{
    int row = lane / 4, column = lane % 4 * 2 + half;
    return transpose ? &rows[matrix * ROWS + column][row] : &rows[matrix * ROWS + row][column];
}

outcome run_ldmatrix(warp *w, const step *s)
{
    lane_u16 *rows[LANES];
    if (!matrix_rows(w, s, false, rows))
        return FAULTED;
    for (int matrix = 0; matrix < s->inst->n; matrix++) {
        lane_u32 *d = lanes_of(w, s->out[matrix]);
        for (int i = 0; i < LANES; i++)
            d[i] = *element(rows, matrix, i, 0, s->inst->mode) | (uint32_t)*element(rows, matrix, i, 1, s->inst->mode)
                                                                     << 16;
    }
    return ADVANCE;
}

outcome run_stmatrix(warp *w, const step *s)
{
    lane_u16 *rows[LANES];
    if (!matrix_rows(w, s, true, rows))
        return FAULTED;
    for (int matrix = 0; matrix < s->inst->n; matrix++) {
        const lane_u32 *x = lanes_of(w, s->in[1 + matrix]);
        for (int i = 0; i < LANES; i++) {
            *element(rows, matrix, i, 0, s->inst->mode) = (uint16_t)x[i];
            *element(rows, matrix, i, 1, s->inst->mode) = (uint16_t)(x[i] >> 16);
        }
    }
    return ADVANCE;
}

/* mma m16n8k16 */

enum { MMA_M = 16, MMA_N = 8 };

static uint16_t half_of(const warp *w, const operand *registers, int lane, int i)
{
    return (uint16_t)(u32_of(w, registers[i / 2], lane) >> i % 2 * 16);
}

outcome run_mma(warp *w, const step *s)
{
    uint16_t a[MMA_M][MATRIX_HALVES], b[MMA_N][MATRIX_HALVES];
    float d[MMA_M][MMA_N];
    int row, column;
    if (!warp_is_whole(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 8; i++) {
            matrix_mma_a(lane, i, &row, &column);
            a[row][column] = half_of(w, s->in, lane, i);
        }
        for (int i = 0; i < 4; i++) {
            matrix_mma_b(lane, i, &row, &column);
            b[row][column] = half_of(w, s->in + 4, lane, i);
            matrix_mma_d(lane, i, &row, &column);
            d[row][column] = ((const lane_f32 *)lanes_of(w, s->in[6 + i]))[lane];
        }
    }
    matrix_types types = { (ckl_dtype)s->inst->from, (ckl_dtype)s->inst->from_b };
    int k = matrix_k(types);
    matrix_multiply(w->cluster->kernel->device->core, types, MMA_M, MMA_N, k, a[0], b[0], d[0], true);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 4; i++) {
            matrix_mma_d(lane, i, &row, &column);
            ((lane_f32 *)lanes_of(w, s->out[i]))[lane] = d[row][column];
        }
    w->cluster->count[COUNT_TENSOR_FLOPS] += 2 * MMA_M * MMA_N * k;
    return ADVANCE;
}
