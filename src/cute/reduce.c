/* reduce.c - butterflies in a warp, then one slot of shared memory per warp, then one per CTA of the cluster. */
#include "cute/reduce.h"

enum { SLOT_BYTES = 8 * (REDUCE_VALUES_MAX + 1), LANES = 32 }; // 16 slots side by side begin in 16 banks

static val element(tensor rX, int i)
{
    return ir_convert(CKL_F32, rX.regs[index_at(rX.layout, i)]);
}

/* Of `count` elements from `first` on; rY without registers: the elements of rX alone. */
static val pairwise_sum(tensor rX, tensor rY, int first, int count)
{
    if (count == 1 && !rY.regs)
        return element(rX, first);
    if (count == 1)
        return ir_binary(IR_MUL, element(rX, first), element(rY, first));
    val left = pairwise_sum(rX, rY, first, count / 2);
    return ir_binary(IR_ADD, left, pairwise_sum(rX, rY, first + count / 2, count - count / 2));
}

val fragment_sum(tensor rX)
{
    return pairwise_sum(rX, (tensor){ 0 }, 0, (int)static_size(rX.layout));
}

val fragment_dot(tensor rX, tensor rY)
{
    return pairwise_sum(rX, rY, 0, (int)static_size(rX.layout));
}

static val shuffle_xor(val x, int mask)
{
    val lane_mask = ir_u32(mask);
    if (ir_type_bytes(x.type) == 4)
        return ir_shuffle(IR_SHFL_XOR, x, lane_mask);
    val lo, hi;
    ir_unpack(ir_bitcast(IR_U64, x), IR_U32, &lo, &hi);
    val both = ir_pack(IR_U64, ir_shuffle(IR_SHFL_XOR, lo, lane_mask), ir_shuffle(IR_SHFL_XOR, hi, lane_mask));
    return ir_bitcast(x.type, both);
}

/* Does combining a with b give the same bits as b with a? Lanes then need not tell which is the lower one. */
static bool is_symmetric(const reduction *r)
{
    return r->combine == combine_sum || r->combine == combine_max || r->combine == combine_min;
}

/* values = lower lane's values combined with the upper lane's, for every pair of lanes that differ in one bit. */
static void exchange(const reduction *r, int mask, val *values)
{
    val lane = ir_sreg(IR_LANE), is_upper = ir_compare(IR_NE, ir_binary(IR_AND, lane, ir_u32(mask)), ir_u32(0));
    val lower[REDUCE_VALUES_MAX], upper[REDUCE_VALUES_MAX];
    for (int i = 0; i < r->count; i++) {
        val other = shuffle_xor(values[i], mask);
        lower[i] = is_symmetric(r) ? values[i] : cute_variable(values[i].type, ir_select(is_upper, other, values[i]));
        upper[i] = is_symmetric(r) ? other : ir_select(is_upper, values[i], other);
    }
    r->combine(lower, upper, r->user);
    for (int i = 0; i < r->count && !is_symmetric(r); i++)
        ir_assign(values[i], lower[i]);
}

void lanes_reduce(const reduction *r, int low, int high, val *values)
{
    if (r->over_lanes && high > low) {
        r->over_lanes(values, low, high, r->user);
        return;
    }
    for (int mask = low; mask < high && !ir_failed(); mask *= 2)
        exchange(r, mask, values);
}

void warp_reduce(const reduction *r, int width, val *values)
{
    lanes_reduce(r, 1, width, values);
}

void warp_reduce_across(const reduction *r, int inner, val *values)
{
    lanes_reduce(r, inner, LANES, values);
}

static val slot_address(int64_t scratch, val slot)
{
    return ir_binary(IR_ADD, ir_smem_address(scratch), ir_binary(IR_MUL, slot, ir_u32(SLOT_BYTES)));
}

static void write_slot(const reduction *r, ir_space space, val address, const val *values)
{
    for (int i = 0; i < r->count; i++)
        ir_store(space, IR_CACHE_DEFAULT, values[i].type, 1, address, 8 * i, &values[i]);
}

static void read_slot(const reduction *r, val address, val *values)
{
    for (int i = 0; i < r->count; i++)
        ir_load(IR_SHARED, IR_CACHE_DEFAULT, values[i].type, 1, address, 8 * i, &values[i]);
}

val warp_scan(val x)
{
    for (int distance = 1; distance < LANES; distance *= 2) {
        val lane = ir_sreg(IR_LANE), other = ir_shuffle(IR_SHFL_UP, x, ir_u32(distance));
        val first = ir_compare(IR_LT, lane, ir_u32(distance));
        x = ir_binary(IR_ADD, x, ir_select(first, ir_int(x.type, 0), other));
    }
    return x;
}

int64_t cta_reduce_bytes(int threads)
{
    return (int64_t)SLOT_BYTES * max_i64(threads / 32, 16); // a cluster has at most 16 CTAs
}

