/* attention_config.h - the fields of a problem, the compile-time choices of attention's kernels, their parameters. */
#pragma once

#include "base/fields.h"
#include "cutekernellib/operators/attention.h"
#include "plan/plan.h"
#include "skeletons/prefetch.h"

/* What decoding has, too. */
#define ATTENTION_COMMON(X, owner)                                                      \
    X(owner, bool, sinks, "0", "0 1", "a score more in every head, without a value")    \
    X(owner, ckl_dtype, dtype, "f16", "f16 bf16", "type of all tensors")                \
    X(owner, float, scale, "0", "0..2^20", "of the scores; 0: 1/sqrt(d)")               \
    X(owner, bool, lse, "0", "0 1", "also gives the log-sum-exp of the scores")         \
    X(owner, choice, layout, "bhsd", "bhsd bshd", "the order of dense tensors")         \
    X(owner, int64_t, ldq, "0", "", "elements between tokens of q; 0: dense")           \
    X(owner, int64_t, ldk, "0", "", "the same of k")                                    \
    X(owner, int64_t, ldv, "0", "", "of v")                                             \
    X(owner, int64_t, ldo, "0", "", "of o")                                             \
    X(owner, int64_t, ldq_head, "0", "", "elements between heads of q; 0: dense")       \
    X(owner, int64_t, ldk_head, "0", "", "the same of k")                               \
    X(owner, int64_t, ldv_head, "0", "", "of v")                                        \
    X(owner, int64_t, ldo_head, "0", "", "of o")                                        \
    X(owner, int64_t, ldq_batch, "0", "", "elements between batches of q; 0: dense")    \
    X(owner, int64_t, ldk_batch, "0", "", "the same of k, or between pages of a cache") \
    X(owner, int64_t, ldv_batch, "0", "", "of v")                                       \
    X(owner, int64_t, ldo_batch, "0", "", "of o")

#define ATTENTION_DESC(X, owner)                                                                      \
    X(owner, choice, direction, "forward", "forward backward", "o, or the gradients of q, k and v")   \
    X(owner, int64_t, batch, "1", "", "batches")                                                      \
    X(owner, int64_t, heads, "1", "1..2^16", "heads of q")                                            \
    X(owner, int64_t, kv_heads, "0", "", "heads of k and v, each for as many of q; 0: heads")         \
    X(owner, int64_t, q, "128", "0..2^30", "tokens of q")                                             \
    X(owner, int64_t, kv, "128", "0..2^30", "tokens of k and v")                                      \
    X(owner, int64_t, d, "64", "1..1024", "elements of a head of q and k")                            \
    X(owner, int64_t, dv, "0", "0..1024", "the same of v; 0: d")                                      \
    X(owner, bool, causal, "0", "0 1", "queries see no later keys; the last one sees all")            \
    X(owner, int64_t, left, "0", "0..2^30", "keys up to its own that a query sees; 0: all")           \
    X(owner, int64_t, right, "0", "0..2^30", "later keys that it sees; 0: all, or none if causal")    \
    X(owner, float, softcap, "0", "0..2^20", "scores become softcap*tanh(score/softcap); 0: no")      \
    X(owner, choice, mask, "none", "none add bool", "added to the scores, or hides keys where false") \
    X(owner, int64_t, ldmask, "0", "", "elements between queries of the mask; 0: they share it")      \
    X(owner, int64_t, ldmask_head, "0", "", "the same between heads")                                 \
    X(owner, int64_t, ldmask_batch, "0", "", "between batches")                                       \
    X(owner, quoted, score, "none", "", "a custom score by its name")                                 \
    X(owner, bool, ragged, "0", "0 1", "sequences of any lengths, one behind the other")              \
    X(owner, int64_t, q_total, "0", "0..2^30", "tokens of q of all of them; 0: batch * q")            \
    X(owner, int64_t, kv_total, "0", "0..2^30", "the same of k and v")                                \
    ATTENTION_COMMON(X, owner)                                                                        \
    X(owner, bool, dmask, "0", "0 1", "backward: also gives the gradient of an added mask")

