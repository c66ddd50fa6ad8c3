/* instructions.c - memory, TMA, barriers, warps and matrices: operands in the order that ir.h states. */
#include "ir/build_core.h"

/* Memory */

static val address_of(ir_space space, val address)
{
    return ir_coerce(space == IR_GLOBAL ? IR_U64 : IR_U32, address);
}

void ir_load(ir_space space, ir_cache cache, ir_type type, int n, val address, int64_t offset, val *out)
{
    address = address_of(space, address);
    ir_emit((ir_inst){ .op = IR_LD, .type = type, .space = space, .cache = cache, .n = n, .offset = offset }, n, out, 1,
            &address);
}

void ir_store(ir_space space, ir_cache cache, ir_type type, int n, val address, int64_t offset, const val *values)
{
    val in[1 + 16] = { address_of(space, address) };
    for (int i = 0; i < n; i++)
        in[1 + i] = values[i];
    build_effect((ir_inst){ .op = IR_ST, .type = type, .space = space, .cache = cache, .n = n, .offset = offset },
                 1 + n, in);
}

val ir_load_strong(ir_order order, ir_scope scope, ir_type type, val address, int64_t offset)
{
    address = address_of(IR_GLOBAL, address);
    ir_inst inst = { .op = IR_LD, .type = type, .order = order, .scope = scope, .n = 1, .offset = offset };
    return build_value(inst, type, 1, &address);
}

void ir_store_strong(ir_order order, ir_scope scope, ir_type type, val address, int64_t offset, val x)
{
    val in[] = { address_of(IR_GLOBAL, address), x };
    build_effect((ir_inst){ .op = IR_ST, .type = type, .order = order, .scope = scope, .n = 1, .offset = offset }, 2,
                 in);
}

val ir_atomic(ir_order order, ir_scope scope, ir_reduction op, val address, int64_t offset, val x)
{
    val in[] = { address_of(IR_GLOBAL, address), x };
    ir_inst inst = { .op = IR_ATOM, .order = order, .scope = scope, .mode = (int)op, .type = x.type, .offset = offset };
    return build_value(inst, x.type, 2, in);
}

void ir_reduce(ir_scope scope, ir_reduction op, val address, int64_t offset, val x)
{
    val in[] = { address_of(IR_GLOBAL, address), x };
    build_effect((ir_inst){ .op = IR_RED, .type = x.type, .scope = scope, .mode = (int)op, .offset = offset }, 2, in);
}

void ir_fence(ir_scope scope)
{
    build_effect((ir_inst){ .op = IR_FENCE, .scope = scope }, 0, NULL);
}

void ir_store_async(val address, int64_t offset, val mbarrier, val x)
{
    val in[] = { address, mbarrier, x };
    build_effect((ir_inst){ .op = IR_ST_ASYNC, .type = x.type, .offset = offset }, 3, in);
}

static void cp_async(val shared, int64_t offset, val global, int bytes, val valid_bytes, int mode)
{
    val in[] = { address_of(IR_SHARED, shared), address_of(IR_GLOBAL, global), ir_coerce(IR_U32, valid_bytes) };
    build_effect((ir_inst){ .op = IR_CP_ASYNC, .n = bytes, .mode = mode, .offset = offset }, 3, in);
}

void ir_cp_async(val shared, int64_t offset, val global, int bytes, val valid_bytes)
{
    cp_async(shared, offset, global, bytes, valid_bytes, 0);
}

void ir_cp_async_alone(val shared, int64_t offset, val global, int bytes, val valid_bytes)
{
    cp_async(shared, offset, global, bytes, valid_bytes, 1);
}

/* TMA and bulk copies */

void ir_tma_load(val shared, int64_t offset, val map, val mbarrier, val mask, int n, const val *coordinates)
{
    val in[4 + 5] = { address_of(IR_SHARED, shared), map, address_of(IR_SHARED, mbarrier), ir_coerce(IR_U32, mask) };
    for (int i = 0; i < n; i++)
        in[4 + i] = ir_coerce(CKL_I32, coordinates[i]);
    build_effect((ir_inst){ .op = IR_TMA_LOAD, .n = n, .offset = offset }, 4 + n, in);
}

