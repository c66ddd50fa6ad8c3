/*
 * conv_nchw_copy.c - transposes planes of channels to rows of channels: x and the filters in one launch.
 *
 * A thread makes 8 channels of a place, or of two neighbouring ones. A warp is 8 such threads along the plane by 4
 * along the channels, so both its loads and its stores are whole sectors. Where places are few, as those of filters, it
 * has all of 8 channels, then those of the next 8.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_packed.h"
#include "operators/conv/conv_wait.h"

enum { VECTOR = 8, ALONG_PLANE = 8, WARPS = CONV_PACK_THREADS / 32 };

/* One of the two copies: matrices of channels by places. */
typedef struct plane_copy {
    val from, to;
    val outer, channels, places; // u32
    val padded;                  // channels of a row of the copy, zeros among them
    int each;                    // places of a thread
} plane_copy;

/* What a thread makes. */
typedef struct copy_place {
    val n, channel, place;
} copy_place;

static copy_place place_in_blocks(const plane_copy *c, val cta)
{
    val blocks = div(add(c->places, imm(c->each * ALONG_PLANE - 1)), imm(c->each * ALONG_PLANE));
    val across = div(add(c->padded, imm(CONV_NCHW_COPY_CHANNELS - 1)), imm(CONV_NCHW_COPY_CHANNELS));
    val number = add(mul(cta, imm(WARPS)), warp()), lane = rem(thread(), imm(32));
    val rest = div(number, blocks), n = div(rest, across);
    val block = sub(number, mul(rest, blocks)), channels = sub(rest, mul(n, across));
    return (copy_place){
        .n = n,
        .channel = add(mul(channels, imm(CONV_NCHW_COPY_CHANNELS)), mul(div(lane, imm(ALONG_PLANE)), imm(VECTOR))),
        .place = mul(add(mul(block, imm(ALONG_PLANE)), rem(lane, imm(ALONG_PLANE))), imm(c->each)),
    };
}

/* Of few places: one after the other. */
static copy_place place_in_turn(const plane_copy *c, val cta)
{
    val number = add(mul(cta, imm(CONV_PACK_THREADS)), thread()), vectors = div(c->padded, imm(VECTOR));
    val rest = div(number, c->places), n = div(rest, vectors);
    return (copy_place){ .n = n,
                         .channel = mul(sub(rest, mul(n, vectors)), imm(VECTOR)),
                         .place = sub(number, mul(rest, c->places)) };
}

static copy_place place_of(const plane_copy *c, val cta)
{
    const copy_place block = place_in_blocks(c, cta);
    if (c->each > 1)
        return block;
    const copy_place turn = place_in_turn(c, cta);
    val few = le(c->places, imm(CONV_NCHW_FEW_PLACES));
    return (copy_place){ .n = select(few, turn.n, block.n),
                         .channel = select(few, turn.channel, block.channel),
                         .place = select(few, turn.place, block.place) };
}

/* The address of element (n,i,j) of matrices of `rows` by `columns` elements of 2 bytes. */
static val element_at(val address, val n, val rows, val i, val columns, val j)
{
    val row = add(mul(convert(I64, n), convert(I64, rows)), convert(I64, i));
    val index = add(mul(row, convert(I64, columns)), convert(I64, j));
    return add(address, convert(U64, mul(index, imm64(2))));
}

/* Channel i of a thread's, both places of a pair as a word: the second in its upper half. */
static val load_channel(const plane_copy *c, const copy_place *at, int i, ckl_dtype dtype)
{
    val channel = add(at->channel, imm(i)), there = lt(channel, c->channels);
    val address = element_at(c->from, at->n, c->channels, min(channel, sub(c->channels, imm(1))), c->places, at->place);
    if (c->each == 2)
        return select(there, convert(U32, at(gmem_tensor(address, I32, compact(leaf(1))), 0)), imm(0));
    return select(there, at(gmem_tensor(address, dtype, compact(leaf(1))), 0), convert(dtype, immf(0)));
}

static void store_pairs(const plane_copy *c, const copy_place *at, const val *x)
{
    static const int halves[] = { 0x5410, 0x7632 };
    for (int j = 0; j < 2; j++) {
        tensor rY = fragment(I32, compact(leaf(VECTOR / 2)));
        for (int i = 0; i < VECTOR / 2; i++)
            set(rY, i, convert(I32, permute_bytes(x[2 * i], x[2 * i + 1], imm(halves[j]))));
        val to = element_at(c->to, at->n, c->places, add(at->place, imm(j)), c->padded, at->channel);
        copy(rY, gmem_tensor(to, I32, compact(leaf(VECTOR / 2))), 16);
    }
}

static void store_one(const plane_copy *c, const copy_place *at, const val *x, ckl_dtype dtype)
{
    tensor rY = fragment(dtype, compact(leaf(VECTOR)));
    for (int i = 0; i < VECTOR; i++)
        set(rY, i, x[i]);
    val to = element_at(c->to, at->n, c->places, at->place, c->padded, at->channel);
    copy(rY, gmem_tensor(to, dtype, compact(leaf(VECTOR))), 16);
}

static void make(const plane_copy *c, val cta, ckl_dtype dtype)
{
    const copy_place at = place_of(c, cta);
    val inside = logical_and(lt(at.n, c->outer), lt(at.channel, c->padded));
    IF(logical_and(inside, lt(at.place, c->places))) {
        val x[VECTOR];
        for (int i = 0; i < VECTOR; i++)
            x[i] = load_channel(c, &at, i, dtype);
        if (c->each == 2)
            store_pairs(c, &at, x);
        else
            store_one(c, &at, x, dtype);
    }
}

static plane_copy copy_of(val from, val to, const val size[3], val padded, int each)
{
    return (plane_copy){ from, to, conv_number(size[0]), conv_number(size[1]), conv_number(size[2]), padded, each };
}

void conv_nchw_copy(ckl_dtype dtype, bool pairs)
{
    launch_bounds(CONV_PACK_THREADS, 0);
    conv_values p = params_of(conv);
    const plane_copy x = copy_of(p.from[CONV_X], p.copies[0], p.x_size, p.packed_channels, pairs ? 2 : 1);
    const plane_copy w = copy_of(p.from[CONV_W], p.copies[1], p.filter, p.packed_left, 1);
    conv_wait(&p);
    IF(lt(cta_x(), p.packed_row)) {
        make(&x, cta_x(), dtype);
    }
    ELSE
    {
        make(&w, sub(cta_x(), p.packed_row), dtype);
    }
}
