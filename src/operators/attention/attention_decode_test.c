/* attention_decode_test.c - the definition by attention's, a sequence at a time; operands, cases, population and rejects. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_lab.h"

enum { Q, K, V, LENGTHS, TABLE, SINKS }; // operands

/* Products of q and k stay in f32, and what v holds times the number of keys. */
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

/* The keys that a window leaves, of K and V; everything else once. */
static double bytes(const void *problem)
{
    const ckl_attention_decode_desc *d = problem;
    double keys = (double)(d->left ? min_i64(d->left + d->q - 1, d->kv) : d->kv);
    double cache = (double)(d->batch * d->kv_heads) * keys, rows = (double)(d->batch * d->heads * d->q);
    return (double)ckl_dtype_bytes(d->dtype) * (cache + rows) * (double)(d->d + d->dv);
}

/* One sequence and head as a problem of attention, with K and V gathered. */
typedef struct sequence {
    ckl_attention_desc desc;
    void *k, *v;
    void *host[5];
} sequence;

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

static void *gather(const ckl_attention_decode_desc *d, int which, void *const *host, int64_t batch, int64_t kv_head,
                    int64_t length)
{
    const attention_strides s = attention_decode_strides_of(d, which);
    void *to = malloc((size_t)(length * s.d) * ckl_dtype_bytes(d->dtype) + 1);
    if (!to)
        abort();
    const size_t element = ckl_dtype_bytes(d->dtype), row = (size_t)s.d * element;
    for (int64_t j = 0; j < length; j++)
        memcpy((char *)to + (size_t)j * row,
               (const char *)host[which] + (size_t)key_index(d, &s, host, batch, kv_head, j) * element, row);
    return to;
}

static sequence sequence_of(const ckl_attention_decode_desc *d, void *const *host, int64_t batch, int64_t head)
{
    const int64_t given = (int64_t)dtype_read(CKL_I32, host[LENGTHS], batch);
    const int64_t length = max_i64(0, min_i64(given, d->kv)), kv_head = head / (d->heads / d->kv_heads);
    const size_t element = ckl_dtype_bytes(d->dtype);
    sequence s = { .desc = { .dtype = d->dtype, .batch = 1, .heads = 1, .kv_heads = 1, .q = d->q, .kv = length } };
    s.desc.d = s.desc.ldk = d->d;
    s.desc.dv = s.desc.ldv = d->dv;
    s.desc.causal = true;
    s.desc.left = d->left;
    s.desc.softcap = d->softcap;
    s.desc.sinks = d->sinks;
    s.desc.scale = d->scale;
    s.desc.ldq = d->ldq;
    s.k = gather(d, K, host, batch, kv_head, length);
    s.v = gather(d, V, host, batch, kv_head, length);
    s.host[0] = (char *)host[Q] + (size_t)(batch * d->ldq_batch + head * d->ldq_head) * element;
    s.host[1] = s.k;
    s.host[2] = s.v;
    s.host[4] = d->sinks ? (char *)host[SINKS] + head * 4 : NULL;
    return s;
}

/* Rows of O are tokens of heads of sequences; a row of the logarithms has all tokens of a head. */
static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_attention_decode_desc *d = problem;
    const int64_t head = out.output == 0 ? out.row / d->q : out.row;
    sequence s = sequence_of(d, host, head / d->heads, head % d->heads);
    out.row = out.output == 0 ? out.row % d->q : 0;
    attention_reference(&s.desc, s.host, out);
    free(s.k);
    free(s.v);
}

