/* unit_verify.c - each rule of the verifier for a kernel's frame, its nesting and single instructions. */
#include "unit_verify.h"

/* Frame and nesting */

SPOILED(kernel_name, (void)0, k->name = "a-b", "the name is not an identifier")
SPOILED(cluster_size, (void)0, k->cluster = 17, "cluster=17 is not in 1..16")
SPOILED(cluster_target, (void)0, (k->cluster = 2, k->target = IR_SM80), "cluster=2 needs sm_90")
SPOILED(few_threads, (void)0, k->threads = 0, "threads=0 is not a multiple of 32 in 32..1024")
SPOILED(smem_alignment, (ir_smem_alloc("a", 64, 16), ir_smem_alloc("b", 64, 32)), k->smem[1].offset = 80,
        "shared memory b at 80 is not aligned to 32")
SPOILED(smem_power, ir_smem_alloc("a", 64, 16), k->smem[0].align = 48, "shared memory a at 0 is not aligned to 48")
SPOILED(smem_negative, ir_smem_alloc("a", 64, 16), k->smem[0].offset = -16,
        "shared memory a ends at 48, beyond the kernel's 64")
SPOILED(smem_shrunk, ir_smem_alloc("a", 64, 16), k->smem[0].bytes = -16,
        "shared memory a ends at -16, beyond the kernel's 64")

static void open_if(void)
{
    IF(p_of(0)) {
    }
}

static void open_loop(void)
{
    FOREVER
        ir_break(p_of(0));
}

SPOILED(closes_other, open_if(), i->op = IR_END_LOOP, "end_loop: does not close the innermost loop")
SPOILED(else_of_loop, open_loop(), i->op = IR_ELSE, "else: does not close the innermost if")
SPOILED(no_end, open_if(), i->op = IR_WARP_SYNC, "if: has no end")
SPOILED(break_link, open_loop(), i[-1].match = 0, "break: is linked to another loop than its own")
SPOILED(loop_link, open_loop(), i->match = 1, "end_loop: is linked to another loop than its own")

RULE(nest, "if: nested more than 256 deep")
{
    open_if();
    ir_kernel *k = ir_current();
    int begin = k->inst_count - 2;
    for (int i = 2; i < (right ? 0 : 300); i++)
        ir_fence(IR_SCOPE_CTA); // room for as many
    for (int i = 0; i < (right ? 0 : 300); i++)
        k->insts[begin + i] = (ir_inst){ .op = IR_IF, .in = k->insts[begin].in, .in_count = 1, .file = "kernel.c" };
}

/* Operands */

static void sum(void)
{
    ir_binary(IR_ADD, unknown(IR_U32), unknown(IR_U32));
}

static void assign_number(void)
{
    ir_assign(ir_reg(IR_U32), u32(1));
}

SPOILED(constant_result, assign_number(), i->out[0] = u32(1), "mov: a result is a constant")
SPOILED(no_register, sum(), i->in[1].reg = 99, "add: register 99 does not exist")
SPOILED(register_type, sum(), k->reg_types[i->out[0].reg] = CKL_F32, "add: register 2 is f32, used as u32")
SPOILED(extra_source, sum(), (i->op = IR_MOV, i->in_count = 2), "mov: has 2 sources, 1 belong to it")
SPOILED(op_type, sum(), i->type = IR_PRED, "add: does not exist for pred")
SPOILED(op_from, ir_convert(CKL_F32, unknown(IR_U32)), i->from = IR_F16X2, "convert: does not exist from f16x2")
SPOILED(no_constant, ir_and_or(unknown(IR_U32), u32(6), u32(1)), i->in[2] = i->in[0],
        "and_or: operand 2 is no constant")
SPOILED(op_number, sum(), i->op = IR_OP_COUNT, "does not exist")

/* Attributes */

static void load(ir_space space, val address, int n)
{
    val x[4];
    for (int i = 0; i < n; i++)
        x[i] = ir_reg(IR_U32);
    ir_load(space, IR_CACHE_DEFAULT, IR_U32, n, address, 0, x);
}

static void tma_load(void)
{
    val c[] = { u32(0) };
    ir_tma_load(u32(0), 0, ir_tensor_map_param("map"), u32(128), u32(0), 1, c);
}

