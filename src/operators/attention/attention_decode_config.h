/* attention_decode_config.h - the fields of a decoding problem, the choices of its kernels, and their parameters. */
#pragma once

#include "cutekernellib/operators/attention_decode.h"
#include "operators/attention/attention_config.h"

#define ATTENTION_DECODE_DESC(X, owner)                                                                  \
    X(owner, int64_t, batch, "1", "", "sequences")                                                       \
    X(owner, int64_t, heads, "1", "1..2^16", "heads of q")                                               \
    X(owner, int64_t, kv_heads, "0", "", "heads of k and v, each for as many of q; 0: heads")            \
    X(owner, int64_t, q, "1", "0..16", "new tokens of a sequence")                                       \
    X(owner, int64_t, kv, "128", "1..2^30", "the most keys of a sequence")                               \
    X(owner, int64_t, d, "64", "1..1024", "elements of a head of q and k")                               \
    X(owner, int64_t, dv, "0", "0..1024", "the same of v; 0: d")                                         \
    X(owner, int64_t, page, "0", "0..256", "keys of a page; 0: the cache is contiguous")                 \
    X(owner, int64_t, pages, "0", "0..2^31-1", "of the cache; 0: as many as batch sequences need")       \
    X(owner, int64_t, left, "0", "0..2^30", "keys up to its own that a token sees; 0: all")              \
    X(owner, float, softcap, "0", "0..2^20", "scores become softcap*tanh(score/softcap); 0: no")         \
    ATTENTION_COMMON(X, owner)                                                                           \
    X(owner, ckl_dtype, cache, "", "f16 bf16 e4m3", "type of k and v, e4m3 with scales; default: dtype") \
    X(owner, bool, append, "0", "0 1", "new keys and values come apart, and are stored")                 \
    X(owner, int64_t, ldk_new, "0", "", "elements between tokens of k_new; 0: dense")                    \
    X(owner, int64_t, ldv_new, "0", "", "the same of v_new")                                             \
    X(owner, int64_t, ldk_new_head, "0", "", "between heads of k_new; 0: dense")                         \
    X(owner, int64_t, ldv_new_head, "0", "", "of v_new")                                                 \
    X(owner, int64_t, ldk_new_batch, "0", "", "between batches of k_new; 0: dense")                      \
    X(owner, int64_t, ldv_new_batch, "0", "", "of v_new")                                                \
    X(owner, bool, latent, "0", "0 1", "values are the first dv elements of the keys")

/* What every kernel computes. */
#define ATTENTION_DECODE_FORM(X, owner)                                                  \
    X(owner, ckl_dtype, dtype, "f16", "f16 bf16", "type of all tensors")                 \
    X(owner, int, d, "64", "", "elements of a head of q and k")                          \
    X(owner, int, dv, "64", "", "the same of v")                                         \
    X(owner, int, tokens, "1", "", "new ones of a sequence")                             \
    X(owner, int, group, "1", "", "heads that share one of k and v")                     \
    X(owner, int, page, "0", "", "keys of a page; 0: the cache is contiguous")           \
    X(owner, bool, left, "0", "0 1", "earlier keys are hidden")                          \
    X(owner, bool, softcap, "0", "0 1", "scores go through tanh")                        \
    X(owner, bool, sinks, "0", "0 1", "every head has a score without a value")          \
    X(owner, bool, lse, "0", "0 1", "stores the log-sum-exp")                            \
    X(owner, ckl_dtype, cache, "f16", "f16 bf16 e4m3", "type of k and v")                \
    X(owner, bool, append, "0", "0 1", "new keys and values come apart, and are stored") \
    X(owner, bool, latent, "0", "0 1", "values are the first dv elements of the keys")

typedef struct attention_decode_form {
    ATTENTION_DECODE_FORM(FIELD_MEMBER, )
} attention_decode_form;

/* The tensors with heads and tokens: those of attention, and k_new and v_new. */
enum { DECODE_K_NEW = ATTENTION_TENSORS, DECODE_V_NEW, DECODE_TENSORS };

