/* attention_test.c - attention's operands, cases, population and rejects. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"

enum { Q, K, V, MASK, SINKS, STARTS_Q, STARTS_KV, O, LSE, DOUT, INPUT_0 = ATTENTION_SCORE_INPUTS, INPUT_1 }; // operands
enum { DOCUMENTS = 5 };

/* Weights stay near 1 whatever lse is: gradients of values that are not finite are left open. */
static void backward_operands(operand *all)
{
    for (int i = Q; i <= DOUT; i++)
        if (i != STARTS_Q && i != STARTS_KV && all[i].dtype != CKL_BOOL)
            all[i] = operand_range(all[i], i == LSE ? 2 : -1, i == LSE ? 3 : 1);
}

/* Documents of a few tokens; prefixes of up to all keys. */
static void score_operands(const ckl_attention_desc *d, operand *all)
{
    if (!d->score || !all[INPUT_0].dtype)
        return;
    bool is_prefix = strcmp(d->score, "prefix") == 0;
    for (int i = INPUT_0; i <= INPUT_1; i++)
        all[i] = operand_range(all[i], 0, is_prefix ? (double)d->kv : 1);
    if (!is_prefix)
        all[INPUT_0].rising = all[INPUT_1].rising = DOCUMENTS;
}

/* Products of q and k stay within f32, and so do sums of v over all keys. */
static int operands(const void *problem, operand *all)
{
    const attention_problem *p = problem;
    score_operands(&p->desc, all);
    all[STARTS_Q] = operand_range(all[STARTS_Q], 0, (double)p->desc.q);
    all[STARTS_KV] = operand_range(all[STARTS_KV], 0, (double)p->desc.kv);
    all[STARTS_Q].rising = p->desc.q_total;
    all[STARTS_KV].rising = min_i64(p->desc.kv_total, p->desc.batch * p->desc.kv); // others are in no sequence
    if (p->desc.direction == CKL_DIRECTION_BACKWARD) {
        backward_operands(all);
        return 0;
    }
    if (p->q_factor != 1)
        all[Q] = operand_range(all[Q], -(double)p->q_factor, (double)p->q_factor);
    all[Q].hard_max = all[K].hard_max = 0x1p40;
    all[V].hard_max = 0x1p100;
    all[MASK].hard_max = 0x1p40;
    all[SINKS] = operand_range(all[SINKS], -4, 4);
    return 0;
}

static double terms(const void *problem)
{
    const ckl_attention_desc *d = problem;
    return (double)(d->direction == CKL_DIRECTION_FORWARD ? d->kv : d->kv + d->q * (d->heads / d->kv_heads));
}

static double approximation(const void *problem)
{
    return attention_rounding(((const ckl_attention_desc *)problem)->dtype);
}

/* Queries times the keys that they see. */
static double pairs(const ckl_attention_desc *d)
{
    double sum = 0;
    for (int64_t i = 0; i < d->q; i++) {
        int64_t own = i + d->kv - d->q, first = d->left ? own + 1 - d->left : 0;
        int64_t end = d->causal || d->right ? own + 1 + d->right : d->kv;
        sum += (double)max_i64(0, min_i64(d->kv, end) - max_i64(0, first));
    }
    return sum;
}

static double flops(const void *problem)
{
    const ckl_attention_desc *d = problem;
    double once = 2 * (double)(d->batch * d->heads) * pairs(d);
    if (d->direction == CKL_DIRECTION_FORWARD)
        return once * (double)(d->d + d->dv);
    return once * (double)(3 * d->d + 2 * d->dv); // scores, their gradients, dq, dk and dv
}

/* The FLOP of all sequences of a ragged problem, by the lengths in its operands. */
static double flops_of_data(const void *problem, void *const *host)
{
    ckl_attention_desc d = *(const ckl_attention_desc *)problem;
    if (!d.ragged)
        return flops(&d);
    double sum = 0;
    const int64_t batch = d.batch;
    d.batch = 1;
    for (int64_t b = 0; b < batch; b++) {
        d.q = (int64_t)(dtype_read(CKL_I32, host[STARTS_Q], b + 1) - dtype_read(CKL_I32, host[STARTS_Q], b));
        d.kv = (int64_t)(dtype_read(CKL_I32, host[STARTS_KV], b + 1) - dtype_read(CKL_I32, host[STARTS_KV], b));
        sum += flops(&d);
    }
    return sum;
}