static void tma_pixels(void)
{
    val c[] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, 0), ir_int(CKL_I32, 0) }, offset[] = { u32(0) };
    ir_tma_load_im2col(u32(0), 0, ir_tensor_map_param("map"), u32(128), u32(0), 3, c, offset);
}

static void tma_store(void)
{
    val c[] = { u32(0) };
    ir_tma_store(IR_TMA_WRITE, ir_tensor_map_param("map"), u32(0), 0, 1, c);
}

static void matrices(void)
{
    val x[] = { ir_reg(IR_U32), ir_reg(IR_U32), ir_reg(IR_U32), ir_reg(IR_U32) };
    ir_ldmatrix(4, false, u32(0), 0, x);
}

static void store_matrices(void)
{
    val x[] = { unknown(IR_U32), unknown(IR_U32) };
    ir_stmatrix(2, false, u32(0), 0, x);
}

static void pack(void)
{
    ir_pack(IR_U64, unknown(IR_U32), unknown(IR_U32));
}

static void unpack(void)
{
    val lo, hi;
    ir_unpack(unknown(IR_U64), IR_U32, &lo, &hi);
}

SPOILED(load_count, load(IR_GLOBAL, unknown(IR_U64), 4), (i->n = 3, i->out_count = 3),
        "ld: n=3 elements of u32 are not 1, 2 or 4 in at most 16 bytes")
SPOILED(load_address, load(IR_GLOBAL, u64(32), 4), i->in[0].i = 40,
        "ld: address 40 is not a multiple of the 16 bytes accessed")
SPOILED(load_offset, load(IR_GLOBAL, u64(32), 4), i->offset = 4,
        "ld: address 36 is not a multiple of the 16 bytes accessed")
SPOILED(load_space, load(IR_SHARED_CLUSTER, unknown(IR_U32), 1), k->target = IR_SM80,
        "ld: shared memory of a cluster needs sm_90")
SPOILED(fence_scope, ir_fence(IR_SCOPE_CLUSTER), k->target = IR_SM80, "fence: cluster scope needs sm_90")
SPOILED(atomic_alignment, ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 8, unknown(IR_U32)),
        i->offset = 2, "atom: offset 2 is not a multiple of the 4 bytes accessed")
SPOILED(atomic_scope, ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_CLUSTER, IR_RED_ADD, unknown(IR_U64), 8, unknown(IR_U32)),
        k->target = IR_SM80, "atom: cluster scope needs sm_90")
SPOILED(red_exchange, ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 0, unknown(IR_U32)), i->mode = IR_RED_EXCH,
        "red: mode=5 is not in 0..4")
SPOILED(store_async, ir_store_async(u32(0), 8, u32(64), unknown(IR_U64)), i->offset = 4,
        "address 4 is not a multiple of the 8 bytes accessed")
SPOILED(cp_async_bytes, ir_cp_async(u32(0), 0, unknown(IR_U64), 8, u32(8)), i->n = 2,
        "cp_async: n=2 bytes is none of 4, 8, 16")
SPOILED(cp_async_mode, ir_cp_async(u32(0), 0, unknown(IR_U64), 8, u32(8)), i->mode = 1,
        "cp_async: mode=1 is for 16 bytes alone")
SPOILED(cp_async_address, ir_cp_async(u32(0), 16, unknown(IR_U64), 16, u32(16)), i->offset = 8,
        "cp_async: address 8 is not a multiple of the 16 bytes accessed")
SPOILED(bulk_bytes, ir_bulk_load(u32(0), 0, unknown(IR_U64), u32(32), u32(64)), i->in[2].i = 40,
        "bulk_load: 40 bytes is not a multiple of 16 above 0")
SPOILED(bulk_nothing, ir_bulk_load(u32(0), 0, unknown(IR_U64), u32(32), u32(64)), i->in[2].i = 0,
        "bulk_load: 0 bytes is not a multiple of 16 above 0")
SPOILED(bulk_load_place, ir_bulk_load(u32(0), 16, unknown(IR_U64), u32(32), u32(64)), i->offset = 8,
        "bulk_load: address 8 is not a multiple of the 16 bytes accessed")
