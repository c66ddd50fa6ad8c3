/*
 * attention_decode_test.c - the definition by attention's, a sequence at a time; operands, cases, population and
 * rejects.
 */
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_lab.h"

enum { Q, K, V, LENGTHS, TABLE, SINKS, O, LSE, SCALE_K, SCALE_V, K_NEW, V_NEW, K_INTO, V_INTO }; // operands
enum { OF_O, OF_LSE, OF_K_INTO, OF_V_INTO };                                                     // outputs

/* Products of q and k stay within f32, and so do sums of v over all keys. */
static int operands(const void *problem, operand *all)
{
    const attention_decode_problem *p = problem;
    const double kv = (double)p->desc.kv;
    all[Q].hard_max = all[K].hard_max = 0x1p40;
    all[V].hard_max = 0x1p100;
    all[LENGTHS] = operand_range(all[LENGTHS], p->shortest < 0 ? kv : (double)p->shortest, kv);
    all[TABLE] = operand_range(all[TABLE], 0, (double)p->desc.pages - 1);
    all[TABLE].distinct = true;
    all[SINKS] = operand_range(all[SINKS], -4, 4);
    all[K_INTO].role = all[V_INTO].role = OPERAND_IN_OUT; // most of a cache is to stay as it is
    all[K_NEW].hard_max = 0x1p40;
    all[V_NEW].hard_max = 0x1p100;
    for (int i = SCALE_K; i <= SCALE_V; i++)
        all[i] = operand_range(all[i], 0.25, 2);
    for (int i = K; i <= V && p->desc.cache == CKL_E4M3; i++) { // without NaN, new ones too
        all[i] = operand_range(all[i], -2, 2);
        all[K_NEW + i - K] = operand_range(all[K_NEW + i - K], -2, 2);
    }
    return 0;
}

static double terms(const void *problem)
{
    return (double)((const attention_decode_problem *)problem)->desc.kv;
}

static double approximation(const void *problem)
{
    return attention_rounding(((const attention_decode_problem *)problem)->desc.dtype);
}

static double flops(const void *problem)
{
    const ckl_attention_decode_desc *d = problem;
    double keys = (double)(d->left ? min_i64(d->left, d->kv) : d->kv);
    return 2 * (double)(d->batch * d->heads * d->q) * keys * (double)(d->d + d->dv);
}

/* K and V for the keys in the window; everything else once. */
static double bytes(const void *problem)
{
    const ckl_attention_decode_desc *d = problem;
    double keys = (double)(d->left ? min_i64(d->left + d->q - 1, d->kv) : d->kv);
    double cache = (double)(d->batch * d->kv_heads) * keys, rows = (double)(d->batch * d->heads * d->q);
    double appended = d->append ? (double)(d->batch * d->kv_heads * d->q) : 0; // read once; stored in place of reading
    double key = (double)ckl_dtype_bytes(d->cache) * (double)(d->latent ? d->d : d->d + d->dv);
    return key * cache + (double)ckl_dtype_bytes(d->dtype) * (rows + appended) * (double)(d->d + d->dv);
}

/* One sequence and head as a problem of attention, with K and V gathered. */
typedef struct sequence {
    ckl_attention_desc desc;
    void *k, *v;
    void *host[5];
} sequence;

static int64_t length_of(const ckl_attention_decode_desc *d, void *const *host, int64_t batch)
{
    const int64_t given = (int64_t)dtype_read(CKL_I32, host[LENGTHS], batch);
    return max_i64(0, min_i64(given, d->kv));
}

/* Row j of a head: of its page, or of its sequence. */
static int64_t key_index(const ckl_attention_decode_desc *d, const attention_strides *s, void *const *host,
                         int64_t batch, int64_t kv_head, int64_t j)
{
    int64_t of = batch, key = j;
    if (d->page) {
        of = (int64_t)dtype_read(CKL_I32, host[TABLE], batch * ceil_div(d->kv, d->page) + j / d->page);
        key = j % d->page;
    }
    return of * s->batch.stride + kv_head * s->heads.stride + key * s->tokens.stride;
}

/* The scale of a head of K or V. */
static double scale_of(const ckl_attention_decode_desc *d, int which, void *const *host, int64_t kv_head)
{
    return d->cache == CKL_E4M3 ? dtype_read(CKL_F32, host[SCALE_K + which - K], kv_head) : 1;
}