static const char *const cases[] = {
    "kv=1 d=32                                          # one key",
    "heads=8 kv_heads=2 kv=100 d=64 batch=3 shortest=0 lse=1 # lengths differ, tails",
    "heads=16 kv_heads=2 kv=700 d=128 dtype=bf16 batch=2 shortest=1 page=16 layout=bshd lse=1 # splits, pages",
    "heads=4 kv_heads=1 q=5 kv=300 d=64 page=64 shortest=3 batch=3 # tokens that see no key, two tiles of rows",
    "heads=3 kv_heads=1 q=16 kv=150 d=40 dv=72 page=1 dtype=bf16 lse=1 # rows past the last tile, pages of a key",
    "heads=2 kv=300 d=80 page=7 left=100 batch=2 shortest=1 sinks=1 lse=1 # a window",
    "heads=4 kv_heads=2 q=3 kv=200 d=96 left=1 softcap=3 dtype=bf16 batch=2 shortest=0",
    "heads=2 kv_heads=1 kv=140 d=256 page=32 pages=40",
    "kv=90 heads=5 kv_heads=1 d=17 dv=3 page=5 batch=2 shortest=0 sinks=1 lse=1 # odd rows",
    "kv=50 heads=2 misalign=1 impl=naive",
    "heads=4 kv_heads=2 kv=60 d=32 batch=2 layout=bshd ldk=192 ldv=192 ldk_head=40 # keys with gaps",
    "heads=2 kv_heads=1 q=4 kv=700 d=64 batch=2 shortest=400 impl=sm80 config='rows=32 warps=2 keys=32 stages=2 "
    "split=64'",
    "heads=8 kv_heads=2 q=5 kv=500 d=64 batch=2 impl=sm80 config='rows=16 split=128' # splits of two tiles",
    "kv=500 d=64 page=16 impl=sm80 config='warps=8 keys=16 stages=4 split=256' # warps without keys",
    "batch=0",
    "q=0 lse=1",
    NULL,
};

static const char *const population[] = {
    "batch={1|4|16|64} heads=32 kv_heads={4|8} kv={n:sequence} d=128 page={16|64} layout=bshd dtype={f16|bf16}",
    "batch={1|8|32} heads={16|32} kv={sequence} d={64|128} dtype={f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "dtype=f32", CKL_INVALID, "attention_decode: dtype=f32 is none of f16, bf16" },
    { "batch=-1", CKL_INVALID, "attention_decode: batch=-1 is negative" },
    { "q=17", CKL_INVALID, "attention_decode: q=17 is not in 0..16" },
    { "kv=0", CKL_INVALID, "attention_decode: kv=0 is not in 1..2^30" },
    { "page=257", CKL_INVALID, "attention_decode: page=257 is not in 0..256" },
    { "pages=3", CKL_INVALID, "attention_decode: pages=3 is not part of a contiguous cache" },
    { "page=1 kv=2^30 batch=4", CKL_INVALID, "attention_decode: pages=4294967296 have no numbers of 32 bits" },
    { "heads=6 kv_heads=4", CKL_INVALID, "attention_decode: kv_heads=4 does not divide heads=6" },
    { "ldk=63", CKL_INVALID, "attention_decode: ldk=63 is smaller than d=64" },
    { "heads=2 ldo_head=8", CKL_INVALID, "attention_decode: ldo_head=8 lets elements of o overlap, which span 64" },
    { "softcap=-1", CKL_INVALID, "attention_decode: softcap=-1 is negative" },
    { "d=60 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: d=60 and dv=60 are not multiples of 8 up to 256" },
    { "ldk=68 impl=sm80", CKL_UNSUPPORTED, "attention_decode sm80: ldk=68 elements are not a multiple of 16 bytes" },
    { "impl=sm80 config='split=100'", CKL_INVALID, "attention_decode sm80: split=100 is not a multiple of keys=16" },
    { "impl=sm80 config='stages=1'", CKL_INVALID, "attention_decode sm80: stages=1 is not in 2..8, or ctas=0" },
    { "impl=sm80 config='rows=8'", CKL_INVALID, "attention_decode sm80: rows=8 or keys=16 is neither 16 nor 32" },
    { "d=256 impl=sm80 config='warps=4 stages=8'", CKL_UNSUPPORTED,
      "attention_decode sm80: the config needs 524804 bytes" },
    { "impl=naive config='threads=33'", CKL_INVALID, "attention_decode naive: threads=33 must be a multiple of 32" },
    { "impl=naive config='d=32'", CKL_INVALID, "of the config are not the problem's" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(attention_decode, .operands = operands, .reference = reference, .terms_of = terms,
              .approximation_of = approximation, .flops = flops, .bytes = bytes);
