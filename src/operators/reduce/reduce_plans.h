/* reduce_plans.h - what the implementations of reduce share on the host: checks of configs, alignment, launches. */
#ifndef CKL_REDUCE_PLANS_H
#define CKL_REDUCE_PLANS_H

#include "base/math.h"
#include "operators/reduce/reduce_choice.h"

enum {
    REDUCE_VECTOR_BYTES = 16,
    REDUCE_CTAS_MAX = INT32_MAX,
    REDUCE_WARP = 32,
    REDUCE_THREADS_WANTED = 1024 // of an SM: with 4 vectors each in flight, 64 KB
};

/* Every config begins with these. */
typedef struct reduce_problem_fields {
    int op;
    ckl_dtype dtype, output;
    int kept, reduced;
} reduce_problem_fields;

reduce_problem_fields reduce_problem_of(const ckl_reduce_desc *d);

/* Checks of configs; `who` is the implementation. */
ckl_status reduce_check_problem(const char *who, const ckl_reduce_desc *d, reduce_problem_fields have);
ckl_status reduce_check_threads(const char *who, int threads, const ckl_device_info *device);
ckl_status reduce_check_vectors(const char *who, int vec, int steps, ckl_dtype dtype);

/* Should the sum be compensated, if a thread adds so many blocks in turn? */
bool reduce_compensates(const ckl_reduce_desc *d, int64_t blocks_in_turn);

/* Do all modes but the one that vectors run along start at multiples of vec? */
bool reduce_divides(const reduce_mode *modes, int count, int vec);

static inline bool reduce_is_aligned(const void *pointer, int64_t bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

static inline int reduce_bytes_of(ckl_dtype dtype)
{
    return (int)ckl_dtype_bytes(dtype);
}

/* The smallest power of two that is not below x. */
static inline int64_t reduce_power_from(int64_t x)
{
    int64_t power = 1;
    while (power < x)
        power *= 2;
    return power;
}

/* Workspace: a counter for each unit that CTAs share, then `state_bytes` for each of its parts. */
int64_t reduce_workspace(int64_t units, int64_t split, int64_t state_bytes);

/* Values of the parameters of reduce_declare_arguments(). */
typedef struct reduce_launch {
    const void *x;
    void *y;
    unsigned char *counters, *partials;
    float divisor;
    reduce_view v;
} reduce_launch;

reduce_launch reduce_launch_of(const ckl_plan *plan, const ckl_reduce_args *args, int64_t units);
ckl_status reduce_enqueue(const ckl_plan *plan, int part, int64_t ctas, reduce_launch *l, ckl_stream stream);

extern const implementation reduce_naive_plans, reduce_improved_plans, reduce_shuffle_plans, reduce_vectorized_plans;
extern const implementation reduce_rows_plans, reduce_rows_sm80_plans, reduce_cluster_plans;
extern const implementation reduce_columns_plans, reduce_columns_sm80_plans;

#endif
