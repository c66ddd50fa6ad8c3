/* rope_test.c - the definition of rope in double, its cases and rejects. */
#include "cutekernellib/operators/rope.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"
#include "operators/rope/rope_desc.h"

enum { Q, K, POSITIONS, YQ, YK }; // operands

static int operands(const void *problem, operand *all)
{
    const rope_problem *p = problem;
    all[POSITIONS] = operand_range(all[POSITIONS], (double)p->position_min, (double)p->position_max);
    if (p->inplace) {
        operand_in_place(all, Q, YQ);
        operand_in_place(all, K, YK);
    }
    return 0;
}

/* Cosine and sine of pair i of a token. */
static void angle(const ckl_rope_desc *d, const void *positions, int64_t token, int64_t i, double *cosine, double *sine)
{
    double position = dtype_read(d->positions, positions, token) * (double)d->scale;
    double x = position * pow((double)d->theta, -2.0 * (double)i / (double)d->rotary_dim);
    bool known = fabs(dtype_read(d->positions, positions, token)) < 0x1p24;
    *cosine = known ? cos(x) : (double)NAN;
    *sine = !known ? (double)NAN : d->inverse ? -sin(x) : sin(x);
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_rope_desc *d = problem;
    int64_t heads = out.output ? d->k_heads : d->heads, token = out.row / heads, half = d->rotary_dim / 2;
    int64_t start = token * (out.output ? d->ldk : d->ldq) + out.row % heads * (out.output ? d->ldk_head : d->ldq_head);
    for (int64_t j = 0; j < out.count; j++) {
        int64_t e = out.first + j;
        bool interleaved = d->style == CKL_ROPE_INTERLEAVED, second = interleaved ? e % 2 : e >= half;
        int64_t other = interleaved ? e ^ 1 : second ? e - half : e + half, pair = interleaved ? e / 2 : e % half;
        double x = dtype_read(d->dtype, host[out.output], start + e), y = 0, cosine = 1, sine = 0;
        if (e < d->rotary_dim) {
            y = dtype_read(d->dtype, host[out.output], start + other);
            angle(d, host[POSITIONS], token, pair, &cosine, &sine);
        }
        out.value[j] = e < d->rotary_dim ? x * cosine + (second ? y : -y) * sine : x;
        out.magnitude[j] = fabs(x) + fabs(y);
    }
}

/* Of sine and cosine; at position 0 they are exact. */
static double approximation(const void *problem)
{
    const rope_problem *p = problem;
    return p->position_min == 0 && p->position_max == 0 ? 0 : 0x1p-20;
}

static const char *const cases[] = {
    "tokens=1 heads=1 head_dim=2                                   # one pair",
    "position_max=0 tokens=37 heads=3 k_heads=2                    # no angle: copied, bit by bit",
    "position_max=0 tokens=37 heads=3 k_heads=2 style=interleaved dtype=bf16",
    "tokens=100 heads=8 k_heads=2 head_dim=128 dtype=bf16          # q and k of different heads",
    "tokens=100 heads=8 k_heads=2 head_dim=128 dtype=bf16 style=interleaved",
    "tokens=100 heads=8 k_heads=2 head_dim=128 dtype=f16 inverse=1",
    "tokens=65 heads=5 k_heads=3 head_dim=64                       # groups of heads that are not full",
    "tokens=65 heads=5 head_dim=64 style=interleaved inverse=1",
    "tokens=33 heads=4 head_dim=80 dtype=f16                       # lanes that are no power of two",
    "tokens=33 heads=4 k_heads=4 head_dim=96 rotary_dim=24 dtype=bf16 # the rest is copied",
    "tokens=33 heads=4 k_heads=4 head_dim=96 rotary_dim=24 dtype=bf16 inplace=1",
    "tokens=40 heads=3 head_dim=100 rotary_dim=2 style=interleaved # one lane, a long rest",
    "tokens=1 heads=2 head_dim=40000 rotary_dim=2 style=interleaved # a rest that no kernel can unroll",
    "tokens=5 heads=2 k_heads=1 head_dim=2050 rotary_dim=16 dtype=bf16",
    "tokens=40 heads=3 k_heads=1 head_dim=7 rotary_dim=6 dtype=f16 # odd heads: single elements",
    "tokens=40 heads=3 head_dim=7 rotary_dim=6 style=interleaved inplace=1",
    "tokens=50 heads=4 k_heads=2 dtype=bf16 misalign=1             # pointers aligned to the element only",
    "tokens=50 heads=4 k_heads=2 dtype=f16 ldq=512 ldk=136 ldyq=264 ldyk=200 ldq_head=128 ldyq_head=66 # gaps",
    "tokens=50 heads=4 k_heads=2 dtype=f16 ldq=384 ldk=384 ldyq=384 ldyk=384 inplace=1 style=interleaved",
    "tokens=200 heads=2 positions=i64 position_min=-1000000 position_max=1048576 theta=500000 # far",
    "tokens=200 heads=2 position_max=16777215 scale=0.25",
    "tokens=20 heads=2 position_min=16777216 position_max=33554432 # too far: NaN",
    "tokens=3 heads=2 head_dim=2048 theta=1                        # many lanes, one frequency",
    "tokens=30 heads=37 k_heads=5 head_dim=16 dtype=bf16           # more heads than threads hold, some that do not "
    "exist",
    "tokens=30 heads=33 head_dim=40 rotary_dim=16 dtype=f16 style=interleaved impl=vector config='threads=128'",
    "tokens=9 heads=7 head_dim=312 rotary_dim=16 dtype=f16 inplace=1 # an odd number of vectors that stay",
    "tokens=700 heads=12 k_heads=4 head_dim=32 dtype=bf16 impl=vector config='threads=128 heads=2'",
    "tokens=9 heads=1 head_dim=77 rotary_dim=76 dtype=f16 ldq=80 ldyq=80 # vectors in the pitch, none in the length",
    "tokens=77 heads=5 k_heads=2 head_dim=39 rotary_dim=16 dtype=f16 impl=tiles # the last tile ends inside a bulk "
    "copy",
    "tokens=33 heads=3 k_heads=7 head_dim=40 dtype=bf16 style=interleaved inplace=1 impl=tiles",
    "tokens=300 heads=1 head_dim=88 rotary_dim=64 positions=i64 impl=tiles config='threads=64 tokens=60 kb=21'",
    "tokens=50 heads=4 k_heads=2 dtype=bf16 misalign=1 impl=tiles # no bulk copies",
    "tokens=1 heads=1 head_dim=2 inverse=1 impl=tiles             # less than a bulk copy",
    "tokens=5 heads=280 k_heads=3 impl=tiles                      # a token of 70 KB",
    "tokens=0",
    NULL,
};