void ir_tma_load_im2col(val shared, int64_t offset, val map, val mbarrier, val mask, int n, const val *coordinates,
                        const val *offsets)
{
    const int between = n > 2 ? n - 2 : 0;
    val in[4 + 3 + 5] = { address_of(IR_SHARED, shared), map, address_of(IR_SHARED, mbarrier),
                          ir_coerce(IR_U32, mask) };
    for (int i = 0; i < between; i++)
        in[4 + i] = ir_coerce(IR_U32, offsets[i]);
    for (int i = 0; i < n; i++)
        in[4 + between + i] = ir_coerce(CKL_I32, coordinates[i]);
    build_effect((ir_inst){ .op = IR_TMA_LOAD, .n = n, .offset = offset, .mode = 1 }, 4 + between + n, in);
}

void ir_tma_store(ir_tma_store_kind how, val map, val shared, int64_t offset, int n, const val *coordinates)
{
    val in[2 + 5] = { map, address_of(IR_SHARED, shared) };
    for (int i = 0; i < n; i++)
        in[2 + i] = ir_coerce(CKL_I32, coordinates[i]);
    build_effect((ir_inst){ .op = IR_TMA_STORE, .n = n, .offset = offset, .mode = (int)how }, 2 + n, in);
}

void ir_tma_prefetch(val map)
{
    build_effect((ir_inst){ .op = IR_TMA_PREFETCH }, 1, &map);
}

void ir_bulk_load(val shared, int64_t offset, val global, val bytes, val mbarrier)
{
    val in[] = { address_of(IR_SHARED, shared), address_of(IR_GLOBAL, global), ir_coerce(IR_U32, bytes),
                 address_of(IR_SHARED, mbarrier) };
    build_effect((ir_inst){ .op = IR_BULK_LOAD, .offset = offset }, 4, in);
}

void ir_bulk_store(val global, val shared, int64_t offset, val bytes)
{
    val in[] = { address_of(IR_GLOBAL, global), address_of(IR_SHARED, shared), ir_coerce(IR_U32, bytes) };
    build_effect((ir_inst){ .op = IR_BULK_STORE, .offset = offset }, 3, in);
}

void ir_bulk_prefetch(val global, val bytes)
{
    val in[] = { address_of(IR_GLOBAL, global), ir_coerce(IR_U32, bytes) };
    build_effect((ir_inst){ .op = IR_BULK_PREFETCH }, 2, in);
}

void ir_prefetch(val global)
{
    val address = address_of(IR_GLOBAL, global);
    build_effect((ir_inst){ .op = IR_PREFETCH }, 1, &address);
}

void ir_discard(val global)
{
    const val address = address_of(IR_GLOBAL, global);
    build_effect((ir_inst){ .op = IR_DISCARD }, 1, &address);
}

/* mbarriers */

void ir_mbarrier_init(val bar, int64_t offset, int count)
{
    val in[] = { bar, ir_u32(count) };
    build_effect((ir_inst){ .op = IR_MBARRIER_INIT, .offset = offset }, 2, in);
}

void ir_mbarrier_arrive(ir_space space, val bar, int64_t offset)
{
    build_effect((ir_inst){ .op = IR_MBARRIER_ARRIVE, .space = space, .offset = offset }, 1, &bar);
}

void ir_mbarrier_expect(val bar, int64_t offset, val bytes)
{
    val in[] = { bar, ir_coerce(IR_U32, bytes) };
    build_effect((ir_inst){ .op = IR_MBARRIER_EXPECT, .offset = offset }, 2, in);
}

void ir_mbarrier_wait(val bar, int64_t offset, val parity)
{
    val in[] = { bar, ir_coerce(IR_U32, parity) };
    build_effect((ir_inst){ .op = IR_MBARRIER_WAIT, .offset = offset }, 2, in);
}

/* CTA, cluster, warp */

void ir_bar_sync(val id, int threads)
{
    id = ir_coerce(IR_U32, id);
    build_effect((ir_inst){ .op = IR_BAR_SYNC, .n = threads }, 1, &id);
}

