/* elementwise_test.c - elementwise's cases and rejects. */
#include <string.h>

#include "cutekernellib/operators/elementwise.h"

#include "base/dtype.h"
#include "base/math.h"
#include "operators/elementwise/elementwise_lab.h"

enum { OUT = CKL_ELEMENTWISE_INPUTS_MAX };

/* Dimensions along which an operand is broadcast have one element of memory; scalars have none on the device. */
static int operands(const void *problem, operand *all)
{
    const elementwise_problem *p = problem;
    for (int i = 0; i < OUT; i++) {
        all[i].hard_max = 0x1p40; // cubes stay in f32, of which only some steps of a chain are seen
        all[i].name = i < p->expression.inputs ? p->expression.names[i] : "";
        if (p->desc.in[i].scalar)
            all[i] = operand_number(all[i].name, &p->scalar[i]);
        for (int mode = 0; mode < all[i].rank; mode++)
            if (all[i].stride[mode] == 0 && all[i].shape[mode] > 0)
                all[i].shape[mode] = 1;
    }
    all[OUT].name = "y";
    if (p->inplace)
        operand_in_place(all, p->inplace - 1, OUT);
    return 0;
}

static double terms(const void *problem)
{
    const expr *e = &((const elementwise_problem *)problem)->expression;
    double count = 1;
    for (int i = 0; i < e->count; i++)
        count += e->nodes[i].kind < EXPR_FUNCTION_COUNT;
    return count;
}