/* Element l of the new row of token i of K or V, as the cache stores it: rounded from the quotient in f32. */
static double new_element(const ckl_attention_decode_desc *d, int which, void *const *host, const int64_t at[4])
{
    const attention_strides s = attention_decode_strides_of(d, which == K ? DECODE_K_NEW : DECODE_V_NEW);
    const int64_t index = at[0] * s.batch.stride + at[1] * s.heads.stride + at[2] * s.tokens.stride + at[3];
    const double x = dtype_read(d->dtype, host[which == K || d->latent ? K_NEW : V_NEW], index);
    uint8_t rounded;
    if (d->cache != CKL_E4M3)
        return x;
    dtype_write(CKL_E4M3, &rounded, 0, (double)((float)x / (float)scale_of(d, which, host, at[1])));
    return dtype_read(CKL_E4M3, &rounded, 0);
}

/* Keys or values of a head, without their scale: dtype has all that e4m3 has. */
static void *gather(const ckl_attention_decode_desc *d, int which, void *const *host, int64_t batch, int64_t kv_head,
                    int64_t length)
{
    const attention_strides s = attention_decode_strides_of(d, which);
    const int64_t old = d->append ? length - d->q : length;
    const void *const cache = host[d->latent ? K : which];
    const size_t element = ckl_dtype_bytes(d->dtype);
    void *to = heap_alloc((size_t)(length * s.d) + 1, element);
    double *row = heap_alloc((size_t)s.d, sizeof *row);
    for (int64_t j = 0; j < length; j++) {
        const int64_t from = j < old ? key_index(d, &s, host, batch, kv_head, j) : 0;
        if (j < old && d->cache == d->dtype) {
            memcpy((char *)to + (size_t)(j * s.d) * element, (const char *)cache + (size_t)from * element,
                   (size_t)s.d * element);
            continue;
        }
        if (j < old)
            dtype_read_run(d->cache, cache, from, s.d, row);
        for (int64_t l = 0; l < s.d; l++)
            dtype_write(d->dtype, to, j * s.d + l,
                        j < old ? row[l] : new_element(d, which, host, (int64_t[]){ batch, kv_head, j - old, l }));
    }
    heap_free(row);
    return to;
}

static sequence sequence_of(const ckl_attention_decode_desc *d, void *const *host, int64_t batch, int64_t head)
{
    const int64_t length = length_of(d, host, batch), kv_head = head / (d->heads / d->kv_heads);
    const size_t element = ckl_dtype_bytes(d->dtype);
    sequence s = { .desc = { .dtype = d->dtype, .batch = 1, .heads = 1, .kv_heads = 1, .q = d->q, .kv = length } };
    s.desc.d = s.desc.ldk = d->d;
    s.desc.dv = s.desc.ldv = d->dv;
    s.desc.causal = true;
    s.desc.left = d->left;
    s.desc.softcap = d->softcap;
    s.desc.sinks = d->sinks;
    s.desc.scale = d->scale * (float)scale_of(d, K, host, kv_head);
    s.desc.ldq = d->ldq;
    s.k = gather(d, K, host, batch, kv_head, length);
    s.v = gather(d, V, host, batch, kv_head, length);
    s.host[0] = (char *)host[Q] + (size_t)(batch * d->ldq_batch + head * d->ldq_head) * element;
    s.host[1] = s.k;
    s.host[2] = s.v;
    s.host[4] = d->sinks ? (char *)host[SINKS] + head * 4 : NULL;
    return s;
}

/* Is key `key` of batch or page `of` new? Sets the sequence and its number among the new ones. */
static bool find_new(const ckl_attention_decode_desc *d, void *const *host, int64_t of, int64_t key, int64_t *batch,
                     int64_t *token)
{
    const int64_t pages = d->page ? ceil_div(d->kv, d->page) : 1, each = d->page ? d->page : d->kv;
    for (int64_t b = 0; b < d->batch; b++)
        for (int64_t p = 0; p < pages; p++) {
            const int64_t there = d->page ? (int64_t)dtype_read(CKL_I32, host[TABLE], b * pages + p) : b;
            const int64_t j = p * each + key, length = length_of(d, host, b);
            if (there == of && j < length && j >= length - d->q) {
                *batch = b;
                *token = j - (length - d->q);
                return true;
            }
        }
    return false;
}

