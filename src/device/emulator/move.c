/* move.c - elements between memory and registers, and the read-modify-write of atomics. */
#include <string.h>

#include "device/emulator/machine.h"

/* Element e of every lane's vector. Inactive lanes carry the address of an active one, so all may be read. */
#define GATHER(name, R, M)                                       \
    static void name(void *out, const uintptr_t *address, int e) \
    {                                                            \
        R *d = out;                                              \
        for (int i = 0; i < LANES; i++)                          \
            d[i] = (R)((const M *)address[i])[e];                \
    }
GATHER(gather_i8, lane_i16, int8_t)
GATHER(gather_u8, lane_u16, lane_u8)
GATHER(gather_16, lane_u16, lane_u16)
GATHER(gather_32, lane_u32, lane_u32)
GATHER(gather_64, lane_u64, lane_u64)

#define SCATTER(name, R, M)                                                           \
    static void name(const void *in, const uintptr_t *address, int e, lane_mask mask) \
    {                                                                                 \
        const R *x = in;                                                              \
        EACH_ACTIVE(i, mask)                                                          \
            ((M *)address[i])[e] = (M)x[i];                                           \
    }
SCATTER(scatter_8, lane_u16, lane_u8)
SCATTER(scatter_16, lane_u16, lane_u16)
SCATTER(scatter_32, lane_u32, lane_u32)
SCATTER(scatter_64, lane_u64, lane_u64)

typedef void gather(void *out, const uintptr_t *address, int e);
typedef void scatter(const void *in, const uintptr_t *address, int e, lane_mask mask);
static gather *const gathers[9] = { [1] = gather_u8, [2] = gather_16, [4] = gather_32, [8] = gather_64 };
static scatter *const scatters[9] = { [1] = scatter_8, [2] = scatter_16, [4] = scatter_32, [8] = scatter_64 };

/* All lanes side by side, the common case: one copy. Inactive lanes, who have the address of an active one, are not. */
static bool is_dense(const uintptr_t *address, int bytes)
{
    uintptr_t wrong = 0;
    EACH_LANE(i)
        wrong |= address[i] - address[0] - (uintptr_t)(bytes * i);
    return wrong == 0;
}

void move_load(warp *w, const step *s, const uintptr_t *address)
{
    int bytes = ir_memory_bytes(s->inst->type);
    gather *get = s->inst->type == CKL_I8 ? gather_i8 : gathers[bytes];
    if (s->inst->n == 1 && bytes == s->out[0].bytes && is_dense(address, bytes)) {
        memcpy(lanes_of(w, s->out[0]), (const void *)address[0], (size_t)bytes * LANES);
        return;
    }
    for (int e = 0; e < s->inst->n; e++) {
        result aside;
        get(result_begin(w, s->out[e], &aside), address, e);
        result_end(w, s->out[e], &aside);
    }
}

void move_store(warp *w, const step *s, const uintptr_t *address)
{
    int bytes = ir_memory_bytes(s->inst->type);
    if (s->inst->n == 1 && bytes == s->in[1].bytes && is_dense(address, bytes)) {
        memcpy((void *)address[0], lanes_of(w, s->in[1]), (size_t)bytes * LANES);
        return;
    }
    for (int e = 0; e < s->inst->n; e++)
        scatters[bytes](lanes_of(w, s->in[1 + e]), address, e, w->active);
}

/* Atomics */

static uint64_t bits_of(const void *x, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, x, bytes);
    return bits;
}

#define REDUCTION(name, T, add)                                                                       \
    static uint64_t name(ir_reduction op, uint64_t old, uint64_t with)                                \
    {                                                                                                 \
        T x, y;                                                                                       \
        memcpy(&x, &old, sizeof x);                                                                   \
        memcpy(&y, &with, sizeof y);                                                                  \
        const T z = op == IR_RED_ADD ? (T)(add) : (op == IR_RED_MIN) == (x < y) ? x : y; /* or MAX */ \
        return bits_of(&z, sizeof z);                                                                 \
    }
REDUCTION(reduce_i32, int32_t, (uint32_t)x + (uint32_t)y)
REDUCTION(reduce_u32, uint32_t, x + y)
REDUCTION(reduce_i64, int64_t, (uint64_t)x + (uint64_t)y)
REDUCTION(reduce_u64, uint64_t, x + y)
REDUCTION(reduce_f32, float, x + y)

typedef uint64_t reduction(ir_reduction op, uint64_t old, uint64_t x);
static reduction *const reductions[IR_TYPE_COUNT] = {
    [CKL_I32] = reduce_i32, [IR_U32] = reduce_u32,  [CKL_I64] = reduce_i64,
    [IR_U64] = reduce_u64,  [CKL_F32] = reduce_f32,
};

static uint64_t combine(const ir_inst *inst, uint64_t old, uint64_t x)
{
    switch ((ir_reduction)inst->mode) {
    case IR_RED_EXCH:
        return x;
    case IR_RED_AND:
        return old & x;
    case IR_RED_OR:
        return old | x;
    default:
        return reductions[inst->type]((ir_reduction)inst->mode, old, x);
    }
}

#define EXCHANGE(T)                                                                                        \
    do {                                                                                                   \
        T *place = at, old = __atomic_load_n(place, __ATOMIC_RELAXED), new;                                \
        do                                                                                                 \
            new = (T)combine(inst, old, x);                                                                \
        while (!__atomic_compare_exchange_n(place, &old, new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)); \
        return old;                                                                                        \
    } while (0)

uint64_t move_atomic(const ir_inst *inst, void *at, uint64_t x)
{
    if (ir_memory_bytes(inst->type) == 4)
        EXCHANGE(lane_u32);
    EXCHANGE(lane_u64);
}

bool move_atomics(warp *w, const step *s, const uintptr_t *address)
{
    size_t bytes = (size_t)ir_memory_bytes(s->inst->type);
    result old;
    bool changed = false;
    const unsigned char *x = lanes_of(w, s->in[1]);
    EACH_ACTIVE(i, w->active) {
        size_t at = (size_t)i * bytes;
        uint64_t before = move_atomic(s->inst, (void *)address[i], bits_of(x + at, bytes));
        memcpy(old.lanes + at, &before, bytes);
        changed = changed || memcmp((const void *)address[i], &before, bytes) != 0;
    }
    if (s->inst->out_count)
        lanes_blend(lanes_of(w, s->out[0]), old.lanes, w->active, s->out[0].bytes);
    return changed;
}