/* Every warp reduces its lanes, and tells all others at a barrier. False: there are no others, or the call is wrong. */
static bool share_warps(const reduction *r, int threads, val barrier, int64_t scratch, val *values)
{
    int warps = threads / 32;
    if (threads % 32 || r->count > REDUCE_VALUES_MAX)
        ir_fail("cta_reduce: %d threads are not whole warps, or %d values are too many", threads, r->count);
    if (ir_failed())
        return false;
    warp_reduce(r, 32, values);
    if (warps == 1)
        return false;
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_LANE), ir_u32(0)));
    write_slot(r, IR_SHARED, slot_address(scratch, ir_sreg(IR_WARP)), values);
    ir_end_if();
    ir_bar_sync(barrier, threads);
    return true;
}

/*
 * As many lanes as the largest power of two read one warp's values each, from slot `first` on; some combine them with
 * those of another.
 */
static void reduce_warps(const reduction *r, int warps, val first, int64_t scratch, val *values)
{
    const int width = (int)power_of_two_floor(warps);
    val reader = ir_binary(IR_REM, ir_sreg(IR_LANE), ir_u32(width)), other[REDUCE_VALUES_MAX];
    val slot = ir_binary(IR_ADD, reader, first);
    read_slot(r, slot_address(scratch, slot), values);
    if (width < warps) {
        ir_if(ir_compare(IR_LT, reader, ir_u32(warps - width)));
        for (int i = 0; i < r->count; i++)
            other[i] = ir_reg(values[i].type);
        read_slot(r, slot_address(scratch, ir_binary(IR_ADD, slot, ir_u32(width))), other);
        r->combine(values, other, r->user);
        ir_end_if();
    }
    warp_reduce(r, width, values);
}

/* first: the slot of the first of these warps. */
static void reduce_at(const reduction *r, int threads, val barrier, val first, int64_t scratch, val *values)
{
    if (!share_warps(r, threads, barrier, scratch, values))
        return;
    reduce_warps(r, threads / 32, first, scratch, values);
    ir_bar_sync(barrier, threads); // the slots may be written again
}

void cta_reduce(const reduction *r, int threads, int64_t scratch, val *values)
{
    reduce_at(r, threads, ir_u32(0), ir_u32(0), scratch, values);
}

void cta_reduce_groups(const reduction *r, int threads, int barrier, int64_t scratch, val *values)
{
    val warps = ir_u32(threads / 32), group = ir_binary(IR_DIV, ir_sreg(IR_WARP), warps);
    reduce_at(r, threads, ir_binary(IR_ADD, group, ir_u32(barrier)), ir_binary(IR_MUL, group, warps), scratch, values);
}

void cta_reduce_to_warp(const reduction *r, int threads, int64_t scratch, val *values)
{
    if (!share_warps(r, threads, ir_u32(0), scratch, values))
        return;
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_WARP), ir_u32(0)));
    reduce_warps(r, threads / 32, ir_u32(0), scratch, values);
    ir_end_if();
}

void cluster_meet(int cluster)
{
    if (cluster > 1)
        cute_cluster_sync();
}

void cluster_reduce(const reduction *r, int cluster, int64_t scratch, val *values)
{
    if (cluster == 1 || ir_failed())
        return;
    val mine = slot_address(scratch, ir_sreg(IR_CLUSTER_RANK)), tid = ir_sreg(IR_TID_X);
    ir_if(ir_compare(IR_LT, tid, ir_u32(cluster))); // thread t writes to CTA t
    write_slot(r, IR_SHARED_CLUSTER, ir_mapa(mine, tid), values);
    ir_end_if();
    cute_cluster_sync();
    read_slot(r, slot_address(scratch, ir_u32(0)), values);
    for (int c = 1; c < cluster; c++) {
        val other[REDUCE_VALUES_MAX];
        for (int i = 0; i < r->count; i++)
            other[i] = ir_reg(values[i].type);
        read_slot(r, slot_address(scratch, ir_u32(c)), other);
        r->combine(values, other, r->user);
    }
    cute_cluster_sync(); // the slots may be written again, and no CTA leaves while a peer still writes to it
}

void combine_sum(val *into, const val *other, void *user)
{
    int count = user ? *(const int *)user : 1;
    for (int i = 0; i < count; i++)
        ir_assign(into[i], ir_binary(IR_ADD, into[i], other[i]));
}

static void combine_extreme(ir_op op, val *into, const val *other)
{
    ir_assign(into[0], (into[0].type == CKL_F32 ? ir_binary_nan : ir_binary)(op, into[0], other[0]));
}

void combine_max(val *into, const val *other, void *user)
{
    (void)user;
    combine_extreme(IR_MAX, into, other);
}

void combine_min(val *into, const val *other, void *user)
{
    (void)user;
    combine_extreme(IR_MIN, into, other);
}

reduction reduce_sums(int count)
{
    static const int counts[REDUCE_VALUES_MAX + 1] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
    return (reduction){ count, combine_sum, (void *)(uintptr_t)&counts[count], NULL };
}
