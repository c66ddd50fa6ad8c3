/*
 * memory.c - accesses of every width to global and shared memory, atomics, barriers.
 *
 * Every result is the same in any order of the threads: a thread has 16 bytes of its own; elsewhere atomics of one
 * statement are of one kind that commutes, on words of their own, and their old values are not looked at. Floats that
 * are added are small whole numbers.
 */
#include "lab/fuzz/program.h"

#include "ir/rules.h"

#define SET TYPE_SET

enum { LONGEST = 16, SUMS = 16, SUM_BYTES = 8 }; // words of a statement's atomics

static const uint32_t memory_types = SET(CKL_I8) | SET(CKL_U8) | SET(CKL_BOOL) | SET(CKL_I16) | SET(IR_U16) |
                                     SET(CKL_I32) | SET(IR_U32) | SET(CKL_I64) | SET(IR_U64) | SET(CKL_F16) |
                                     SET(CKL_BF16) | SET(IR_F16X2) | SET(IR_BF16X2) | SET(CKL_F32) | SET(CKL_E4M3) |
                                     SET(CKL_E5M2);
static const uint32_t words = SET(CKL_I32) | SET(IR_U32) | SET(CKL_I64) | SET(IR_U64);

/* 1, 2 or 4 elements of at most 16 bytes. */
static int choose_count(program *p, ir_type type)
{
    int n = 1 << choose(p, 3);
    return n * ir_memory_bytes(type) <= LONGEST ? n : 1;
}

static void store_some(program *p, ir_space space, ir_type type, int n, val address, int64_t offset)
{
    val v[4];
    for (int i = 0; i < n; i++)
        v[i] = pick(p, register_type(type));
    ir_store(space, (ir_cache)choose(p, IR_CACHE_EVICT_LAST + 1), type, n, address, offset, v);
}

static void load_some(program *p, ir_space space, ir_type type, int n, val address, int64_t offset)
{
    val v[4];
    for (int i = 0; i < n; i++)
        v[i] = ir_reg(register_type(type));
    ir_load(space, (ir_cache)choose(p, IR_CACHE_EVICT_LAST + 1), type, n, address, offset, v);
    for (int i = 0; i < n; i++)
        keep(p, number_of(v[i]));
}

/* Stores to the thread's own bytes and reads some of them as another type. */
void do_own_memory(program *p)
{
    ir_at("own_memory", 1);
    for (int i = 0; i < 2; i++) {
        ir_type type = choose_type(p, memory_types);
        int n = choose_count(p, type), bytes = n * ir_memory_bytes(type);
        int64_t offset = choose(p, LONGEST / bytes) * bytes;
        if (i == 0)
            store_some(p, IR_GLOBAL, type, n, p->own, offset);
        else
            load_some(p, IR_GLOBAL, type, n, p->own, offset);
    }
}

/* Atomics */

/* A reduction and a type that it has; `commutes`: without EXCH. */
static ir_reduction choose_reduction(program *p, bool commutes, ir_type *type)
{
    ir_reduction op = (ir_reduction)choose(p, commutes ? IR_RED_OR + 1 : IR_RED_EXCH + 1);
    uint32_t allowed = words;
    if (op == IR_RED_ADD || op == IR_RED_EXCH)
        allowed |= SET(CKL_F32);
    *type = choose_type(p, allowed);
    return op;
}

static val addend(program *p, ir_type type)
{
    return ir_type_is_float(type) ? small_float(p, type) : pick(p, type);
}

/* On the thread's own word, set before: the old value is a result. */
void do_own_atomic(program *p)
{
    ir_at("own_atomic", 1);
    ir_type type;
    ir_reduction op = choose_reduction(p, false, &type);
    val first = addend(p, type);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, type, 1, p->own, 8, &first);
    keep(p, ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, op, p->own, 8, addend(p, type)));
    load_some(p, IR_GLOBAL, type, 1, p->own, 8);
}

/* On words that all threads share. */
void do_global_sums(program *p)
{
    if (p->sums == FUZZ_SUMS_MAX)
        return;
    ir_at("global_sums", 1);
    ir_type type;
    ir_reduction op = choose_reduction(p, true, &type);
    val which = ir_binary(IR_MUL, ir_binary(IR_AND, pick_register(p, IR_U32), ir_u32(SUMS - 1)), ir_u32(SUM_BYTES));
    val address = ir_binary(IR_ADD, p->base, ir_convert(IR_U64, which)), x = addend(p, type);
    int64_t offset = FUZZ_SUMS + 128 * p->sums++;
    if (chance(p, 2))
        ir_reduce(IR_SCOPE_GPU, op, address, offset, x);
    else
        ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, op, address, offset, x);
    ir_fence(chance(p, 2) ? IR_SCOPE_GPU : IR_SCOPE_CTA);
}

/* Shared memory */

void settle_smem(program *p)
{
    if (p->target == IR_SM90A)
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(ir_u32(choose(p, 8)), p->threads);
}

val barrier_address(program *p)
{
    return ir_smem_address(FUZZ_BARRIERS + 8 * p->barriers++);
}

/* Every thread stores to the place of one thread and reads that of another, as the same type or in other pieces. */
void do_exchange(program *p)
{
    ir_at("exchange", 1);
    ir_type type = choose_type(p, memory_types);
    int n = choose_count(p, type), bytes = n * ir_memory_bytes(type);
    val mask = ir_u32(p->threads - 1);
    val to = ir_binary(IR_XOR, p->thread, ir_u32(choose(p, p->threads)));
    val from = ir_binary(IR_AND, ir_binary(IR_ADD, p->thread, ir_u32(choose(p, p->threads))), mask);
    val write = element_at(p->smem, to, bytes);
    val read = element_at(p->smem, from, bytes);
    settle_smem(p);
    store_some(p, IR_SHARED, type, n, write, FUZZ_EXCHANGE);
    settle_smem(p);
    load_some(p, IR_SHARED, type, n, read, FUZZ_EXCHANGE);
    if (bytes >= 2)
        load_some(p, IR_SHARED, CKL_U8, 2, read, FUZZ_EXCHANGE);
}

/* Half of the warps arrive at a named barrier, the others wait for what they stored. */
void do_pair_of_barriers(program *p)
{
    ir_at("barriers", 1);
    val half = ir_u32(p->threads / 2), id = ir_u32(8 + choose(p, 8)), got = ir_reg(IR_U32);
    val place = element_at(p->smem, p->thread, 4), x = pick(p, IR_U32);
    ir_assign(got, x);
    settle_smem(p);
    ir_if(ir_compare(IR_LT, ir_sreg(IR_WARP), ir_u32(p->threads / 64)));
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, place, FUZZ_EXCHANGE, &x);
    ir_bar_arrive(id, p->threads);
    ir_else();
    ir_bar_sync(id, p->threads);
    val other = ir_binary(IR_SUB, place, ir_binary(IR_MUL, half, ir_u32(4)));
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, other, FUZZ_EXCHANGE, &got);
    ir_end_if();
    keep(p, got);
}