SPOILED(bulk_store_place, ir_bulk_store(unknown(IR_U64), u32(16), 0, u32(32)), i->in[1].i = 8,
        "bulk_store: address 8 is not a multiple of the 16 bytes accessed")
SPOILED(prefetch_bytes, ir_bulk_prefetch(unknown(IR_U64), u32(32)), i->in[1].i = 8,
        "bulk_prefetch: 8 bytes is not a multiple of 16 above 0")
SPOILED(prefetch_nothing, ir_bulk_prefetch(unknown(IR_U64), u32(32)), i->in[1].i = 0,
        "bulk_prefetch: 0 bytes is not a multiple of 16 above 0")
SPOILED(multicast, tma_load(), i->in[3].i = 3, "tma_load: multicast in a kernel without clusters")
SPOILED(tma_load_place, tma_load(), i->offset = 64, "tma_load: address 64 is not a multiple of the 128 bytes accessed")
SPOILED(tma_no_pixels, tma_pixels(), (i->n = 2, i->in_count = 6), "tma_load: n=2 modes have no pixels")
SPOILED(tma_no_offset, tma_pixels(), i->in_count = 7, "tma_load: source operand 7 is missing")
SPOILED(tma_store_place, tma_store(), i->in[1].i = 64,
        "tma_store: address 64 is not a multiple of the 128 bytes accessed")
SPOILED(tma_no_rank, tma_store(), (i->n = 0, i->in_count = 2), "tma_store: n=0 coordinates are not in 1..5")
SPOILED(mbarrier_space, ir_mbarrier_arrive(IR_SHARED, u32(0), 0), i->space = IR_GLOBAL, "mbarrier_arrive: ")
SPOILED(mbarrier_place, ir_mbarrier_init(u32(8), 0, 1), i->in[0].i = 4,
        "mbarrier_init: address 4 is not a multiple of the 8 bytes accessed")
SPOILED(mbarrier_wait_place, ir_mbarrier_wait(u32(8), 0, u32(0)), i->offset = 4,
        "mbarrier_wait: address 12 is not a multiple of the 8 bytes accessed")
SPOILED(barrier_low, ir_bar_sync(u32(1), 64), i->in[0].i = -1, "bar_sync: id=-1 is not in 0..15")
SPOILED(barrier_count, ir_bar_arrive(u32(1), 64), i->n = 48,
        "bar_arrive: n=48 threads is not a multiple of 32 in 32..256")
SPOILED(maxnreg_low, ir_plain(IR_SETMAXNREG, 24, 0), i->n = 16,
        "setmaxnreg: n=16 registers is not a multiple of 8 in 24..256")
SPOILED(maxnreg_threads, ir_plain(IR_SETMAXNREG, 24, 0), k->threads = 192,
        "setmaxnreg: threads=192 of the kernel are not whole warpgroups")
SPOILED(ldmatrix_count, matrices(), (i->n = 3, i->out_count = 3), "ldmatrix: n=3 matrices is none of 1, 2, 4")
SPOILED(ldmatrix_place, matrices(), i->offset = 8, "ldmatrix: address 8 is not a multiple of the 16 bytes accessed")
SPOILED(stmatrix_place, store_matrices(), i->in[0].i = 8,
        "stmatrix: address 8 is not a multiple of the 16 bytes accessed")
SPOILED(shuffle_mode, ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1)), i->mode = IR_SHFL_XOR + 1,
        "shuffle: mode=4 is not in 0..3")