attention_strides attention_decode_strides_of(const ckl_attention_decode_desc *desc, int tensor);

/* Parameters of all kernels; arrays in the order of the tensors. A kernel has those that it uses. */
#define ATTENTION_DECODE_PARAMS(X, owner)                                            \
    X(owner, tensor, K)                                                              \
    X(owner, pointer, x, [DECODE_TENSORS])                                           \
    X(owner, i64, ld, [DECODE_TENSORS])                                              \
    X(owner, i64, ld_head, [DECODE_TENSORS])                                         \
    X(owner, i64, ld_batch, [DECODE_TENSORS])                                        \
    X(owner, pointer, into, [ATTENTION_TENSORS])     /* k_into and v_into */         \
    X(owner, pointer, scales, [ATTENTION_TENSORS])   /* of the heads of K and V */   \
    X(owner, u32, key_vectors, [ATTENTION_TENSORS])  /* from key to key, 16 bytes */ \
    X(owner, u32, page_vectors, [ATTENTION_TENSORS]) /* from page to page */         \
    X(owner, pointer, lengths)                                                       \
    X(owner, pointer, table)                                                         \
    X(owner, pointer, sinks)                                                         \
    X(owner, pointer, lse)                                                           \
    X(owner, u32, batch)                                                             \
    X(owner, u32, pages) /* of the cache */                                          \
    X(owner, u32, kv)                                                                \
    X(owner, u32, kv_heads)                                                          \
    X(owner, u32, table_pages) /* of a sequence */                                   \
    X(owner, i32, left)                                                              \
    X(owner, f32, factor)   /* softcap: scores become tanh(factor * score) first */  \
    X(owner, f32, exponent) /* weights are 2^(exponent * score) */                   \
    X(owner, u32, splits)   /* of a sequence of kv keys */                           \
    X(owner, pointer, counters)                                                      \
    X(owner, pointer, states) /* maximum and sum of each row of a split */           \
    X(owner, pointer, parts)  /* its sum of weighted values */

KERNEL_PARAMS(attention_decode, ATTENTION_DECODE_PARAMS);

extern const implementation attention_decode_latent_few_implementation, attention_decode_latent_implementation,
    attention_decode_sm80_implementation, attention_decode_naive_implementation;

/* attention_decode_plans.c, for all implementations. */
attention_decode_form attention_decode_form_of(const ckl_attention_decode_desc *desc);
ckl_status attention_decode_check_form(const char *who, const ckl_attention_decode_desc *desc,
                                       const attention_decode_form *have);
int64_t attention_decode_rows_of(const ckl_attention_decode_desc *desc); // of a head of the cache

/* Rows start at 16-byte boundaries, at distances that 32 bits can count. */
ckl_status attention_decode_check_strides(const char *who, const ckl_attention_decode_desc *desc);

/* For kernels whose CTAs take `rows` rows and `split` keys: CTAs, workspace, a launch of `grid` CTAs. */
int64_t attention_decode_ctas(const ckl_attention_decode_desc *desc, int rows, int split);
int64_t attention_decode_workspace(const ckl_attention_decode_desc *desc, int rows, int split);
ckl_status attention_decode_launch(const ckl_plan *plan, const ckl_attention_decode_args *args, int rows, int split,
                                   int64_t grid, ckl_stream stream);

/* naive */

#define ATTENTION_DECODE_NAIVE_CONFIG(X, owner) \
    X(owner, int, threads, "64", "32 64 128 256", "threads of a CTA, a row each")

typedef struct attention_decode_naive_config {
    attention_decode_form form;
    ATTENTION_DECODE_NAIVE_CONFIG(FIELD_MEMBER, )
} attention_decode_naive_config;

void attention_decode_naive(const void *config, int kernel);

/*
 * e4m3 from and to f32 by integer arithmetic (attention_decode_narrow.c). A NaN gives 480; f32 is rounded to nearest
 * even up to 448.
 */