/* A row of the cache: the new one, else what was there. */
static void appended(const ckl_attention_decode_desc *d, void *const *host, reference_slice out)
{
    const int which = out.output == OF_K_INTO ? K : V;
    const attention_strides s = attention_decode_strides_of(d, which);
    const int64_t key = out.row % s.tokens.size, kv_head = out.row / s.tokens.size % s.heads.size,
                  of = out.row / s.tokens.size / s.heads.size;
    const int64_t first = of * s.batch.stride + kv_head * s.heads.stride + key * s.tokens.stride;
    int64_t batch, token;
    const bool is_new = find_new(d, host, of, key, &batch, &token);
    for (int64_t l = 0; l < out.count; l++) {
        out.value[l] = is_new ? new_element(d, which, host, (int64_t[]){ batch, kv_head, token, out.first + l })
                              : dtype_read(d->cache, host[which == K ? K_INTO : V_INTO], first + out.first + l);
        out.magnitude[l] = 0;
    }
}

/* A row of O is a token of a head of a sequence; a row of lse has all tokens of a head. */
static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_attention_decode_desc *d = problem;
    if (out.output == OF_K_INTO || out.output == OF_V_INTO) {
        appended(d, host, out);
        return;
    }
    const int64_t head = out.output == 0 ? out.row / d->q : out.row;
    sequence s = sequence_of(d, host, head / d->heads, head % d->heads);
    out.row = out.output == 0 ? out.row % d->q : 0;
    attention_reference_by(&s.desc, d->cache == CKL_E4M3 ? CKL_F16 : d->dtype, s.host, out); // e4m3 meets f16
    const double scale = scale_of(d, V, host, head % d->heads / (d->heads / d->kv_heads));
    for (int64_t i = 0; i < out.count && out.output == OF_O; i++) {
        out.value[i] *= scale;
        out.magnitude[i] *= out.magnitude[i] == REFERENCE_OPEN ? 1 : fabs(scale);
    }
    heap_free(s.k);
    heap_free(s.v);
}