/* What every kernel computes. */
#define ATTENTION_FORM(X, owner)                                                         \
    X(owner, ckl_dtype, dtype, "f16", "f16 bf16", "type of all tensors")                 \
    X(owner, int, d, "64", "", "elements of a head of q and k")                          \
    X(owner, int, dv, "64", "", "the same of v")                                         \
    X(owner, bool, right, "0", "0 1", "later keys are hidden, or some of them")          \
    X(owner, bool, left, "0", "0 1", "earlier keys are hidden")                          \
    X(owner, bool, softcap, "0", "0 1", "scores go through tanh")                        \
    X(owner, choice, mask, "none", "none add bool", "of single scores")                  \
    X(owner, quoted, score, "none", "", "a custom one by its name")                      \
    X(owner, bool, sinks, "0", "0 1", "every head has a score without a value")          \
    X(owner, bool, lse, "0", "0 1", "stores the log-sum-exp")                            \
    X(owner, bool, ragged, "0", "0 1", "sequences of any lengths, one behind the other") \
    X(owner, bool, dmask, "0", "0 1", "stores the gradient of the mask")

typedef struct attention_form {
    ATTENTION_FORM(FIELD_MEMBER, )
} attention_form;

/* The tensors with heads and tokens. */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_O, ATTENTION_TENSORS };

/* A mode of one of them: heads, tokens or batches. */
typedef struct attention_mode {
    const char *name; // of its stride, "ldq_head"
    int64_t size, stride;
} attention_mode;

/* (D,TOKENS,HEADS,BATCH) */
typedef struct attention_strides {
    int64_t d;
    attention_mode tokens, heads, batch;
} attention_strides;

attention_strides attention_strides_of(const ckl_attention_desc *desc, int tensor);

/* Those of a tensor, and the fields of a desc that its strides are. */
typedef struct attention_fields {
    attention_strides strides;
    int64_t *ld, *ld_head, *ld_batch;
} attention_fields;

