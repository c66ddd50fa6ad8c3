/* exchange.c - lanes of a warp among themselves: shuffles, votes, reductions, matrices through ldmatrix and mma. */
#include <pthread.h>
#include <string.h>

#include "device/emulator/machine.h"
#include "device/emulator/matrix.h"

bool warp_converges(warp *w, const step *s)
{
    if (is_converged(w))
        return true;
    return fault(w, s, first_lane(~(w->active | w->exited)), "divergence at a converged instruction",
                 "%s wants all lanes of the warp, only 0x%08x are here", ir_op_text(s->inst->op), w->active);
}

outcome run_warp_sync(warp *w, const step *s)
{
    if (!warp_converges(w, s))
        return FAULTED;
    warp_lanes_meet(w);
    return ADVANCE;
}

static int shuffle_source(ir_shuffle_kind how, int lane, int by)
{
    switch (how) {
    case IR_SHFL_UP:
        return lane < by ? lane : lane - by;
    case IR_SHFL_DOWN:
        return lane + by < LANES ? lane + by : lane;
    case IR_SHFL_XOR:
        return lane ^ by;
    default:
        return by;
    }
}

outcome run_shuffle(warp *w, const step *s)
{
    if (!warp_converges(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    result x, aside;
    memcpy(x.lanes, lanes_of(w, s->in[0]), LANES * sizeof(uint32_t));
    const lane_u32 *from = (const lane_u32 *)x.lanes, *by = lanes_of(w, s->in[1]);
    lane_u32 *d = (lane_u32 *)aside.lanes;
    for (int i = 0; i < LANES; i++)
        d[i] = from[shuffle_source((ir_shuffle_kind)s->inst->mode, i, (int)(by[i] & (LANES - 1)))];
    lanes_blend(lanes_of(w, s->out[0]), aside.lanes, w->active, s->out[0].bytes);
    return ADVANCE;
}

outcome run_vote(warp *w, const step *s)
{
    if (!warp_converges(w, s))
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
    if (!warp_converges(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    const lane_u32 *x = lanes_of(w, s->in[0]);
    int first = first_lane(w->active);
    uint32_t sum = x[first];
    EACH_ACTIVE(i, w->active & ~(1U << first))
        move_atomic(s->inst, &sum, x[i]);
    result aside;
    lane_u32 *d = result_begin(w, s->out[0], &aside);
    EACH_LANE(i)
        d[i] = sum;
    result_end(w, s->out[0], &aside);
    return ADVANCE;
}

outcome run_elect(warp *w, const step *s)
{
    if (!warp_converges(w, s))
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
    if (!warp_converges(w, s))
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

enum { MMA_M = 16, MMA_N = 8, A_REGISTERS = 4, B_REGISTERS = 2, D_REGISTERS = 4 };

/* Which 32 bits of the matrices the lanes' registers hold, asked for once; halves come in pairs. */
static struct {
    uint8_t a[A_REGISTERS][LANES], b[B_REGISTERS][LANES], d[D_REGISTERS][LANES];
} place;

static void fill_places(void)
{
    int row, column;
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < A_REGISTERS; i++) {
            matrix_mma_a(lane, 2 * i, &row, &column);
            place.a[i][lane] = (uint8_t)((row * MATRIX_HALVES + column) / 2);
        }
        for (int i = 0; i < B_REGISTERS; i++) {
            matrix_mma_b(lane, 2 * i, &row, &column);
            place.b[i][lane] = (uint8_t)((row * MATRIX_HALVES + column) / 2);
        }
        for (int i = 0; i < D_REGISTERS; i++) {
            matrix_mma_d(lane, i, &row, &column);
            place.d[i][lane] = (uint8_t)(row * MMA_N + column);
        }
    }
}

/* To the places of a matrix from the registers of all lanes. */
static void collect(const warp *w, const operand *registers, int count, uint8_t (*at)[LANES], uint32_t *matrix)
{
    for (int i = 0; i < count; i++) {
        const lane_u32 *x = lanes_of(w, registers[i]);
        for (int lane = 0; lane < LANES; lane++)
            matrix[at[i][lane]] = x[lane];
    }
}

outcome run_mma(warp *w, const step *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint32_t a[MMA_M * MATRIX_HALVES / 2], b[MMA_N * MATRIX_HALVES / 2], d[MMA_M * MMA_N];
    if (!warp_converges(w, s))
        return FAULTED;
    warp_lanes_exchange(w);
    pthread_once(&once, fill_places);
    collect(w, s->in, A_REGISTERS, place.a, a);
    collect(w, s->in + A_REGISTERS, B_REGISTERS, place.b, b);
    collect(w, s->in + A_REGISTERS + B_REGISTERS, D_REGISTERS, place.d, d);
    matrix_types types = { (ckl_dtype)s->inst->from, (ckl_dtype)s->inst->from_b };
    int k = matrix_k(types);
    matrix_multiply(&(matrix_product){ w->cluster->kernel->device->core, types, MMA_M, MMA_N, k }, a, b, d, true);
    for (int i = 0; i < D_REGISTERS; i++) {
        lane_u32 *x = lanes_of(w, s->out[i]);
        for (int lane = 0; lane < LANES; lane++)
            x[lane] = d[place.d[i][lane]];
    }
    w->cluster->count[COUNT_TENSOR_FLOPS] += 2 * MMA_M * MMA_N * k;
    return ADVANCE;
}
