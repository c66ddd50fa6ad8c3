/* rope_angles.c - sine and cosine of position * frequency in f32, for positions up to 2^24; pairs that rotate. */
#include "operators/rope/rope_angles.h"

#include <math.h>

#include "skeletons/prefetch.h"

static const double TURN = 6.283185307179586; // 2 pi

/* On the host */

/* Frequencies in turns per position, each in two f32; the inverse turns the other way. */
static void set_frequencies(const ckl_rope_desc *d, int vec, rope_params *p)
{
    const double base = (d->inverse ? -1 : 1) * (double)d->scale / TURN;
    for (int j = 0; j < vec; j++) {
        double x = base * pow((double)d->theta, -2.0 * j / (double)d->rotary_dim);
        p->pair_hi[j] = (float)x;
        p->pair_lo[j] = (float)(x - (double)p->pair_hi[j]);
    }
    for (int b = 0; b < ROPE_LANE_BITS; b++) {
        double x = pow((double)d->theta, -2.0 * vec * (1 << b) / (double)d->rotary_dim);
        p->lane_hi[b] = (float)x;
        p->lane_lo[b] = (float)(x - (double)p->lane_hi[b]);
    }
}

rope_params rope_params_of(const ckl_rope_desc *d, const ckl_rope_args *args, int vec)
{
    rope_params p = { .x = { args->q, args->k },
                      .y = { args->yq, args->yk },
                      .ldx = { d->ldq, d->ldk },
                      .ldy = { d->ldyq, d->ldyk },
                      .ldx_head = { d->ldq_head, d->ldk_head },
                      .ldy_head = { d->ldyq_head, d->ldyk_head },
                      .heads = { (uint32_t)d->heads, (uint32_t)d->k_heads },
                      .tokens = d->tokens,
                      .positions = args->positions };
    set_frequencies(d, vec, &p);
    return p;
}

/* In the kernel */

void rope_prefetch(const rope_values *p, int head_dim, ckl_dtype dtype, ckl_dtype positions)
{
    IF(eq(thread(), imm(0))) {
        for (int i = 0; i < 2; i++) {
            val tokens = mul(sub(p->tokens, imm(1)), p->ldx[i]),
                heads = mul(convert(I64, sub(p->heads[i], imm(1))), p->ldx_head[i]);
            IF(ne(p->heads[i], imm(0)))
                prefetch_share(p->x[i], add(add(tokens, heads), imm(head_dim)), dtype);
        }
        prefetch_share(p->positions, p->tokens, positions);
    }
}

/* An f32 and what is missing from it: 48 bits. */
typedef struct double_f32 {
    val hi, lo;
} double_f32;

/* Dekker's product; what is left out is below 2^-46 of it. lo may be some units in the last place of hi. */
static double_f32 product(double_f32 a, double_f32 b)
{
    val hi = mul(a.hi, b.hi), rest = fma(a.hi, b.hi, neg(hi));
    return (double_f32){ hi, fma(a.lo, b.hi, fma(a.hi, b.lo, rest)) };
}

static double_f32 normalized(double_f32 x)
{
    val sum = add(x.hi, x.lo);
    return (double_f32){ sum, sub(x.lo, sub(sum, x.hi)) };
}

/* Turns per position of pair 0 of a lane, relative to lane 0: theta^(-2 vec lane / rotary_dim). */
static double_f32 lane_factor(const rope_values *p, val lane, int lanes)
{
    double_f32 factor = { immf(1), immf(0) };
    for (int b = 0; 1 << b < lanes; b++) {
        val chosen = ne(bit_and(lane, imm(1 << b)), imm(0));
        double_f32 power = { select(chosen, p->lane_hi[b], immf(1)), select(chosen, p->lane_lo[b], immf(0)) };
        factor = b ? normalized(product(factor, power)) : power;
    }
    return factor;
}

/*
 * Sine and cosine of position * frequency. Whole turns leave before anything is rounded: adding 1.5 * 2^23 rounds to an
 * integer, and its difference from the product is exact. For elements of 16 bits the hardware's, within 2^-20, will do.
 */
static void angle(val position, double_f32 frequency, ckl_dtype dtype, val *sine, val *cosine)
{
    static const double ROUNDING = 0x1.8p23;
    val turns = mul(position, frequency.hi);
    val rest = fma(position, frequency.lo, fma(position, frequency.hi, neg(turns)));
    val whole = sub(add(turns, immf(ROUNDING)), immf(ROUNDING));
    val x = mul(add(sub(turns, whole), rest), immf(TURN));
    if (dtype == F32) {
        sincos_f32(x, sine, cosine);
        return;
    }
    *sine = sin(x);
    *cosine = cos(x);
}

val rope_position(const rope_values *p, ckl_dtype type, val token)
{
    tensor gPositions = gmem_vector(p->positions, type, p->tokens); // (TOKENS)
    val position = variable(type, imm_as(type, 0));
    IF(lt(token, p->tokens))
        assign(position, at(gPositions, token));
    return position;
}

val rope_number(val position)
{
    val number = convert(F32, position);
    return select(lt(abs(number), immf(0x1p24)), number, immf(NAN));
}

void rope_find_rotation(const rope_values *p, const rope_pairs *pairs, val lane, val number, const val *sine,
                        const val *cosine)
{
    double_f32 factor = lane_factor(p, lane, pairs->lanes);
    for (int j = 0; j < pairs->vec; j++) {
        val s, c;
        angle(number, product(factor, (double_f32){ p->pair_hi[j], p->pair_lo[j] }), pairs->dtype, &s, &c);
        assign(sine[j], s);
        assign(cosine[j], c);
    }
}

void rope_rotate(const rope_pairs *pairs, int heads, const val *sine, const val *cosine, const tensor rX[2])
{
    const int vec = pairs->vec;
    const bool half = pairs->half;
    UNROLL(i, vec * heads) {
        const int j = i % vec, start = i - j;
        const tensor from = rX[half ? 0 : 2 * j / vec], to = rX[half ? 1 : (2 * j + 1) / vec];
        const int first = start + (half ? j : 2 * j % vec), second = start + (half ? j : (2 * j + 1) % vec);
        val a = at(from, first), b = at(to, second);
        val rotated = fma(a, cosine[j], neg(mul(b, sine[j]))); // before `first` changes, which is the register a
        set(to, second, fma(b, cosine[j], mul(a, sine[j])));
        set(from, first, rotated);
    }
}