val attention_f32_of_e4m3(val byte);
val attention_e4m3_of_f32(val x);

/* sm80 */

#define ATTENTION_DECODE_SM80_CONFIG(X, owner)                                                   \
    X(owner, int, warps, "4", "2 4 8", "warps of a CTA, which take blocks of keys in turn")      \
    X(owner, int, row_warps, "1", "1 2", "of them that share blocks, with 16 rows each")         \
    X(owner, int, keys, "16", "16 32", "keys of a block")                                        \
    X(owner, int, stages, "3", "2 3 4 5", "blocks of a warp in shared memory")                   \
    X(owner, int, ctas, "0", "0 2 3 4", "CTAs that must fit an SM: bounds registers; 0: any")    \
    X(owner, int, split, "512", "128 256 512 1024 2048", "keys that are summed apart")           \
    X(owner, int, run, "1", "1 2 4 8 16", "splits that a CTA takes one after the other")         \
    X(owner, int, cluster, "1", "1 2 4 8 16", "CTAs of a sequence that add without a workspace") \
    X(owner, bool, convert, "0", "0 1", "8 bits become f16 by an instruction of sm_90")          \
    X(owner, bool, whole, "0", "0 1", "a CTA has all keys of a sequence: nobody adds up")        \
    X(owner, bool, ahead, "0", "0 1", "the first blocks go to L2 before grid_wait")              \
    X(owner, bool, early, "0", "0 1", "the next launch may begin at once")

enum {
    ATTENTION_DECODE_STAGES_MAX = 8,
    ATTENTION_DECODE_CLUSTER_MAX = 16,
    ATTENTION_DECODE_GROUP = 16, // splits whose partials are added first; then the groups' sums
};

typedef struct attention_decode_sm80_config {
    attention_decode_form form;
    ATTENTION_DECODE_SM80_CONFIG(FIELD_MEMBER, )
} attention_decode_sm80_config;

/* Of a CTA: tokens times heads of a group. */
static inline int attention_decode_rows(const attention_decode_sm80_config *c)
{
    return 16 * c->row_warps;
}

/* Rings of blocks of a CTA: each of one warp, or of some that share blocks. */
static inline int attention_decode_rings(const attention_decode_sm80_config *c)
{
    return c->warps / c->row_warps;
}

int64_t attention_decode_sm80_smem(const attention_decode_sm80_config *config);

/* Quads of columns of O, of one row, that a thread adds if the threads take all at once; 0: there are too many. */
int attention_decode_quads(const attention_decode_form *form, int rows, int threads);

void attention_decode_sm80(const void *config, int kernel);

/* latent, and latent_few: the same for few rows */

#define ATTENTION_DECODE_LATENT_CONFIG(X, owner)                                         \
    X(owner, int, split, "2048", "256 512 1024 2048 4096", "keys that are summed apart") \
    X(owner, int, run, "0", "0 1 2 4 8 16", "splits of a CTA; 0: as few as CTAs that run at once need")

enum {
    ATTENTION_DECODE_LATENT_KEYS = 64,  // of a block
    ATTENTION_DECODE_LATENT_CHUNK = 64, // columns that lie together
    ATTENTION_DECODE_LATENT_PAGE = 16,  // keys at least: so all pages of a block fit the producer's registers
    ATTENTION_DECODE_LATENT_MAX = 576,  // elements of a key
    ATTENTION_DECODE_FEW_ROWS = 16,     // of latent_few
};

typedef struct attention_decode_latent_config {
    attention_decode_form form;
    ATTENTION_DECODE_LATENT_CONFIG(FIELD_MEMBER, )
} attention_decode_latent_config;

int64_t attention_decode_latent_smem(const attention_decode_form *form);
int64_t attention_decode_latent_few_smem(const attention_decode_form *form);

void attention_decode_latent(const void *config, int kernel);
void attention_decode_latent_few(const void *config, int kernel);