void ir_bar_arrive(val id, int threads)
{
    id = ir_coerce(IR_U32, id);
    build_effect((ir_inst){ .op = IR_BAR_ARRIVE, .n = threads }, 1, &id);
}

val ir_mapa(val shared, val rank)
{
    val in[] = { shared, ir_coerce(IR_U32, rank) };
    return build_value((ir_inst){ .op = IR_MAPA, .type = IR_U32 }, IR_U32, 2, in);
}

val ir_shuffle(ir_shuffle_kind how, val x, val lane)
{
    val in[] = { x, ir_coerce(IR_U32, lane) };
    return build_value((ir_inst){ .op = IR_SHUFFLE, .type = x.type, .mode = (int)how }, x.type, 2, in);
}

val ir_vote(ir_vote_kind how, val p)
{
    ir_type type = how == IR_VOTE_BALLOT ? IR_U32 : IR_PRED;
    return build_value((ir_inst){ .op = IR_VOTE, .type = type, .mode = (int)how }, type, 1, &p);
}

val ir_redux(ir_reduction how, val x)
{
    return build_value((ir_inst){ .op = IR_REDUX, .type = x.type, .mode = (int)how }, x.type, 1, &x);
}

val ir_elect(void)
{
    return build_value((ir_inst){ .op = IR_ELECT, .type = IR_PRED }, IR_PRED, 0, NULL);
}

/* Matrix */

void ir_ldmatrix(int n, bool transpose, val address, int64_t offset, val *out)
{
    ir_emit((ir_inst){ .op = IR_LDMATRIX, .type = IR_U32, .n = n, .mode = transpose, .offset = offset }, n, out, 1,
            &address);
}

void ir_stmatrix(int n, bool transpose, val address, int64_t offset, const val *values)
{
    val in[1 + 4] = { address };
    for (int i = 0; i < n; i++)
        in[1 + i] = values[i];
    build_effect((ir_inst){ .op = IR_STMATRIX, .type = IR_U32, .n = n, .mode = transpose, .offset = offset }, 1 + n,
                 in);
}

/* The accumulator type for products of a type. */
static ir_type sum_of(ir_type from)
{
    return ir_type_is_float(from) ? CKL_F32 : CKL_I32;
}

void ir_mma(ir_type from_a, ir_type from_b, val d[4], const val a[4], const val b[2])
{
    val in[] = { a[0], a[1], a[2], a[3], b[0], b[1], d[0], d[1], d[2], d[3] };
    ir_emit((ir_inst){ .op = IR_MMA, .type = sum_of(from_a), .from = from_a, .from_b = from_b }, 4, d, 10, in);
}

/* Operands of a wgmma: the A operand (1 descriptor or 4 registers), B, scale_d, then the accumulators. */
static void emit_wgmma(ir_inst inst, int a_count, const val *a, val b, val scale_d, val *d)
{
    int accumulators = inst.n / 2, count = 0;
    val in[4 + 2 + 128];
    for (int i = 0; i < a_count; i++)
        in[count++] = a[i];
    in[count++] = b;
    in[count++] = scale_d;
    for (int i = 0; i < accumulators; i++)
        in[count++] = d[i];
    ir_emit(inst, accumulators, d, count, in);
}

static ir_inst wgmma_inst(ir_op op, ir_type from_a, ir_type from_b, int n, int mode)
{
    return (ir_inst){ .op = op, .type = sum_of(from_a), .from = from_a, .from_b = from_b, .n = n, .mode = mode };
}

void ir_wgmma(ir_type from_a, ir_type from_b, int n, val *d, val a, val b, val scale_d, bool a_m_major, bool b_n_major)
{
    int mode = (a_m_major ? 1 : 0) | (b_n_major ? 2 : 0);
    emit_wgmma(wgmma_inst(IR_WGMMA, from_a, from_b, n, mode), 1, &a, b, scale_d, d);
}

void ir_wgmma_rs(ir_type from_a, ir_type from_b, int n, val *d, const val a[4], val b, val scale_d, bool b_n_major)
{
    emit_wgmma(wgmma_inst(IR_WGMMA_RS, from_a, from_b, n, b_n_major ? 2 : 0), 4, a, b, scale_d, d);
}