static const char *const cases[] = {
    "expr=x shape=4097                                            # copy",
    "expr=gelu(a*x+b) shape=37x512 dtype=bf16                     # a chain",
    "expr=gelu(a*x+b) shape=37x512 dtype=bf16 shapes=,512,512     # broadcast along rows",
    "expr=gelu(a*x+b) shape=37x511 dtype=f16 shapes=37x1,,511     # odd rows: single elements",
    "expr=alpha*a+beta*b shape=5003 scalars=alpha=0.5,beta=-2     # scalars by value",
    "expr=x*s+y shape=5x7x333 dtype=bf16 shapes=,5x7x1,7x333      # rows that start anywhere, one repeated along them",
    "expr=x+y shape=4x6x200 dtype=f16 strides=1300x203x1,0x203x1  # the last row in memory is not the last of all",
    "expr=x+y shape=9x97 dtype=f16 strides=97x1,3x1               # rows that overlap",
    "expr=x*s shape=5003 shapes=,1                                # a scalar in memory",
    "expr=2.5 shape=1027 dtype=f16                                # no inputs: fill",
    "expr=x shape=1",
    "expr=x*y out=bool shape=5000 fill=hard                       # products that are too small for f32 are false",
    "expr='max(x*y-3,-z)' shape=5001 fill=hard seed=589903        # an infinity that is not the larger",
    "expr=-x dtype=bf16 out=f16 shape=1000 inplace=1 fill=hard",
    "expr=x shape=272x0",
    "expr=x shape=0x7                                             # nothing to do",
    "expr=-x*2-abs(y)/4 shape=3000",
    "expr=relu(x) shape=2^14 dtype=f16",
    "expr=neg(x) shape=777 dtype=bf16 inplace=1",
    "expr=x*x+y shape=64x96 dtype=f16 inplace=2",
    "expr=x+y shape=8209 dtype=bf16 misalign=3           # vectors between boundaries, and both ends",
    "expr=x+y shape=4096 dtype=bf16 misalign=5           # all but a tile's last vector",
    "expr=x+y shape=5 dtype=f16 misalign=1               # nothing before the first boundary but all",
    "expr=x+y shape=8209 dtype=f16 in=f32,f16 misalign=3 # in phase, of two widths",
    "expr=x+y shape=8209 dtype=f16 stagger=1             # out of phase",
    "expr=x*2 shape=4099 inplace=1 misalign=1",
    "expr=abs(x-y) shape=2^14 misalign=1 dtype=bf16               # pointers aligned to the element only",
    "expr=max(x,y)+min(x,y) shape=4099 misalign=3",
    "expr=sigmoid(x) shape=5000",
    "expr=silu(x) shape=5000 dtype=f16",
    "expr=-silu(x)/(2*sigmoid(y)) shape=5000 dtype=bf16          # factors of a result of 16 bits",
    "expr=silu(x)-sigmoid(y) shape=5000 dtype=f16                # terms of it",
    "expr=gelu_erf(4*x) shape=5000",
    "expr=gelu(4*x) shape=5000",
    "expr=gelu_erf(x) shape=5000 dtype=bf16",
    "expr=tanh(x) shape=5000",
    "expr=erf(2*x) shape=5000",
    "expr=exp(x) shape=5000",
    "expr=exp(20*x) shape=5000",
    "expr=log(x) shape=5000",
    "expr=log(1+x/1000) shape=5000                                # near 1",
    "expr=log(1+x/1000) shape=5000 out=f16",
    "expr=log(x) shape=5000 dtype=bf16                            # of what is rounded to 16 bits",
    "expr=sqrt(abs(x)) shape=5000",
    "expr=sqrt(abs(x))-x/3 shape=500                              # of integers: rounded, and seen to be",
    "expr=neg(max(x,x)) shape=500                                 # hard: the negative of a NaN looks like poison",
    "expr=rsqrt(x) shape=5000",
    "expr=x/y shape=5000",
    "expr=pow(x,y) shape=5000",
    "expr=x^3-y^2*x shape=5000                                    # powers that are products",
    "expr=abs(x)^2.5 shape=5000 dtype=bf16",
    "expr=(a-b)*(c+d) shape=3001                                  # four inputs",
    "expr=tanh(exp(x)-sigmoid(y)*2) shape=3001 dtype=f16",
    "expr=cast(x) shape=5001 dtype=f32 out=bf16                   # types",
    "expr=x shape=5001 dtype=f16 out=f32",
    "expr=x shape=5001 dtype=f32 out=i32",
    "expr=x*40 shape=5001 dtype=f32 out=u8                        # saturates",
    "expr=x shape=5001 dtype=f16 out=bool",
    "expr=x shape=5001 in=bool out=bf16",
    "expr=x*y shape=5001 in=u8,f16 out=f32",
    "expr=max(x*y-3,-z) shape=5001 dtype=i32                      # integers all the way",
    "expr=x*0.5+y shape=1001 dtype=i32                            # a fraction: in floats, then truncated",
    "expr=x+y shape=4099 in=u8,bool out=i32",
    "expr=x+y shape=48x32x20 shapes=48x1x20,32x1                  # broadcast in the middle",
    "expr=x+y shape=64x48 strides=48x1,1x64,48x1 dtype=f32        # one input transposed",
    "expr=x+y shape=64x48 strides=1x64,1x64,1x64 dtype=bf16       # all of them: dense in another order",
    "expr=x-y shape=7x1000 dtype=f16 strides=1008x1,1000x1,1016x1 # padded rows",
    "expr=x-y shape=7x1000 dtype=f16 strides=1008x1 impl=vector config='prefetch=0'",
    "expr=x-y shape=3x9001 dtype=f16 strides=9009x1,9009x1       # rows of several tiles, in phase",
    "expr=x-y shape=9x97 dtype=f16 strides=98x1,97x1 impl=vector config='prefetch=0' # rows out of phase",
    "expr=x-y shape=3x5003 dtype=f16 strides=5004x1,5005x1 impl=vector config='threads=128 row_threads=128 steps=4'",
    "expr=x-y shape=6x1500 dtype=bf16 strides=1501x1,1503x1 impl=vector config='threads=128 row_threads=32 steps=6'",
    "expr=x-y shape=5x300 strides=301x1,302x1 impl=vector config='vec=4 row_threads=32 steps=3 threads=64 cut=3'",
    "expr=x*y shape=2^13+5 impl=vector config='prefetch=0'",
    "expr=x-y shape=7x1001 dtype=bf16 strides=2004x2,1001x1,1001x1 # every second element",
    "expr=x*y shape=3x4x5x6x7 shapes=3x1x5x1x7,4x1x6x1            # rank 5",
    "expr=x*y shape=2^18+5                                        # many CTAs",
    "expr=a*x+b shape=2^17 dtype=bf16 shapes=,1,1",
    "expr=x+y shape=256x1024 shapes=,1024 impl=vector config='wide=1 steps=2' # 64-bit element numbers",
    "expr=exp(x*gelu_tanh(y)/y) dtype=i32 shape=984               # near 1: truncated to 0 or 1",
    "expr=exp(a)/b shape=500 in=i32,f32 inplace=1                 # a becomes a float",
    "expr=x*40 shape=5001 dtype=bf16 out=u8 fill=uniform          # rounded, then truncated",
    "expr=max(x,y)+1 shape=1001 dtype=u8",
    "expr=relu(x)-y shape=1001 dtype=bool",
    "expr=x*2 shape=1001 in=u8 out=f16",
    "expr=x-y shape=3x1001 dtype=f16 strides=1008x1,1008x1,1008x1 # vectors in the pitch, none in the length",
    "expr=x+y shape=300x517 strides=1x300                         # crossed: odd, tiles that are cut short",
    "expr=x+y shape=24x1501 strides=1x24 # tiles that are mostly empty",
    "expr=x-y shape=16x1501 strides=1x16 dtype=f16 # tiles of few rows",
    "expr=x-y shape=16x648 strides=1x16 dtype=bf16 # by pairs",
    "expr=x-y shape=18x646 strides=1x18 dtype=f16 misalign=1",
    "expr=x-y shape=60x132 strides=1x60 impl=vector config='cross_rows=16 threads=64' # fewer than there are, several "
    "turns",
    "expr=x+y shape=70x136 strides=1x70 dtype=bf16                # and vectors of the others, by pairs",
    "expr=x*y shape=3x66x48 strides=3168x1x66 dtype=f16           # pairs that end with the tile",
    "expr=x-y shape=3x70x130 strides=9100x1x70 dtype=f16 misalign=1",
    "expr=x+y shape=3x70x136 strides=9521x1x70 dtype=bf16         # no pairs: they would begin at odd elements",
    "expr=x+y shape=650x901 strides=1x650 dtype=f16 # rows that begin anywhere: vectors between their boundaries",
    "expr=x-y shape=70x331 strides=1x70 impl=vector config='ragged=1 vec=4 threads=256'",
    "expr=x-y shape=24x186 strides=1x24 dtype=f16 inplace=2 impl=vector config='ragged=1 vec=8 threads=128'",
    "expr=x-y shape=70x331 strides=1x70 misalign=1 impl=vector config='ragged=1 vec=4 threads=256'",
    "expr=x-y shape=3x67x131 strides=8777x1x67 dtype=bf16 impl=vector config='ragged=1 vec=8 threads=128 prefetch=0' # "
    "no pairs",
    "expr=x-y shape=24x186 strides=1x24 dtype=f16 impl=vector config='ragged=1 vec=8 threads=128 prefetch=0' # a tile "
    "that has but the margin",
    "expr=x-y shape=40x17 strides=1x40 dtype=f16 impl=vector config='ragged=1 vec=8 cross_rows=16 threads=64' # hardly "
    "two "
    "vectors",
    "expr=x*y-z shape=33x199 in=u8,f32,f16 out=f16 strides=1x33,,1x33 impl=vector config='ragged=1 vec=4 threads=128'",
    "expr=x*s+y shape=66x77 shapes=,66x1 strides=1x66 dtype=bf16 impl=vector config='ragged=1 vec=8 threads=128'",
    "expr=x-y*z shape=32x24x40 strides=1x32x768,,40x1280x1 dtype=i32 # three dimensions, one of two strided inputs",
    "expr=x-y shape=32x24x40 strides=1x32x768,1x1280x32 # two inputs, of different pitches",
    "expr=x shape=70x90 strides=1x70,91x1 dtype=bool out=bf16",
    "expr=relu(x*b) shape=100x477 dtype=bf16 shapes=,477          # vectors across the ends of rows",
    "expr=x-s shape=301x77 dtype=f16 shapes=,301x1",
    "expr=x-y shape=5x40x1301 dtype=bf16 strides=54642x1366x1,,52441x1311x1 # long rows out of phase",
    "expr=x-y shape=900x257 strides=258x1                         # rows hardly longer than a CTA has threads",
    "expr=x*s+b shape=19x33x7x7 shapes=,33x1x1,33x1x1 misalign=1",
    "expr=x*s+b shape=7x331x5x17 dtype=u8 shapes=,331x1x17,7x1x1x1",
    "expr=x*s-b shape=70x331 in=u8,f16,bool out=f32 shapes=,331,331 # types of single elements",
    NULL,
};