static const char *const cases[] = {
    "kv=1 d=32                                          # one key",
    "heads=8 kv_heads=2 kv=100 d=64 batch=3 shortest=0 lse=1 # lengths differ, tails",
    "heads=8 kv_heads=2 kv=27 d=128 batch=3 shortest=0 page=16 layout=bshd cache=e4m3 dtype=bf16 append=1 lse=1 # a "
    "warp "
    "for each block",
    "heads=8 kv_heads=1 kv=16 d=128 batch=3 shortest=0 page=16 append=1 dtype=bf16 lse=1 impl=sm80 "
    "config='warps=1' # a single one",
    "heads=16 kv_heads=2 kv=700 d=128 dtype=bf16 batch=2 shortest=1 page=16 layout=bshd lse=1 # splits, pages",
    "heads=2 kv_heads=1 kv=151165 d=1 lse=1 layout=bhsd cache=e4m3 shortest=1 impl=naive # a sum of many weights",
    "heads=4 kv_heads=1 q=5 kv=100 d=64 page=64 shortest=3 batch=3 # tokens that see no key, two tiles of rows",
    "heads=3 kv_heads=1 q=16 kv=150 d=40 dv=72 page=1 dtype=bf16 lse=1 # rows past the last tile, pages of a key",
    "heads=2 kv=120 d=80 page=7 left=40 batch=2 shortest=1 sinks=1 lse=1 # a window",
    "heads=4 kv_heads=2 q=3 kv=200 d=96 left=1 softcap=3 dtype=bf16 batch=2 shortest=0",
    "heads=2 kv_heads=1 kv=140 d=256 page=32 pages=40 impl=sm80",
    "kv=90 heads=5 kv_heads=1 d=17 dv=3 page=5 batch=2 shortest=0 sinks=1 lse=1 # odd rows",
    "kv=50 heads=2 misalign=1 impl=naive",
    "heads=4 kv_heads=2 kv=60 d=32 batch=2 layout=bshd ldk=192 ldv=192 ldk_head=40 # keys with gaps",
    "heads=2 kv_heads=1 q=4 kv=700 d=64 batch=2 shortest=400 impl=sm80 config='warps=4 row_warps=2 cluster=1 "
    "keys=32 stages=2 split=64'",
    "heads=8 kv_heads=2 q=5 kv=500 d=64 batch=2 impl=sm80 config='whole=0 warps=4 row_warps=1 split=128' # splits of "
    "two tiles",
    "heads=8 kv_heads=2 q=5 kv=500 d=40 batch=2 lse=1 impl=sm80 config='whole=0 warps=4 row_warps=1 split=128' # the "
    "same, a part of the threads' columns",
    "kv=500 d=64 page=16 impl=sm80 config='whole=0 warps=8 keys=16 stages=4 split=256' # warps without keys",
    "heads=4 kv_heads=1 kv=1200 d=128 batch=2 shortest=400 page=16 lse=1 sinks=1 impl=sm80 config='split=32 cluster=1' "
    "# groups of splits",
    "heads=3 kv_heads=1 kv=900 d=128 batch=2 shortest=300 page=16 lse=1 impl=sm80 config='split=32 cluster=1' # more "
    "than a group at once",
    "heads=2 kv_heads=1 q=9 kv=1000 d=64 dv=40 batch=2 shortest=200 left=700 impl=sm80 config='warps=4 "
    "row_warps=1 keys=16 split=16 cluster=1' # the same, two tiles and a window",
    "heads=4 kv_heads=1 kv=1200 d=128 batch=3 shortest=1 page=16 lse=1 sinks=1 impl=sm80 config='split=64 run=4 "
    "cluster=1' # several splits a CTA",
    "heads=24 kv_heads=2 q=2 kv=1500 d=80 dv=40 batch=2 shortest=300 dtype=bf16 impl=sm80 config='warps=4 "
    "row_warps=1 keys=16 stages=4 split=64 run=16' # all of a group; two tiles",
    "heads=6 kv_heads=2 q=3 kv=700 d=64 batch=2 shortest=100 cache=e4m3 append=1 impl=sm80 config='warps=2 split=64 "
    "run=2 cluster=1' # the same, new keys in any of them",
    "heads=2 kv_heads=1 kv=1301 d=16 batch=2 shortest=1 impl=sm80 config='split=640 cluster=1' # warps meet within a "
    "split",
    "heads=2 kv_heads=1 kv=1301 d=16 batch=2 shortest=1100 page=16 impl=sm80 config='split=576 run=2'",
    "heads=8 kv_heads=1 kv=1500 d=256 batch=2 shortest=1 lse=1 impl=sm80 config='split=64 run=4 cluster=1' # queries "
    "loaded again",
    "heads=6 kv_heads=2 kv=700 d=192 dv=256 batch=2 shortest=1 sinks=1 dtype=bf16 impl=sm80 config='split=64 run=4 "
    "cluster=1'",
    "heads=4 kv_heads=1 kv=1200 d=128 batch=4 shortest=0 page=16 lse=1 sinks=1 impl=sm80 config='split=128 run=2 "
    "cluster=8' # clusters with idle CTAs",
    "heads=4 kv_heads=1 kv=1300 d=128 batch=3 shortest=0 page=16 lse=1 impl=sm80 config='split=96 cluster=16'",
    "heads=2 kv_heads=1 q=9 kv=1000 d=64 dv=40 batch=3 shortest=200 left=300 impl=sm80 config='warps=4 "
    "row_warps=1 split=256 cluster=4' # the same, two tiles and a window",
    "heads=16 kv_heads=2 q=3 kv=900 d=128 batch=3 shortest=1 page=16 layout=bshd cache=e4m3 dtype=bf16 append=1 "
    "impl=sm80 config='stages=3 split=128 run=4 cluster=2'",
    "heads=8 kv_heads=2 kv=300 d=64 batch=3 shortest=0 lse=1 cache=e4m3",
    "heads=8 kv_heads=1 kv=1100 d=128 batch=2 shortest=1 page=16 layout=bshd cache=e4m3 dtype=bf16 impl=sm80 "
    "config='stages=5 ctas=2 split=128 run=16'",
    "heads=8 kv_heads=4 kv=300 d=64 batch=2 cache=e4m3 fill=normal lse=1 append=1 # scales of either sign",
    "heads=8 kv_heads=4 kv=90 d=64 cache=e4m3 dtype=bf16 softcap=4 fill=normal impl=sm80 config='convert=0'",
    "heads=24 kv_heads=2 kv=300 d=128 batch=2 cache=e4m3 dtype=bf16 lse=1 impl=sm80 config='convert=0' # by integer "
    "arithmetic",
    "heads=8 kv_heads=2 kv=8398 d=8 lse=1 cache=e4m3 shortest=0 fill=integers seed=702297 # a long sum in f32",
    "heads=8 kv_heads=1 kv=700 d=128 batch=2 shortest=1 page=16 layout=bshd cache=e4m3 dtype=bf16 softcap=4 impl=sm80",
    "heads=2 kv_heads=1 q=3 kv=80 d=80 dv=112 page=7 left=40 sinks=1 cache=e4m3 lse=1 # words past the last ones",
    "heads=2 kv_heads=1 q=2 kv=40 d=8 dv=901 cache=e4m3 append=1 fill=integers # more columns than a kernel has room "
    "for",
    "heads=3 kv_heads=1 kv=90 d=256 cache=e4m3 impl=sm80 config='whole=0 warps=4 keys=32 stages=2 split=64'",
    "heads=8 kv_heads=2 kv=300 d=64 batch=3 shortest=0 append=1 lse=1 # no keys but the new one, or none",
    "heads=4 kv_heads=2 q=5 kv=260 d=128 batch=3 shortest=2 page=16 layout=bshd append=1 dtype=bf16 impl=sm80 "
    "config='whole=0 run=1 split=128 cluster=1' # over blocks, pages and splits",
    "heads=40 kv_heads=2 q=2 kv=90 d=96 dv=64 batch=2 shortest=1 append=1 cache=e4m3 lse=1 # several tiles of rows",
    "heads=8 kv_heads=1 q=4 kv=1500 d=128 batch=2 shortest=300 append=1 page=16 dtype=bf16 impl=sm80 config='split=64 "
    "keys=16 run=16 cluster=1' # warps that share blocks",
    "heads=4 kv_heads=2 kv=700 d=128 dv=64 batch=3 shortest=0 page=16 layout=bshd impl=sm80 config='split=128 run=1 "
    "cluster=1 ahead=1 early=1' # keys to L2 before the kernel before has ended",
    "heads=4 kv_heads=2 kv=300 d=64 batch=2 shortest=1 left=100 cache=e4m3 append=1 impl=sm80 config='ahead=1 early=1'",
    "heads=24 kv_heads=2 q=2 kv=700 d=40 dv=72 batch=2 shortest=1 left=300 sinks=1 lse=1 impl=sm80 config='warps=2 "
    "split=64 cluster=1' # the same, a ring",
    "heads=16 kv_heads=2 q=4 kv=700 d=128 batch=2 shortest=1 page=16 layout=bshd cache=e4m3 append=1 lse=1 # of 8 bits",
    "heads=4 kv_heads=1 q=16 kv=40 d=32 batch=3 shortest=0 page=1 append=1 cache=e4m3 dtype=bf16 left=9",
    "heads=8 kv_heads=1 q=16 kv=66 d=32 batch=9 page=3 left=9 dtype=bf16 lse=1 cache=e4m3 append=1 shortest=0 "
    "fill=hard seed=1",
    "heads=8 kv_heads=2 q=2 kv=150 d=64 batch=3 shortest=1 page=16 layout=bshd cache=e4m3 dtype=bf16 append=1 lse=1 "
    "impl=sm80 config='whole=0 convert=1 split=64' # new rows in registers, of two splits",
    "heads=40 kv_heads=1 kv=90 d=64 batch=2 shortest=1 page=16 layout=bshd append=1 # the same of several tiles",
    "heads=8 kv_heads=2 kv=1300 d=128 batch=2 shortest=900 page=16 layout=bshd cache=e4m3 dtype=bf16 append=1 "
    "impl=sm80 config='convert=1 keys=32 split=384 run=4'",
    "heads=8 kv_heads=2 kv=500 d=128 batch=2 shortest=1 cache=e4m3 dtype=bf16 append=1 impl=sm80 config='convert=1 "
    "keys=16 ctas=4 stages=3'",
    "batch=64 heads=32 kv_heads=8 kv=41 d=128 shortest=1 page=64 layout=bshd cache=e4m3 dtype=bf16 append=1 # keys "
    "asked "
    "for early, beside which four CTAs an SM spill",
    "batch=64 heads=32 kv_heads=8 kv=100 d=128 shortest=1 page=64 layout=bshd # two blocks a warp",
    "heads=2 kv_heads=1 q=2 kv=40 d=17 append=1 ldk_new=20 ldv_new_head=60",
    "latent=1 heads=16 kv_heads=1 kv=300 d=576 dv=512 batch=3 shortest=0 lse=1 # no keys, tails",
    "latent=1 heads=16 kv_heads=1 kv=400 d=576 dv=512 batch=2 shortest=220 page=64 dtype=bf16 layout=bshd lse=1 "
    "sinks=1",
    "latent=1 heads=70 kv_heads=1 kv=200 d=288 dv=256 batch=2 shortest=1 page=16 # two tiles of rows, part of a chunk",
    "latent=1 heads=20 kv_heads=2 q=3 kv=450 d=192 dv=128 batch=2 shortest=2 page=16 left=150 lse=1 # windows of three "
    "tokens",
    "latent=1 heads=4 kv_heads=2 q=2 kv=520 d=136 dv=128 page=256 softcap=2 ldk=200 ldk_head=160000 dtype=bf16 "
    "impl=sm80",
    "latent=1 heads=2 kv_heads=1 kv=900 d=576 dv=512 impl=latent config='split=128' # more splits than are added at a "
    "time",
    "latent=1 heads=128 kv_heads=1 kv=130 d=576 dv=512 batch=2 shortest=1 page=64 dtype=bf16 lse=1",
    "latent=1 heads=16 kv_heads=1 q=5 kv=150 d=576 dv=512 batch=2 shortest=2 page=16 append=1 dtype=bf16 lse=1 # over "
    "blocks",
    "latent=1 heads=16 kv_heads=1 kv=3000 d=136 dv=128 batch=3 shortest=2000 page=16 lse=1 impl=latent_few "
    "config='split=64 run=11' # CTAs of several splits",
    "latent=1 heads=8 kv_heads=2 q=2 kv=900 d=192 dv=128 batch=4 shortest=0 sinks=1 lse=1 dtype=bf16 impl=latent_few "
    "config='split=64 run=20' # the same, of several heads and sequences",
    "latent=1 heads=2 kv_heads=1 kv=130 d=136 dv=128 batch=70 shortest=0 page=16 impl=latent_few config='split=64 "
    "run=9' "
    "# more sequences than lanes",
    "latent=1 heads=9 kv_heads=1 kv=900 d=288 dv=256 batch=2 shortest=1 scale=6 dtype=bf16 lse=1 impl=latent_few # "
    "maxima that grow",
    "latent=1 heads=4 kv_heads=2 q=4 kv=500 d=576 dv=512 left=150 softcap=3 sinks=1 lse=1 impl=latent_few",
    "latent=1 heads=4 kv_heads=1 q=4 kv=150 d=576 dv=512 batch=3 shortest=0 page=16 append=1 dtype=bf16 lse=1 "
    "impl=latent_few",
    "latent=1 heads=2 kv_heads=1 kv=3 d=136 dv=128 batch=60 shortest=0 lse=1 fill=hard seed=1 # NaN past the ends",
    "latent=1 heads=70 kv_heads=2 kv=200 d=192 dv=128 batch=3 shortest=0 append=1 layout=bshd impl=latent "
    "config='split=64' # two tiles of rows",
    "latent=1 heads=40 kv_heads=1 kv=700 d=576 dv=512 batch=2 shortest=1 page=16 dtype=bf16 lse=1 impl=latent "
    "config='split=256'",
    "latent=1 heads=70 kv_heads=1 kv=700 d=192 dv=128 batch=3 shortest=0 page=16 lse=1 impl=latent config='split=64 "
    "run=5' # two tiles of rows, CTAs of several splits",
    "latent=1 heads=40 kv_heads=1 kv=700 d=576 dv=512 batch=2 shortest=1 page=16 append=1 dtype=bf16 impl=latent "
    "config='split=64 run=4'",
    "latent=1 heads=12 kv_heads=1 q=3 kv=330 d=192 dv=128 batch=3 shortest=2 append=1 left=150 sinks=1 impl=latent "
    "config='split=64'",
    "latent=1 heads=40 kv_heads=1 kv=700 d=576 dv=512 batch=2 shortest=1 page=16 dtype=bf16 impl=latent "
    "config='split=64' "
    "# a CTA is second to its own node",
    "latent=1 heads=2 kv_heads=1 q=16 kv=100 d=136 dv=128 page=16 lse=1 impl=latent # groups of two",
    "latent=1 heads=8 kv_heads=2 q=2 kv=90 d=64 dv=32 page=3 batch=2 shortest=1 append=1 # small heads",
    "latent=1 heads=4 kv_heads=2 kv=90 d=64 dv=32 page=3 batch=2 shortest=1 # small heads, by sm80",
    "latent=1 heads=2 kv_heads=1 kv=50 d=72 dv=64 cache=e4m3 # by naive",
    "batch=2 heads=16 kv_heads=1 q=16 kv=18 d=16 left=3 dtype=bf16 lse=1 cache=e4m3 shortest=0 fill=hard seed=4 # what "
    "f16 loses of rows with a large number",
    "batch=0",
    "q=0 lse=1",
    "q=0 append=1 kv=5",
    NULL,
};