static const char *const population[] = {
    "tokens={tokens} heads={h:heads} k_heads={h} head_dim={head_dim} dtype={f32|f16|bf16|bf16} "
    "style={half|half|interleaved} inverse={0|0|1}",
    "tokens={tokens} heads={heads} k_heads={0|1|2|4|8} head_dim={head_dim} positions={i32|i64} dtype={f16|bf16}",
    "tokens={tokens} heads={heads} head_dim={d:head_dim} rotary_dim={16|32|64} dtype={f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "dtype=i32", CKL_INVALID, "rope: dtype=i32 is none of f32, f16, bf16" },
    { "positions=f32", CKL_INVALID, "rope: positions=f32 is none of i32, i64" },
    { "tokens=-1", CKL_INVALID, "rope: tokens=-1 is negative" },
    { "heads=0", CKL_INVALID, "rope: heads=0 is not in 1..2^16" },
    { "k_heads=-1", CKL_INVALID, "rope: k_heads=-1 is negative" },
    { "rotary_dim=31", CKL_INVALID, "rope: rotary_dim=31 is not even in 2..min(head_dim=64, 2048)" },
    { "rotary_dim=66", CKL_INVALID, "rope: rotary_dim=66 is not even in 2..min(head_dim=64, 2048)" },
    { "head_dim=63", CKL_INVALID, "rope: rotary_dim=63 is not even in 2..min(head_dim=63, 2048)" },
    { "theta=0.5", CKL_INVALID, "rope: theta=0.5 is not in 1..2^60" },
    { "scale=2", CKL_INVALID, "rope: scale=2 is not in 2^-30..1" },
    { "ldq_head=63", CKL_INVALID, "rope: ldq_head=63 is smaller than head_dim=64" },
    { "ldyq=255", CKL_INVALID, "rope: ldyq=255 is smaller than (heads-1)*ld_head+head_dim=256" },
    { "ldk=64", CKL_INVALID, "rope: ldk=64 is not part of a problem without k" },
    { "ldq=2^62", CKL_INVALID,
      "rope: q of 64x4x64 elements, strides 4611686018427387904x64x1, spans more than 2^56 bytes" },
    { "ldq_head=2^62", CKL_INVALID, "rope: q of 64x4x64 elements" },
    { "impl=vector config='vec=8'", CKL_INVALID, "rope vector: vec=8 is no power of two of at most 16 bytes" },
    { "impl=vector config='threads=16'", CKL_INVALID, "rope vector: threads=16 is not in 32..1024" },
    { "impl=vector config='heads=3'", CKL_INVALID, "rope vector: heads=3 is no power of two up to 8" },
    { "impl=vector config='style=interleaved'", CKL_INVALID, "in the config are not the problem's" },
    { "impl=tiles ldq=264", CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens" },
    { "impl=tiles heads=3 ldq_head=65 ldq=195", CKL_UNSUPPORTED, "rope tiles: there are gaps between heads or tokens" },
    { "impl=tiles heads=300", CKL_UNSUPPORTED, "rope tiles: 1 tokens of 300 heads are no tile" },
    { "impl=tiles heads=1 head_dim=2050 rotary_dim=2046", CKL_UNSUPPORTED,
      "rope tiles: rotary_dim=2046 are more than threads=256 take" },
    { "impl=tiles config='vec=3'", CKL_INVALID, "rope tiles: vec=3 is no power of two of at most 16 bytes" },
    { "impl=tiles config='vec=8'", CKL_INVALID, "rope tiles: vec=8 is no power of two of at most 16 bytes" },
    { "impl=tiles config='threads=48'", CKL_INVALID, "rope tiles: threads=48 is no multiple of 32 up to 1024" },
    { "impl=tiles config='abreast=3'", CKL_INVALID, "rope tiles: abreast=3 k_abreast=1 are no powers of two" },
    { "impl=tiles config='abreast=64'", CKL_INVALID, "or heads of 8 lanes too many for threads=128" },
    { "impl=tiles head_dim=7 rotary_dim=6 heads=1 config='tokens=3'", CKL_INVALID,
      "rope tiles: tokens=3 k_tokens=4 are no multiples of 4" },
    { "impl=tiles config='tokens=64'", CKL_INVALID, "or their tiles more than kb=" },
    { "impl=tiles config='heads=3'", CKL_INVALID, "rope tiles: types, style, heads or sizes of a head" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(rope, .operands = operands, .elements_alone = true, .reference = reference, .terms = 2,
              .approximation_of = approximation);