/*
 * The gradients' reference weighs a query and a key again for every row they meet in: 8 operations for one of a kernel.
 */
static double reference_flops(const void *problem)
{
    const bool is_forward = ((const ckl_attention_desc *)problem)->direction == CKL_DIRECTION_FORWARD;
    return (is_forward ? 1 : 8) * flops(problem);
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    if (((const ckl_attention_desc *)problem)->direction == CKL_DIRECTION_FORWARD)
        attention_reference(problem, host, out);
    else
        attention_backward_reference(problem, host, out);
}

static const char *const cases[] = {
    "q=1 kv=1 d=32                                  # one key",
    "q=7 kv=129 d=64 heads=2 dtype=bf16 lse=1       # tails",
    "q=64 kv=64 causal=1",
    "q=129 kv=7 heads=2 kv_heads=1 causal=1 lse=1   # rows that see no key",
    "q=130 kv=200 d=128 heads=4 kv_heads=2 causal=1 dtype=bf16",
    "q=128 kv=128 d=128 batch=2 layout=bshd heads=2",
    "q=65 kv=63 d=80 heads=2 dtype=bf16 causal=1 lse=1",
    "q=33 kv=100 d=96 dv=40 heads=2",
    "q=40 kv=64 d=64 heads=2                          # short: 48 queries",
    "q=64 kv=10 d=32 heads=2 causal=1                 # more rows loaded at once than there are keys",
    "q=50 kv=70 d=64 impl=sm80 config='warps=3 tile_n=48'",
    "q=40 kv=70 d=8 dv=136",
    "q=50 kv=50 d=17 dv=3 heads=2 layout=bshd      # odd rows",
    "q=100 kv=100 d=64 heads=2 q_factor=10         # scores far apart",
    "q=50 kv=60 misalign=1 impl=naive                        # pointers aligned to the element only",
    "q=30 kv=40 batch=2 heads=2 d=32 layout=bshd ldq=192 ldk=192 ldv=192 # parts of a joint projection",
    "q=20 kv=30 batch=2 heads=3 d=40 ldq=48 ldk=41 ldv=56 ldo=50 ldo_head=1000 ldo_batch=4000 # gaps",
    "q=3 kv=5 batch=2 heads=2 d=8 ldo=32 ldo_head=16 ldo_batch=8 # neighbours are of one token",
    "q=20 kv=0 heads=2 lse=1                       # no keys: zeros",
    "q=130 kv=300 d=128 causal=1 dtype=bf16 lse=1 impl=sm90 config='consumers=2 draw=1 old=1 slots=5' # the "
    "ring goes round",
    "q=130 kv=600 heads=2 d=128 scale=4 lse=1 impl=sm80 config='warp_rows=32 tile_n=32' # maxima that grow",
    "q=200 kv=264 impl=sm90 config='consumers=3'",
    "q=200 kv=600 heads=2 scale=6 lse=1 impl=sm90 config='consumers=3' # rescaled at times",
    "q=200 kv=600 causal=1 dtype=bf16 lse=1 impl=sm90 config='consumers=2 old=0'",
    "q=140 kv=400 d=128 softcap=50 causal=1 impl=sm90 config='consumers=2 slots=5 old=0'",
    "q=140 kv=257 heads=3 lse=1 # three blocks of 96 keys",
    "q=70 kv=140 heads=2 d=200 mask=add ldmask=140 # three of 48",
    "q=400 kv=500 heads=2 d=96 causal=1 scale=3 dtype=bf16 impl=sm90 config='consumers=3 tile_n=96 slots=5 "
    "old=1' # three with old maxima",
    "q=400 kv=77 heads=70 d=80 lse=1 impl=sm90 config='consumers=3 tile_n=80 slots=4' # all keys in one "
    "block, CTAs of several tiles",
    "q=130 kv=250 heads=70 d=128 lse=1 # two tiles of queries beside four slots",
    "q=450 kv=40 heads=64 d=32 lse=1 impl=sm90 config='consumers=1 ctas=1 single=1 queries=2 tile_n=48 slots=40' # "
    "both tiles of queries that a consumer has in memory, twice",
    "q=450 kv=140 heads=64 d=32 q_factor=1000 fill=uniform impl=sm90 config='consumers=1 ctas=1 single=0 old=1 "
    "queries=2 tile_n=48 slots=40' # scores are made again, of either",
    "q=66 kv=68 heads=70 d=32 causal=1 dtype=bf16 impl=sm90 config='single=0 consumers=1 ctas=1 draw=1 "
    "tile_n=64' # tiles in turn",
    "q=70 kv=40 heads=70 d=40 causal=1 lse=1 impl=sm90 config='single=0 consumers=1 ctas=1 draw=0 tile_n=16'",
    "q=200 kv=210 heads=40 batch=4 d=64 causal=1 lse=1 impl=sm90 config='consumers=1 ctas=3 draw=1 tile_n=64 "
    "slots=5' # several CTAs an SM",
    "q=130 kv=130 heads=150 d=32 causal=1 lse=1 impl=sm90 config='consumers=1 ctas=3 draw=0 tile_n=32 old=0' # more "
    "tiles than run at once",
    "q=150 kv=260 heads=3 d=96 dtype=bf16 impl=sm90 config='consumers=1 ctas=2 draw=0 old=1 tile_n=80 slots=3'",
    "q=130 kv=150 d=192 dv=128 impl=sm90 config='consumers=2 tile_n=112 slots=3'",
    "q=130 kv=150 d=256 dtype=bf16 impl=sm90 config='consumers=2 tile_n=80 slots=3'",
    "q=70 kv=70 d=40 dv=256",
    "q=300 kv=300 d=32 left=64 causal=1 lse=1            # a window",
    "q=200 kv=520 heads=2 left=100 right=30 dtype=bf16 lse=1",
    "q=100 kv=50 heads=2 right=20 lse=1 # rows before the first key",
    "q=70 kv=300 d=80 left=1 causal=1                     # the own key alone",
    "q=70 kv=80 d=128 softcap=5 q_factor=8 causal=1 dtype=bf16 lse=1",
    "q=70 kv=80 heads=2 kv_heads=1 sinks=1 causal=1 lse=1",
    "q=100 kv=40 heads=2 sinks=1 causal=1 lse=1 softcap=2 left=7 dtype=bf16 # rows that have a sink alone",
    "q=10 kv=0 heads=2 sinks=1 lse=1",
    "q=140 kv=400 d=128 left=130 right=64 lse=1 sinks=1 impl=sm90 config='consumers=2 draw=1 old=1 slots=5'",
    "q=70 kv=100 heads=2 mask=add ldmask=100 lse=1 # a bias that heads share",
    "q=90 kv=100 batch=2 heads=2 d=128 mask=bool ldmask=101 ldmask_batch=9090 causal=1 dtype=bf16 lse=1",
    "q=40 kv=200 heads=4 kv_heads=2 d=80 mask=add ldmask_head=200 softcap=3 dtype=bf16 # a row for each head",
    "q=50 kv=60 heads=2 mask=bool sinks=1 left=20           # a row for all",
    "q=20 kv=127 d=32                                       # one key less than whole blocks",
    "q=70 kv=54 d=26 causal=1 left=2 mask=bool fill=hard    # rows whose keys the mask hides",
    "q=20 kv=16 heads=134 d=32 dv=160 impl=sm90 config='consumers=1 ctas=1 tile_n=16 slots=32 draw=0' # an odd "
    "number of chunks of O, and CTAs of two tiles",
    "q=130 kv=100 heads=2 causal=1 lse=1 impl=sm80 config='warps=4 warp_rows=32 tile_n=32 stages=2' # four rows a "
    "thread",
    "direction=backward q=7 kv=9 d=32",
    "direction=backward q=70 kv=130 heads=2 causal=1 dtype=bf16 # tails",
    "direction=backward q=140 kv=45 heads=2 kv_heads=1 d=40 dv=72 causal=1 # queries that see no key, heads of a group",
    "direction=backward q=100 kv=150 batch=2 d=128 layout=bshd left=30 right=20 heads=2 dtype=bf16 # keys that few see",
    "direction=backward q=60 kv=70 d=64 softcap=2 sinks=1 left=64 causal=1",
    "direction=backward q=30 kv=40 d=192 dv=128",
    "direction=backward q=70 kv=80 d=256 dv=200 causal=1 softcap=4 heads=2 kv_heads=1 dtype=bf16 # dV apart",
    "direction=backward heads=2 q=560 kv=24 d=32 sinks=1 layout=bshd # sums of more queries than a CTA has threads",
    "direction=backward heads=4 kv_heads=1 q=34 kv=945 d=64 causal=1 softcap=3 score=alibi sinks=1 dtype=bf16 "
    "fill=hard seed=435316 # weights beyond f32",
    "q=10 kv=1 heads=15 sinks=1 dtype=bf16 lse=1 fill=hard seed=321085 # one score of -1e14, which its sink exceeds",
    "direction=backward heads=8 kv_heads=2 q=200 kv=30 d=64 causal=1 softcap=3 score=alibi dtype=bf16 fill=uniform # "
    "weights that are flushed to zero",
    "direction=backward q=20 kv=30 d=20 mask=add ldmask=30 heads=2 ldmask_head=600",
    "direction=backward q=10 kv=20 d=8 mask=bool misalign=1 impl=naive_backward",
    "direction=backward q=150 kv=131 d=32 batch=2 heads=2 kv_heads=1 mask=add ldmask=131 causal=1 dmask=1 # shared by "
    "heads and batches",
    "direction=backward q=70 kv=300 d=128 heads=2 mask=add ldmask_head=300 left=90 right=20 dmask=1 dtype=bf16 sinks=1",
    "direction=backward q=30 kv=50 d=72 heads=2 mask=add ldmask=50 softcap=2 dmask=1 causal=1",
    "direction=backward q=150 kv=131 d=128 heads=4 kv_heads=2 mask=add ldmask=131 ldmask_head=19650 softcap=1 dmask=1 "
    "score=alibi dtype=bf16 impl=sm90_backward # the cap comes before the mask",
    "direction=backward q=150 kv=130 d=32 batch=2 heads=4 kv_heads=2 mask=bool ldmask=130 ldmask_batch=19500 causal=1",
    "direction=backward q=70 kv=130 d=128 heads=2 mask=add ldmask_head=130 softcap=4 dtype=bf16 # a row for each head",
    "direction=backward q=300 kv=200 d=144 dv=128 causal=1 impl=sm90_backward config='consumers=2 block=48 stages=2' # "
    "seven products",
    "direction=backward q=300 kv=200 heads=2 kv_heads=1 d=64 right=40 left=50 dtype=bf16 impl=sm90_backward "
    "config='consumers=1 block=112 stages=3'",
    "direction=backward q=150 kv=200 heads=2 kv_heads=1 d=32 left=70 impl=sm90_backward config='consumers=2 block=16 "
    "keys=32 stages=2' # the ring goes round",
    "direction=backward q=100 kv=200 heads=2 d=128 causal=1 impl=sm90_backward config='consumers=2 block=64 "
    "stages=2' # five products",
    "direction=backward heads=2 kv_heads=1 q=300 kv=400 d=64 left=70 right=20 dtype=bf16 impl=sm90_backward "
    "config='consumers=2 block=96 stages=2' # the first CTA that adds is not that of the first "
    "keys",
    "direction=backward heads=2 q=100 kv=150 d=128 dv=72 softcap=3 score=alibi right=10 sinks=1 impl=sm90_backward "
    "config='consumers=2 block=48 stages=2'",
    "direction=backward q=100 kv=200 heads=2 d=64 causal=1 impl=sm90_backward_unordered",
    "direction=backward q=200 kv=500 heads=2 d=64 left=150 right=20 impl=sm90_backward_unordered # others wait for the "
    "first store",
    "direction=backward q=190 kv=200 heads=4 kv_heads=2 d=96 causal=1 impl=sm90_backward config='consumers=2 "
    "block=48 stages=2' # columns of dS past the last query",
    "direction=backward q=150 kv=200 d=96 dtype=bf16 impl=sm90_backward_unordered # a warp in two has no rows of dQ",
    "direction=backward q=150 kv=300 d=40 dv=72 causal=1 impl=sm90_backward config='consumers=2 block=64 "
    "stages=2'",
    "direction=backward ragged=1 batch=3 q=140 q_total=200 kv=150 kv_total=300 heads=2 d=80 causal=1 layout=bshd "
    "impl=sm90_backward config='consumers=2 block=64 stages=2'",
    "direction=backward q=300 kv=140 d=128 causal=1 impl=sm90_backward config='consumers=2 block=64 "
    "stages=2' # the first blocks see no key: nobody adds to them",
    "direction=backward q=0 kv=10 # zeros",
    "direction=backward q=3 kv=0",
    "ragged=1 batch=5 q=70 q_total=175 kv=90 heads=2 d=40 lse=1                   # lengths differ",
    "ragged=1 batch=3 q=200 q_total=300 kv=150 heads=2 kv_heads=1 causal=1 layout=bshd dtype=bf16 lse=1",
    "ragged=1 batch=4 q=150 q_total=300 kv=170 d=32 left=40 right=10 sinks=1 impl=sm90 config='consumers=2 "
    "old=1 draw=1 tile_n=64'",
    "batch=4 q=114 kv=95 d=32 left=40 right=3 ragged=1 q_total=300 sinks=1 fill=hard seed=485946 # NaN in the next one",
    "ragged=1 q=70 kv=60                                                          # all of the largest length",
    "ragged=1 batch=3 q=100 q_total=2 kv_total=5 lse=1                            # hardly any tokens",
    "ragged=1 batch=2 q=70 kv=60 d=128 softcap=3 q_total=70 kv_total=119 causal=1",
    "q=70 kv=900 d=64 q_factor=10 lse=1 impl=sm90 config='old=1 tile_n=64' # weights that are lowered",
    "q=100 kv=900 d=72 q_factor=100 dtype=bf16 lse=1 impl=sm90 config='consumers=2 old=1 tile_n=64 slots=3' # "
    "and scores that are made again",
    "q=70 kv=900 d=64 heads=2 q_factor=200 score=alibi lse=1 impl=sm90 config='old=1 tile_n=64' # scores that are made "
    "again",
    "q=130 kv=900 d=64 q_factor=300 softcap=150 dtype=bf16 lse=1 impl=sm90 config='old=1 tile_n=64'",
    "q=70 kv=500 d=128 softcap=50 dtype=bf16 lse=1 impl=sm90 config='old=1 tile_n=64' # scores far below the cap",
    "q=100 kv=900 d=64 softcap=6 causal=1 lse=1 impl=sm90 config='old=1 tile_n=64' # maxima too near it",
    "q=130 kv=900 d=64 q_factor=18 softcap=50 lse=1 fill=uniform impl=sm90 config='old=1 tile_n=64' # some are, some "
    "are not",
    "q=130 kv=900 d=64 q_factor=25 softcap=50 lse=1 fill=uniform impl=sm90 config='old=1 tile_n=64' # sums that show "
    "scores near the cap",
    "q=150 kv=400 heads=2 kv_heads=1 d=256 causal=1 softcap=50 dtype=bf16 lse=1 impl=sm90 # heads too wide for old "
    "maxima",
    "q=70 kv=700 d=192 dv=136 softcap=20 q_factor=14 lse=1 fill=uniform impl=sm90 config='tile_n=64' # the same, "
    "scores near the cap",
    "q=130 kv=900 d=64 q_factor=200 softcap=1000 lse=1 fill=uniform impl=sm90 config='old=1 tile_n=64' # scores of "
    "many bits",
    "q=100 kv=900 d=32 batch=2 score=documents q_factor=100 lse=1 impl=sm90 config='old=1 tile_n=64' # blocks of all "
    "kinds",
    "q=300 kv=900 d=128 batch=2 score=documents causal=1 lse=1 dtype=bf16 impl=sm90 config='consumers=2 draw=1 "
    "tile_n=128 slots=5' # as long problems have it",
    "q=130 kv=300 heads=2 d=128 causal=1 left=70 lse=1 sinks=1 impl=sm90 config='consumers=2 draw=1 old=1 "
    "slots=5'",
    "q=70 kv=150 heads=3 d=32 score=alibi causal=1 lse=1",
    "q=200 kv=300 heads=2 kv_heads=1 d=128 score=alibi softcap=3 left=90 dtype=bf16 lse=1 impl=sm90 "
    "config='consumers=2 draw=1 slots=5'",
    "heads=134 q=130 kv=150 d=32 lse=1 impl=sm90 config='consumers=2 tile_n=64 ctas=1 parts=1' # behind a whole turn",
    "heads=2 q=500 kv=300 d=64 causal=1 left=190 dtype=bf16 impl=sm90 config='consumers=3 tile_n=64 ctas=1 draw=0 "
    "parts=1' # no whole turn",
    "heads=2 kv_heads=1 q=300 kv=500 d=128 q_factor=100 lse=1 impl=sm90 config='consumers=2 old=1 tile_n=64 slots=3 "
    "ctas=1 parts=1' # scores that are made again beside consumers that are done",
    "q=130 kv=400 d=64 heads=2 score=alibi causal=1 lse=1 impl=sm90 config='old=1 tile_n=64' # blocks that no mask "
    "cuts",
    "q=130 kv=140 heads=3 d=64 score=alibi impl=sm80 config='stages=1' lse=1",
    "q=300 kv=300 batch=2 d=32 score=documents lse=1 impl=sm90 config='tile_n=64' # skipped and plain blocks",
    "q=260 kv=900 batch=2 d=32 score=documents causal=1 left=20 lse=1 dtype=bf16 impl=sm90 config='consumers=2 "
    "tile_n=64 slots=3 draw=1' # tiles of skipped blocks alone",
    "q=260 kv=400 d=40 score=documents mask=add ldmask=400 lse=1 impl=sm80 config='tile_n=32'",
    "q=300 kv=300 batch=2 d=32 score=prefix lse=1 impl=sm90 config='tile_n=64 draw=0'",
    "q=100 kv=300 batch=2 heads=2 d=32 score=prefix impl=sm80 config='stages=1 tile_n=32'",
    "q=30 kv=40 batch=2 heads=2 d=20 score=documents lse=1 sinks=1",
    "ragged=1 batch=2 q=70 q_total=120 kv=70 heads=2 d=32 score=alibi lse=1",
    "direction=backward q=40 kv=50 heads=4 kv_heads=2 d=32 score=alibi causal=1 impl=naive_backward",
    "direction=backward q=50 kv=60 batch=2 d=32 score=documents impl=naive_backward",
    "direction=backward q=130 kv=140 heads=2 kv_heads=1 d=64 score=alibi softcap=3 causal=1 dtype=bf16",
    "direction=backward q=260 kv=300 batch=2 d=32 score=documents impl=sm90_backward config='consumers=2 block=32 "
    "keys=48 stages=2' # skipped and plain blocks",
    "direction=backward q=200 kv=200 batch=2 d=32 score=prefix",
    "q=90 kv=100 batch=3 d=32 score=prefix ragged=1 lse=1",
    "direction=backward q=90 kv=100 batch=3 d=32 score=prefix ragged=1",
    "direction=backward q=1200 kv=100 heads=2 kv_heads=1 d=32 score=documents impl=sm90_backward config='block=16 "
    "keys=32 stages=2' # several windows of blocks, twice",
    "direction=backward q=4 kv=0 sinks=1                                          # sinks alone",
    "direction=backward ragged=1 batch=5 q=70 q_total=175 kv=90 kv_total=200 heads=4 kv_heads=2 d=32 causal=1 sinks=1",
    "direction=backward ragged=1 batch=3 q=130 q_total=200 kv=100 heads=2 d=128 layout=bshd left=60 dtype=bf16",
    "direction=backward ragged=1 batch=3 q=60 q_total=2 kv=40 kv_total=5 d=24 score=alibi # hardly any tokens",
    "direction=backward ragged=1 batch=3 q=40 q_total=70 kv=50 heads=2 d=16 softcap=3 sinks=1 left=20 "
    "impl=naive_backward",
    "q=0",
    "batch=0",
    NULL,
};