static const char *const population[] = {
    "expr={relu(x)|gelu(x)|gelu_erf(x)|silu(x)|sigmoid(x)|tanh(x)|exp(x)|log(x)|2*x} shape={length} "
    "dtype={f32|f16|bf16}",
    "expr={x+y|x*y|silu(x)*y|gelu(x)*y|max(x,y)} shape={tokens}x{hidden} dtype={f32|f16|bf16}",
    "expr={x+b|x*b|gelu(x+b)|relu(x*b)} shape={r:tokens}x{c:hidden} shapes=,{c} dtype={f32|f16|bf16}",
    "expr={x*s|x-s} shape={r:tokens}x{c:hidden} shapes=,{r}x1 dtype={f32|f16|bf16}",
    "expr={x*s+b|silu(x*s+b)} shape={batch}x{c:channels}x{s:image}x{s} shapes=,{c}x1x1,{c}x1x1 dtype={f32|f16|bf16}",
    "expr={x|x*y} shape={length} dtype=f32 out={f16|bf16}",
    "expr={x+y|silu(x)*y} shape={tokens}x{c:hidden} strides={c}+{0|8|64|1}x1,{c}+{0|8|1}x1 dtype={f32|f16|bf16}",
    "expr=x+y shape={r:tokens}x{c:hidden} strides=1x{r} dtype={f32|f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "expr=", CKL_INVALID, "position 1: an operand is missing" },
    { "expr=gellu(x)", CKL_INVALID, "position 1: unknown function 'gellu', did you mean 'gelu'?" },
    { "expr=half(x)", CKL_INVALID, "unknown function 'half'. Known functions: neg abs relu cast sigmoid silu" },
    { "expr=x+tanh", CKL_INVALID, "position 3: 'tanh' is a function: its argument is missing" },
    { "expr='gelu(a*x'", CKL_INVALID, "position 9: ')' is missing" },
    { "expr=max(x)", CKL_INVALID, "position 6: ',' is missing" },
    { "expr='a*x+'", CKL_INVALID, "position 5: an operand is missing" },
    { "expr='a x'", CKL_INVALID, "position 3: 'x' where an operator is expected" },
    { "expr=a*%", CKL_INVALID, "position 3: '%' where an operand is expected" },
    { "expr=1.5.2*x", CKL_INVALID, "position 1: '1.5.2' is not a number" },
    { "expr=a+b+c+d+e", CKL_INVALID, "position 9: 'e' is one more than 4 operands" },
    { "expr=x shape=-1", CKL_INVALID, "elementwise: shape[0]=-1 is negative" },
    { "expr=x shape=2^40x2^40", CKL_INVALID, "elementwise: in[0] of 1099511627776x1099511627776 elements" },
    { "expr=x+y shape=2^31x2^31 shapes=2^31x1,1 strides=0x0,0x0", CKL_INVALID, "elementwise: in[0] of 2147483648x" },
    { "expr=a*x scalars=a=1x shape=8", CKL_INVALID, "elementwise: scalars=a=1x: a=1x is not a number" },
    { "expr=a*x scalars=a= shape=8", CKL_INVALID, "elementwise: scalars=a=: a= is not a number" },
    { "expr=x dtype=i64", CKL_INVALID, "elementwise: x=i64 is none of f32, f16, bf16, i32, u8, bool" },
    { "expr=x shape=4x4 strides=-4x1", CKL_INVALID, "elementwise: x.stride[0]=-4 is negative" },
    { "expr=x shape=4x4 strides=4x1,3x1", CKL_INVALID,
      "elementwise: stride[0]=3 of out lets its elements share memory" },
    { "expr=x shape=4x4 shapes=3x4", CKL_INVALID, "elementwise: shapes=3x4 does not broadcast" },
    { "expr=x+y shape=4x4 shapes=,4 inplace=2", CKL_INVALID,
      "elementwise: out overlaps in[1] without being the same tensor" },
    { "expr=x impl=vector config='vec=3'", CKL_INVALID, "elementwise vector: vec=3 must be a power of two" },
    { "expr=x+y shape=8x9 shapes=,9 impl=vector config='vec=4 flat=0'", CKL_UNSUPPORTED,
      "elementwise vector: vec=4 does not divide the rows" },
    { "expr=x+y shape=8x9 shapes=,9 impl=vector config='vec=4 flat=1'", CKL_INVALID,
      "elementwise vector: flat=1 are not the operands without gaps" },
    { "expr=x+y shape=65x64 strides=1x65 dtype=f16 impl=vector config='pairs=1'", CKL_INVALID,
      "elementwise vector: pairs=1, but no crossed input" },
    { "expr=x+y shape=64x64 strides=1x64 impl=vector config='threads=96'", CKL_INVALID,
      "elementwise vector: threads=96 vec=4 do not share out the tiles" },
    { "expr=x+y shape=64x64 strides=1x64 impl=vector config='cross_rows=24'", CKL_INVALID,
      "elementwise vector: cross_rows=24 is no power of two from 16 to 64, or nothing is crossed" },
    { "expr=x+y impl=vector config='cross_rows=16'", CKL_INVALID, "cross_rows=16 is no power of two" },
    { "expr=x+y shape=16x64 strides=1x16 dtype=f16 impl=vector config='threads=256'", CKL_INVALID,
      "elementwise vector: threads=256 vec=8 do not share out the tiles" },
    { "expr=x+y shape=64x77 strides=77x1 impl=vector config='ragged=1'", CKL_INVALID,
      "elementwise vector: ragged=1, but nothing is crossed or rows do not begin alike" },
    { "expr=x+y shape=64x77 strides=1x64,80x1 impl=vector config='ragged=1 vec=4'", CKL_INVALID,
      "rows do not begin alike" },
    { "expr=x impl=vector config='threads=512 ctas_per_sm=4'", CKL_INVALID, "ctas_per_sm=4 of 512 threads are not" },
    { "expr=x-y shape=5x300 strides=301x1 dtype=f16 impl=vector config='cut=2'", CKL_INVALID,
      "elementwise vector: cut=2 is not the mask of inputs out of phase: 1" },
    { "expr=x-y shape=300 dtype=f16 impl=vector config='row_threads=32'", CKL_UNSUPPORTED,
      "elementwise vector: row_threads=32 wants rows without gaps" },
    { "expr=x-y shape=5x300 strides=301x1 dtype=f16 impl=vector config='row_threads=33'", CKL_INVALID,
      "elementwise vector: row_threads=33 is neither a power of two up to 32 nor a multiple of 32" },
    { "expr=x impl=vector config='expr=y'", CKL_INVALID, "expr and types of the config are not those of the problem" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(elementwise, .operands = operands, .elements_alone = true, .reference = elementwise_reference,
              .terms_of = terms, .approximation_of = elementwise_approximation);