static const char *const population[] = {
    "batch={1|4|16|64} heads=32 kv_heads={4|8} kv={n:sequence} d=128 page={16|64} layout=bshd dtype={f16|bf16}",
    "batch={1|8|32} heads={16|32} kv={sequence} d={64|128} dtype={f16|bf16}",
    "batch={1|16|64} heads=32 kv_heads=8 kv={sequence} d=128 page={16|64} layout=bshd dtype=bf16 cache={bf16|e4m3} "
    "append=1",
    NULL,
};

static const test_reject rejects[] = {
    { "kv=100 shortest=101", CKL_INVALID, "attention_decode: shortest=101 is more than kv=100" },
    { "kv=100 shortest=-2", CKL_INVALID, "attention_decode: shortest=-2 is less than -1" },
    { "dtype=f32", CKL_INVALID, "attention_decode: dtype=f32 is none of f16, bf16" },
    { "batch=-1", CKL_INVALID, "attention_decode: batch=-1 is negative" },
    { "q=17", CKL_INVALID, "attention_decode: q=17 is not in 0..16" },
    { "kv=0", CKL_INVALID, "attention_decode: kv=0 is not in 1..2^30" },
    { "page=257", CKL_INVALID, "attention_decode: page=257 is not in 0..256" },
    { "pages=3", CKL_INVALID, "attention_decode: pages=3 is not part of a contiguous cache" },
    { "page=1 kv=2^30 batch=4", CKL_INVALID, "attention_decode: pages=4294967296 have no numbers of 32 bits" },
    { "heads=6 kv_heads=4", CKL_INVALID, "attention_decode: kv_heads=4 does not divide heads=6" },
    { "ldk=63", CKL_INVALID, "attention_decode: ldk=63 is smaller than d=64" },
    { "cache=bf16", CKL_INVALID, "attention_decode: cache=bf16 is neither dtype=f16 nor e4m3" },
    { "ldv_new=8", CKL_INVALID, "attention_decode: ldv_new=8 is not part of a problem without append" },
    { "append=1 ldk_new=63", CKL_INVALID, "attention_decode: ldk_new=63 is smaller than d=64" },
    { "append=1 kv_heads=2 heads=2 ldv_head=8", CKL_INVALID,
      "attention_decode: ldv_head=8 lets elements of v_into overlap, which span 64" },
    { "cache=e4m3 d=72 impl=sm80", CKL_UNSUPPORTED,
      "attention_decode sm80: d=72 and dv=72 are not multiples of 16 up to 256" },
    { "cache=e4m3 ldk=72 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: ldk=72 elements are not a multiple" },
    { "append=1 ldk_new=68 q=2 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: ldk_new=68 elements are not a" },
    { "latent=1 d=64 dv=72", CKL_INVALID, "attention_decode: dv=72 of a latent cache is more than d=64" },
    { "latent=1 ldv=64", CKL_INVALID, "attention_decode: ldv=64 is not part of a latent cache" },
    { "latent=1 append=1 cache=e4m3", CKL_INVALID, "attention_decode: append=1 is not part of a latent cache of e4m3" },
    { "latent=1 append=1 ldv_new=64", CKL_INVALID, "attention_decode: ldv_new=64 is not part of a latent cache" },
    { "impl=latent", CKL_UNSUPPORTED, "attention_decode latent: the cache is not latent, or of another type than q" },
    { "latent=1 d=576 dv=576 impl=latent", CKL_UNSUPPORTED,
      "attention_decode latent: dv=576 is not a multiple of 128, or d=576 not one of 8 from dv+8 up to 576" },
    { "latent=1 d=576 dv=512 page=24 impl=latent", CKL_UNSUPPORTED,
      "attention_decode latent: page=24 neither divides 64, from 16 on, nor is a multiple of it" },
    { "latent=1 d=576 dv=512 impl=latent config='split=96'", CKL_INVALID,
      "attention_decode latent: split=96 is not a multiple of 64" },
    { "latent=1 heads=17 kv_heads=1 d=576 dv=512 impl=latent_few", CKL_UNSUPPORTED,
      "attention_decode latent_few: 17 rows of a head are more than 16" },
    { "latent=1 d=576 dv=384 impl=latent_few", CKL_UNSUPPORTED,
      "attention_decode latent_few: dv=384 is none of 128, 256, 512" },
    { "latent=1 d=576 dv=512 impl=latent_few config='run=-1'", CKL_INVALID,
      "attention_decode latent_few: run=-1 is negative" },
    { "heads=2 ldo_head=8", CKL_INVALID, "attention_decode: ldo_head=8 lets elements of o overlap, which span 64" },
    { "softcap=-1", CKL_INVALID, "attention_decode: softcap=-1 is negative" },
    { "d=60 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: d=60 and dv=60 are not multiples of 8 up to 256" },
    { "ldk=68 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: ldk=68 elements are not a multiple of 16 bytes" },
    { "impl=sm80 config='split=100'", CKL_INVALID, "attention_decode sm80: split=100 is not a multiple of keys=16" },
    { "kv=600 impl=sm80 config='split=512 run=1 cluster=1 whole=1'", CKL_UNSUPPORTED,
      "attention_decode sm80: whole=1 is not for kv=600 in runs of 1 times 512 keys" },
    { "impl=sm80 config='run=3'", CKL_INVALID, "attention_decode sm80: run=3 does not divide 16" },
    { "impl=sm80 config='convert=1'", CKL_UNSUPPORTED, "attention_decode sm80: convert=1 is of cache=e4m3 and sm_90" },
    { "left=9 impl=sm80 config='run=2'", CKL_INVALID, "or is more than 1 with left" },
    { "impl=sm80 config='split=96 run=2'", CKL_INVALID, "split=96 that is no multiple of keys=16 times 4 warps" },
    { "kv=1500 impl=sm80 config='split=512 run=1 cluster=2'", CKL_UNSUPPORTED,
      "attention_decode sm80: cluster=2 is not in 1..16, has less CTAs than a sequence" },
    { "impl=sm80 config='warps=3 row_warps=2'", CKL_INVALID,
      "attention_decode sm80: row_warps=2 is neither 1, nor 2 of warps=3" },
    { "impl=sm80 config='stages=1'", CKL_INVALID, "attention_decode sm80: stages=1 is not in 2..8, or ctas=0" },
    { "kv=2000 d=128 impl=sm80 config='warps=4 keys=32 stages=2 ctas=4 cluster=1'", CKL_UNSUPPORTED,
      "attention_decode sm80: ctas=4 of 4 warps leave too few registers for dv=128, run=1 and keys=32" },
    { "impl=sm80 config='keys=8'", CKL_INVALID, "attention_decode sm80: keys=8 is neither 16 nor 32" },
    { "d=256 impl=sm80 config='warps=4 stages=8'", CKL_UNSUPPORTED,
      "attention_decode sm80: the config needs 524324 bytes" },
    { "impl=naive config='threads=33'", CKL_INVALID, "attention_decode naive: threads=33 is no multiple of 32" },
    { "impl=naive config='d=32'", CKL_INVALID, "of the config are not the problem's" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(attention_decode, .operands = operands, .reference = reference, .terms_of = terms,
              .approximation_of = approximation, .flops = flops, .bytes = bytes);