#define ATTENTION_FIELDS(desc, called, batch_size, heads_size, tokens_size, d_size)                               \
    {                                                                                                             \
        .strides = { .d = d_size,                                                                                 \
                     .tokens = { "ld" #called, tokens_size, (desc)->ld##called },                                 \
                     .heads = { "ld" #called "_head", heads_size, (desc)->ld##called##_head },                    \
                     .batch = { "ld" #called "_batch", batch_size, (desc)->ld##called##_batch } },                \
        .ld = &(desc)->ld##called, .ld_head = &(desc)->ld##called##_head, .ld_batch = &(desc)->ld##called##_batch \
    }

/* Strides that are 0 follow from the inner sizes, in the order of the layout. */
ckl_status attention_check_strides(const char *op, ckl_attention_layout layout, const attention_fields *fields);

/* No two elements of an output share memory. */
ckl_status attention_check_apart(const char *op, const char *tensor, const attention_strides *s);

/* Rows start at 16-byte boundaries, of `vector` elements, as cp.async and TMA want them. */
ckl_status attention_check_vectors(const char *op, const char *who, const attention_strides *s, int64_t vector);

/* What a tensor map is made of: (D,TOKENS,HEADS,BATCH) of 16-bit elements. */
param_tensor attention_map_of(const void *pointer, const attention_strides *s);

/*
 * The scores known by name (attention_scores.c): the library's own, and those that the process added; NULL: there is
 * none. Is a score's derivative other than 1? Can it skip whole blocks, or leave them as they are? Has it inputs of
 * queries or keys? NULL or "none": no.
 */
extern const ckl_attention_score attention_alibi, attention_documents, attention_prefix;
const ckl_attention_score *attention_score_find(const char *name);
bool attention_score_bends(const char *name);
bool attention_score_has_blocks(const char *name);
bool attention_score_reads_tokens(const char *name);

/* Less than any score, yet finite times any scale, so rows without keys need no special care. */
#define ATTENTION_FLOOR (-0x1p100)

/* Parameters of all kernels; arrays in the order of the tensors. A kernel has those that it uses. */
#define ATTENTION_PARAMS(X, owner)                                                                   \
    X(owner, tensor, Q)                                                                              \
    X(owner, tensor, K)                                                                              \
    X(owner, tensor, V)                                                                              \
    X(owner, tensor, O)                                                                              \
    X(owner, pointer, x, [ATTENTION_TENSORS])                                                        \
    X(owner, i64, ld, [ATTENTION_TENSORS])                                                           \
    X(owner, i64, ld_head, [ATTENTION_TENSORS])                                                      \
    X(owner, i64, ld_batch, [ATTENTION_TENSORS])                                                     \
    X(owner, pointer, mask)                                                                          \
    X(owner, i64, ldmask)                                                                            \
    X(owner, i64, ldmask_head)                                                                       \
    X(owner, i64, ldmask_batch)                                                                      \
    X(owner, pointer, sinks)                                                                         \
    X(owner, pointer, lse)                                                                           \
    X(owner, u32, q)                                                                                 \
    X(owner, u32, kv)                                                                                \
    X(owner, u32, heads)     /* of a batch */                                                        \
    X(owner, u32, all_heads) /* of all batches */                                                    \
    X(owner, u32, group)     /* heads that share one of k and v */                                   \
    X(owner, i32, first)     /* query i sees keys first + i .. last + i, as far as there are such */ \
    X(owner, i32, last)                                                                              \
    X(owner, f32, factor)     /* softcap: scores become tanh(factor * score) first */                \
    X(owner, f32, unit)       /* what is added to scores is so many times as large */                \
    X(owner, f32, score_unit) /* scores times this are those of the definition */                    \
    X(owner, f32, exponent)   /* weights are 2^(exponent * score) */                                 \
    X(owner, u32, tiles_m)    /* of a head */                                                        \
    X(owner, u32, tiles)      /* in all */                                                           \
    X(owner, u32, section)    /* heads that are worked on together */                                \
    X(owner, pointer, counter)                                                                       \
    X(owner, tensor, DO)                                                                             \
    X(owner, tensor, DQ)                                                                             \
    X(owner, tensor, DK)                                                                             \
    X(owner, tensor, DV)                                                                             \
    X(owner, pointer, grad, [ATTENTION_TENSORS])                                                     \
    X(owner, pointer, stats) /* of queries, in rows of a head: -lse in units of 2, and dout * o */   \
    X(owner, pointer, inputs, [CKL_ATTENTION_INPUTS])                                                \
    X(owner, pointer, dmask)                                                                         \
    X(owner, pointer, dsinks)                                                                        \
    X(owner, u32, stats_rows) /* of a head */                                                        \
    X(owner, f32, scale)                                                                             \
    X(owner, pointer, starts_q) /* of sequences, where ragged */                                     \
    X(owner, pointer, starts_kv)                                                                     \
    X(owner, u32, q_total)                                                                           \
    X(owner, tensor, SUMS) /* of dQ, f32, in rows of 64 as attention_backward_queries.c has them */  \
    X(owner, pointer, sums)                                                                          \
    X(owner, pointer, turns) /* of a block of queries: CTAs that have added to its sums */           \
    X(owner, f32, cap, [4])  /* attention_cap_numbers() */                                           \
    EARLY_PARAMS(X, owner, ATTENTION_TENSORS)

KERNEL_PARAMS(attention, ATTENTION_PARAMS);

extern const implementation attention_sm90_backward_implementation, attention_sm90_backward_unordered_implementation,
    attention_naive_backward_implementation;
extern const implementation attention_sm90_implementation, attention_sm80_implementation,
    attention_short_implementation, attention_tensor_implementation, attention_naive_implementation;

/* naive */

#define ATTENTION_NAIVE_CONFIG(X, owner) X(owner, int, threads, "128", "32 64 128 256", "threads of a CTA, a row each")

typedef struct attention_naive_config {
    attention_form form;
    ATTENTION_NAIVE_CONFIG(FIELD_MEMBER, )
} attention_naive_config;

void attention_naive(const void *config, int kernel);

void attention_naive_backward(const void *config, int kernel);

/* sm80 and tensor */

#define ATTENTION_SM80_CONFIG(X, owner)                            \
    X(owner, int, warps, "4", "2 4 8", "warps of a CTA")           \
    X(owner, int, warp_rows, "16", "16 32", "queries of a warp")   \
    X(owner, int, tile_n, "64", "16 32 64 128", "keys of a block") \
    X(owner, int, stages, "2", "1 2", "blocks of K and V in shared memory")

typedef struct attention_sm80_config {
    attention_form form;
    ATTENTION_SM80_CONFIG(FIELD_MEMBER, )
} attention_sm80_config;

int64_t attention_sm80_smem(const attention_sm80_config *config);

/* Rows of K or V, whichever is more, that all threads load at once: `tile_n` is a multiple of it. */
int attention_sm80_rows_loaded(const attention_sm80_config *config);

void attention_sm80(const void *config, int kernel);

/* sm90 */

#define ATTENTION_SM90_CONFIG(X, owner)                                                           \
    X(owner, int, consumers, "2", "1 2 3", "warpgroups of 64 queries each")                       \
    X(owner, int, tile_n, "128", "64 80 96 112 128 160 176", "keys of a block")                   \
    X(owner, int, slots, "5", "3 4 5 6", "blocks of K or V in shared memory")                     \
    X(owner, int, queries, "1", "1 2", "tiles of Q of a consumer in shared memory")               \
    X(owner, int, ctas, "1", "1 2 3", "of an SM, with one consumer each where they are several")  \
    X(owner, bool, draw, "0", "0 1", "tiles are drawn from a counter, not shared out")            \
    X(owner, bool, old, "0", "0 1", "weights by the maxima of blocks before, as far as they do")  \
    X(owner, bool, single, "0", "0 1", "all keys are in one block: there is no loop over blocks") \
    X(owner, bool, parts, "0", "0 1", "tiles behind the whole turns are shared out by consumers")

typedef struct attention_sm90_config {
    attention_form form;
    ATTENTION_SM90_CONFIG(FIELD_MEMBER, )
} attention_sm90_config;

enum {
    ATTENTION_ROWS = 64,        // queries of a consumer
    ATTENTION_WINDOW = 1 << 30, // rows, no fewer than tokens: attention_make_tma()
};

int64_t attention_sm90_smem(const attention_sm90_config *config);
bool attention_sm90_fits_registers(const attention_sm90_config *config, int registers_per_sm);

void attention_sm90(const void *config, int kernel);

/* implementation.cost (attention_cost.c). */
plan_cost attention_naive_cost(const void *desc, const ckl_device_info *device, const void *config);
plan_cost attention_sm80_cost(const void *desc, const ckl_device_info *device, const void *config);
plan_cost attention_sm90_cost(const void *desc, const ckl_device_info *device, const void *config);
plan_cost attention_sm90_backward_cost(const void *desc, const ckl_device_info *device, const void *config);

/* Of threads that compute a row each: `products` of every key that it sees. No problem was measured. */
plan_cost attention_rows_cost(const ckl_device_info *device, int threads, double rows, double keys, double products);

/* Backward of sm90: of keys and values, then of queries, each over blocks of the other */

#define ATTENTION_BACKWARD_CONFIG(X, owner)                                                          \
    X(owner, int, consumers, "2", "1 2", "warpgroups of 64 keys, or queries, each")                  \
    X(owner, int, block, "64", "16 32 48 64 80 96", "queries that the keys' kernel takes at a time") \
    X(owner, int, keys, "96", "32 48 64 80 96 112 128", "keys that the queries' kernel does")        \
    X(owner, int, stages, "2", "2 3 4", "blocks in shared memory")                                   \
    X(owner, bool, ordered, "1", "0 1", "sums of dQ are in the order of the keys")

typedef struct attention_sm90_backward_config {
    attention_form form;
    ATTENTION_BACKWARD_CONFIG(FIELD_MEMBER, )
} attention_sm90_backward_config;

/*
 * The kernels, in the order of their launches: stats of queries, tiles of keys, of queries, sinks, tiles of keys for dV
 * alone.
 */
enum { BACKWARD_STATS, BACKWARD_KEYS, BACKWARD_QUERIES, BACKWARD_SINKS, BACKWARD_VALUES, BACKWARD_KERNELS };

enum { ATTENTION_STATS_QUERIES = 16 }; // of a CTA that makes stats: every block has a multiple of them

/*
 * Does the keys' kernel compute dQ, too, by sums in memory? Then the queries' kernel rounds these. Does a kernel of its
 * own compute dV?
 */
bool attention_backward_sums_queries(const attention_sm90_backward_config *config);
bool attention_backward_has_values(const attention_sm90_backward_config *config);

int64_t attention_sm90_backward_smem(const attention_sm90_backward_config *config);
int64_t attention_backward_sums_smem(const attention_sm90_backward_config *config);  // of it, for dQ by sums
int64_t attention_backward_sums_bytes(const attention_sm90_backward_config *config); // of a block in the workspace

void attention_sm90_backward(const void *config, int kernel);

/* attention_plans.c, for all implementations. */
attention_form attention_form_of(const ckl_attention_desc *desc);
ckl_status attention_check_form(const char *who, ckl_direction direction, const ckl_attention_desc *desc,
                                const attention_form *form);
ckl_status attention_check_heads(const char *who, const ckl_attention_desc *desc);
ckl_status attention_check_smem(const char *op, const char *who, const ckl_device_info *device, int64_t bytes);

/* Refuses a ragged problem whose tokens lie too far apart for maps of windows (attention_make_tma()). */
ckl_status attention_check_windows(const char *who, const ckl_attention_desc *desc);

/* Pointers to 16-byte boundaries, as cp.async and TMA want them. */
ckl_status attention_check_alignment(const char *who, const ckl_attention_args *args);

/* Tiles of so many queries, of all heads; no more than a launch has CTAs. And the parameters of such a launch. */
int64_t attention_tiles_of(const ckl_attention_desc *desc, int rows);
ckl_status attention_check_tiles(const char *who, int64_t tiles);
attention_params attention_params_of(const ckl_attention_desc *desc, const ckl_attention_args *args, int rows);