static const char *const population[] = {
    "batch={1|2|4|8} heads={16|32|40} q={n:sequence} kv={n} d={64|128} causal={0|1} dtype={f16|bf16}",
    "batch={1|2|4} heads=32 kv_heads={4|8} q={n:sequence} kv={n} d=128 causal=1 dtype=bf16",
    "batch={1|4|16} heads={8|12} q={n:sequence} kv={n} d={32|64|80|96|256} causal={0|1} dtype={f16|bf16}",
    "batch={2|8} heads={8|20} q={sequence} kv=77 d={40|64|80} dtype=f16",
    "batch={1|2} heads=16 q={n:sequence} kv={n} d=192 dv=128 causal=1 dtype=bf16",
    "direction=backward batch={1|2|4} heads={16|20} q={n:sequence} kv={n} d={64|96|128} causal={0|1} dtype={f16|bf16}",
    "batch={1|2} heads={8|16} q={n:sequence} kv={n} d={64|128} causal=1 score=alibi dtype=bf16",
    NULL,
};

static const test_reject rejects[] = {
    { "dtype=f32", CKL_INVALID, "attention: dtype=f32 is none of f16, bf16" },
    { "batch=-1", CKL_INVALID, "attention: batch=-1 is negative" },
    { "heads=0", CKL_INVALID, "attention: heads=0 is not in 1..2^16" },
    { "heads=6 kv_heads=4", CKL_INVALID, "attention: kv_heads=4 does not divide heads=6" },
    { "kv_heads=2", CKL_INVALID, "attention: kv_heads=2 does not divide heads=1" },
    { "q=2^31", CKL_INVALID, "attention: q=2147483648 is not in 0..2^30" },
    { "kv=-1", CKL_INVALID, "attention: kv=-1 is negative" },
    { "d=0", CKL_INVALID, "attention: d=0 is not in 1..1024" },
    { "dv=2000", CKL_INVALID, "attention: dv=2000 is not in 0..1024" },
    { "scale=-1", CKL_INVALID, "attention: scale=-1 is negative" },
    { "scale=2^21", CKL_INVALID, "attention: scale=2097152 is not in 0..2^20" },
    { "causal=1 right=4", CKL_INVALID, "attention: right=4 is not part of a causal problem" },
    { "ldmask=64", CKL_INVALID, "attention: ldmask=64 is not part of a problem without mask" },
    { "mask=add ldmask=127", CKL_INVALID, "attention: ldmask=127 is smaller than kv=128" },
    { "mask=add dmask=1", CKL_INVALID, "attention: dmask=1 is for backward problems with mask=add" },
    { "direction=backward mask=bool dmask=1", CKL_INVALID,
      "attention: dmask=1 is for backward problems with mask=add" },
    { "left=-1", CKL_INVALID, "attention: left=-1 is negative" },
    { "softcap=-1", CKL_INVALID, "attention: softcap=-1 is negative" },
    { "ldk=63", CKL_INVALID, "attention: ldk=63 is smaller than d=64" },
    { "layout=bshd ldv_head=63", CKL_INVALID, "attention: ldv_head=63 is smaller than d=64" },
    { "heads=2 ldo_head=64", CKL_INVALID, "attention: ldo_head=64 lets elements of o overlap, which span 8192" },
    { "batch=2 ldo_batch=100", CKL_INVALID, "attention: ldo_batch=100 lets elements of o overlap, which span 8192" },
    { "heads=2 ldq_head=2^62", CKL_INVALID, "attention: q of 1x2x128x64 elements" },
    { "ragged=1 batch=2 q=8 q_total=17", CKL_INVALID, "attention: q_total=17 is more than batch*q=16" },
    { "ragged=1 batch=2 kv=8 kv_total=17", CKL_INVALID, "attention: kv_total=17 is more than batch*kv=16" },
    { "q_total=5", CKL_INVALID, "attention: q_total=5 is not part of a problem that is not ragged" },
    { "ragged=1 mask=bool", CKL_INVALID, "attention: ragged=1 is for problems without mask" },
    { "ragged=1 batch=2^12 q=2^20", CKL_INVALID,
      "attention: q_total=4294967296 or kv_total=524288 is more than 32 bits" },
    { "direction=backward d=128 impl=sm90_backward config='ordered=0'", CKL_INVALID,
      "attention sm90_backward: ordered=0 is what sm90_backward_unordered does" },
    { "direction=backward d=32 impl=sm90_backward_unordered", CKL_UNSUPPORTED, "or there are no sums of dQ" },
    { "direction=backward d=64 impl=sm90_backward config='consumers=2 block=48'", CKL_UNSUPPORTED,
      "block=48 of two consumers is not a multiple of 32" },
    { "direction=backward lse=1", CKL_INVALID, "attention: lse=1 is not part of a backward problem" },
    { "direction=backward heads=2 ldk_head=64", CKL_INVALID, "attention: ldk_head=64 lets elements of dk overlap" },
    { "direction=backward impl=sm80", CKL_UNSUPPORTED, "attention sm80: the problem is one of backward" },
    { "impl=naive_backward", CKL_UNSUPPORTED, "attention naive_backward: the problem is one of forward" },
    { "d=60 impl=sm90", CKL_UNSUPPORTED, "attention sm90: d=60 and dv=60 are not multiples of 8 up to 256" },
    { "ldk=68 impl=sm90", CKL_UNSUPPORTED, "attention sm90: ldk=68 elements are not a multiple of 16 bytes" },
    { "kv=0 impl=sm80", CKL_UNSUPPORTED, "attention sm80: kv=0 leaves no keys" },
    { "d=64 impl=sm80 config='warps=3 tile_n=32'", CKL_INVALID,
      "attention sm80: tile_n=32 is not a multiple of 16 up to 128, and of the 12 rows of 3 warps" },
    { "d=128 dv=32 impl=sm80 config='warps=8 tile_n=32'", CKL_INVALID, "and of the 64 rows of 8 warps" },
    { "kv=0 impl=sm90", CKL_UNSUPPORTED, "attention sm90: kv=0 leaves no keys" },
    { "score=alibii", CKL_INVALID, "attention: score=alibii is not known" },
    { "score=documents ragged=1", CKL_INVALID, "attention: score=documents has inputs of queries or keys" },
    { "impl=sm90 config='tile_n=100'", CKL_INVALID, "attention sm90: tile_n=100 is not a multiple of 16 up to 256" },
    { "impl=sm90 config='consumers=4'", CKL_INVALID, "attention sm90: consumers=4 is not in 1..3" },
    { "mask=bool ldmask=128 impl=sm90 config='old=1'", CKL_INVALID,
      "attention sm90: old=1 is for scores without mask, and for dv up to 128" },
    { "q=300 kv=300 impl=sm90 config='consumers=1 parts=1'", CKL_UNSUPPORTED,
      "attention sm90: parts=1 is for several consumers" },
    { "impl=sm90 config='ctas=2 consumers=2'", CKL_INVALID,
      "attention sm90: ctas=2 is not in 1..3, or more than 1 with consumers=2" },
    { "d=32 impl=sm90 config='consumers=1 ctas=3 tile_n=128'", CKL_UNSUPPORTED,
      "attention sm90: registers do not hold tile_n=128 and dv=32 with consumers=1 and ctas=3" },
    { "d=80 impl=sm90 config='consumers=3 tile_n=128'", CKL_UNSUPPORTED,
      "registers do not hold tile_n=128 and dv=80 with consumers=3 and ctas=1" },
    { "q=300 kv=300 d=64 softcap=9 impl=sm90 config='consumers=3 tile_n=128'",
      CKL_UNSUPPORTED, // a plain one fits
      "registers do not hold tile_n=128 and dv=64 with consumers=3 and ctas=1" },
    { "impl=sm90 config='slots=2'", CKL_INVALID, "attention sm90: slots=2 is less than 3" },
    { "d=128 impl=sm90 config='slots=9'", CKL_UNSUPPORTED,
      "attention sm90: the config needs 327840 bytes of shared memory" },
    { "impl=naive config='threads=33'", CKL_INVALID, "attention naive: threads=33 is no multiple of 32" },
    { "impl=naive config='d=32'", CKL_INVALID, "of the config are not the problem's" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(attention, .operands = operands, .reference = reference, .terms_of = terms,
              .approximation_of = approximation, .flops = flops, .flops_of_data = flops_of_data,
              .reference_flops = reference_flops);