SPOILED(vote_mode, ir_vote(IR_VOTE_ALL, p_of(0)), i->mode = IR_VOTE_BALLOT, "vote: mode=2 does not give pred")
SPOILED(vote_type, ir_vote(IR_VOTE_BALLOT, p_of(0)), i->mode = IR_VOTE_ANY, "vote: mode=0 does not give u32")
SPOILED(redux_mode, ir_redux(IR_RED_OR, unknown(IR_U32)), i->mode = IR_RED_EXCH, "redux: mode=5 is not in 0..4")
SPOILED(compare_mode, p_of(0), i->mode = IR_GE + 1, "compare: mode=6 is not in 0..5")
SPOILED(sreg_mode, ir_sreg(IR_LANE), i->mode = IR_SREG_COUNT, "sreg: mode=11 is not in 0..10")
SPOILED(count_of_none, ir_plain(IR_CLUSTER_WAIT, 0, 0), i->n = 1, "cluster_wait: n=1, but it counts nothing")
SPOILED(mode_of_none, ir_plain(IR_CLUSTER_WAIT, 0, 0), i->mode = 1, "cluster_wait: mode=1 is not in 0..0")
SPOILED(sreg_target, ir_sreg(IR_CLUSTER_RANK), k->target = IR_SM80, "sreg: the rank in a cluster needs sm_90")
SPOILED(param_number, unknown(IR_U32), i->n = 1, "param: n=1 is not one of the 1 parameters")
SPOILED(param_type, unknown(IR_U32), k->params[0].type = CKL_F32, "param: parameter u32 is f32, read as u32")
SPOILED(param_map, ir_tensor_map_param("map"), k->params[0] = ((ir_param){ .name = "map", .type = CKL_F32 }),
        "param: parameter map is f32, read as u64")
SPOILED(cp_async_wait, ir_plain(IR_CP_ASYNC_WAIT, 7, 0), i->n = 8, "cp_async_wait: n=8 groups is not in 0..7")
SPOILED(bulk_wait, ir_plain(IR_BULK_WAIT, 0, 0), i->n = -1, "bulk_wait: n=-1 groups is not in 0..7")
SPOILED(wgmma_wait, ir_plain(IR_WGMMA_WAIT, 7, 0), i->n = 8, "wgmma_wait: n=8 groups is not in 0..7")
SPOILED(bitcast_width, ir_bitcast(CKL_F32, unknown(IR_U32)),
        (i->type = CKL_I64, k->reg_types[i->out[0].reg] = CKL_I64, i->out[0].type = CKL_I64),
        "bitcast: i64 and u32 differ in width")
SPOILED(pack_width, pack(), (i->type = IR_U32, k->reg_types[i->out[0].reg] = IR_U32, i->out[0].type = IR_U32),
        "pack: two u32 are not one u32")
SPOILED(unpack_width, unpack(),
        (i->from = IR_U32, k->reg_types[i->in[0].reg] = IR_U32, i->in[0].type = IR_U32, i[-1].out[0].type = IR_U32,
         i[-1].type = IR_U32, k->params[0].type = IR_U32),
        "unpack: two u32 are not one u32")

/* The kernel before: every access to global memory comes behind the grid_wait. */

static void wait_for_grid(void)
{
    ir_plain(IR_GRID_WAIT, 0, 0);
}

RULE(early_load, "ld: comes before the grid_wait")
{
    load(right ? IR_SHARED : IR_GLOBAL, right ? u32(0) : unknown(IR_U64), 1);
    wait_for_grid();
}

/* What is read may be old. */
RULE(early_strong_load, "ld: comes before the grid_wait")
{
    (void)ir_load_strong(right ? IR_ORDER_RELAXED : IR_ORDER_ACQUIRE, IR_SCOPE_GPU, IR_U32, unknown(IR_U64), 0);
    wait_for_grid();
}

SPOILED(early_atomic, ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 8, unknown(IR_U32)),
        wait_for_grid(), "atom: comes before the grid_wait")
SPOILED(early_reduction, ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, unknown(IR_U64), 0, unknown(IR_U32)), wait_for_grid(),
        "red: comes before the grid_wait")
SPOILED(early_cp_async, ir_cp_async(u32(0), 0, unknown(IR_U64), 8, u32(8)), wait_for_grid(),
        "cp_async: comes before the grid_wait")
SPOILED(early_bulk_load, ir_bulk_load(u32(0), 0, unknown(IR_U64), u32(32), u32(64)), wait_for_grid(),
        "bulk_load: comes before the grid_wait")
SPOILED(early_bulk_store, ir_bulk_store(unknown(IR_U64), u32(16), 0, u32(32)), wait_for_grid(),
        "bulk_store: comes before the grid_wait")
SPOILED(early_tma_load, tma_load(), wait_for_grid(), "tma_load: comes before the grid_wait")
SPOILED(early_tma_store, tma_store(), wait_for_grid(), "tma_store: comes before the grid_wait")

RUN_TESTS(NULL, NULL)
