/*
 * limit_kernels.c - 256 threads a CTA read eight vectors of 16 bytes each, or write four: many small CTAs keep the
 * memory busiest.
 */
#include "bench/limit_kernels.h"

#include "cute/kernel.h"

enum {
    THREADS = 256,
    VECTOR_BYTES = 16,
    WORDS = VECTOR_BYTES / 4,
    VECTORS_READ = LIMIT_READ_BYTES / VECTOR_BYTES / THREADS,
    VECTORS_WRITTEN = LIMIT_WRITE_BYTES / VECTOR_BYTES / THREADS,
    UNLIKELY = 0x5ca1ab1e
};

#define LIMIT_PARAMS(X, owner) X(owner, pointer, memory)
KERNEL_PARAMS(limit, LIMIT_PARAMS);

/* The address of this thread's first vector; the next ones are THREADS vectors apart. */
static val first_vector(int bytes)
{
    launch_bounds(THREADS, 0);
    val memory = params_of(limit).memory, tile = mul(convert(U64, cta_x()), imm(bytes));
    return add(add(memory, tile), convert(U64, mul(thread(), imm(VECTOR_BYTES))));
}

/* All loads come before the first use; a store that hardly ever happens keeps the compiler from dropping them. */
static void read_tile(void)
{
    val first = first_vector(LIMIT_READ_BYTES), words[VECTORS_READ * WORDS], all = imm(0);
    for (int i = 0; i < VECTORS_READ * WORDS; i++)
        words[i] = ir_reg(I32);
    grid_wait();
    for (int v = 0; v < VECTORS_READ; v++)
        ir_load(IR_GLOBAL, IR_CACHE_READONLY, I32, WORDS, first, v * THREADS * VECTOR_BYTES, &words[v * WORDS]);
    for (int i = 0; i < VECTORS_READ * WORDS; i++)
        all = bit_xor(all, words[i]);
    IF(eq(all, imm(UNLIKELY)))
        ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, I32, 1, first, 0, &all);
}

static void write_tile(void)
{
    val first = first_vector(LIMIT_WRITE_BYTES), words[WORDS];
    for (int i = 0; i < WORDS; i++)
        words[i] = imm(0);
    grid_wait();
    for (int v = 0; v < VECTORS_WRITTEN; v++)
        ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, I32, WORDS, first, v * THREADS * VECTOR_BYTES, words);
}

static void do_nothing(void)
{
    ir_current()->threads = 32;
    (void)params_of(limit);
    grid_wait();
}

static void (*const bodies[])(void) = {
    [LIMIT_READ] = read_tile, [LIMIT_WRITE] = write_tile, [LIMIT_EMPTY] = do_nothing
};
static const char *const names[] = {
    [LIMIT_READ] = "limit_read", [LIMIT_WRITE] = "limit_write", [LIMIT_EMPTY] = "limit_empty"
};

ckl_status limit_kernel_describe(limit_kernel which, ir_target target, ir_kernel **kernel)
{
    ir_kernel *described = NULL;
    ir_describe_begin(names[which], target);
    bodies[which]();
    ckl_status status = ir_describe_end(&described);
    if (status == CKL_OK)
        status = ir_verify(described);
    if (status == CKL_OK)
        *kernel = described;
    else
        ir_kernel_free(described);
    return status;
}
