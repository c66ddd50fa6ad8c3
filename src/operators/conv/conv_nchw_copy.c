/*
 * conv_nchw_copy.c - transposes planes of channels to rows of channels: x and the filters in one launch.
 *
 * A thread makes 8 channels of a place, or of 4 or 8 neighbouring ones where all planes begin at as many. A warp is 8 such
 * threads along the plane by 4 along the channels, so both its loads and its stores are whole sectors. Where places are
 * few, as those of filters, it has all of 8 channels, then those of the next 8.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_packed.h"

enum { VECTOR = 8, ALONG_PLANE = 8, WARPS = CONV_PACK_THREADS / 32, EACH_MAX = CONV_NCHW_PLACES_MAX };

/* One of the two copies: matrices of channels by places. */
typedef struct plane_copy {
    val from, to;
    val outer, channels, places; // u32
    val padded;                  // channels of a row of the copy, zeros among them
} plane_copy;

/* What a thread makes. */
typedef struct copy_place {
    val n, channel, place;
} copy_place;

static copy_place place_in_blocks(const plane_copy *c, int each, val cta)
{
    val blocks = div(add(c->places, imm(each * ALONG_PLANE - 1)), imm(each * ALONG_PLANE));
    val across = div(add(c->padded, imm(CONV_NCHW_COPY_CHANNELS - 1)), imm(CONV_NCHW_COPY_CHANNELS));
    val number = add(mul(cta, imm(WARPS)), warp()), lane = rem(thread(), imm(32));
    val rest = div(number, blocks), n = div(rest, across);
    val block = sub(number, mul(rest, blocks)), channels = sub(rest, mul(n, across));
    return (copy_place){
        .n = n,
        .channel = add(mul(channels, imm(CONV_NCHW_COPY_CHANNELS)), mul(div(lane, imm(ALONG_PLANE)), imm(VECTOR))),
        .place = mul(add(mul(block, imm(ALONG_PLANE)), rem(lane, imm(ALONG_PLANE))), imm(each)),
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

static copy_place place_of(const plane_copy *c, int each, val cta)
{
    const copy_place block = place_in_blocks(c, each, cta);
    if (each > 1)
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

/* Channel i of a thread's, places two a word: the second in its upper half. */
static void load_channel(const plane_copy *c, const copy_place *at, int i, int each, val *words)
{
    val channel = add(at->channel, imm(i)), there = lt(channel, c->channels);
    val address = element_at(c->from, at->n, c->channels, min(channel, sub(c->channels, imm(1))), c->places, at->place);
    tensor rX = fragment(I32, compact(leaf(each / 2)));
    copy(gmem_tensor(address, I32, rX.layout), rX, 2 * each);
    for (int w = 0; w < each / 2; w++)
        words[w] = select(there, convert(U32, at(rX, w)), imm(0));
}

static void make_places(const plane_copy *c, const copy_place *at, int each)
{
    static const int halves[] = { 0x5410, 0x7632 };
    val x[VECTOR][EACH_MAX / 2];
    for (int i = 0; i < VECTOR; i++)
        load_channel(c, at, i, each, x[i]);
    for (int j = 0; j < each; j++) {
        tensor rY = fragment(I32, compact(leaf(VECTOR / 2)));
        for (int i = 0; i < VECTOR / 2; i++)
            set(rY, i, convert(I32, permute_bytes(x[2 * i][j / 2], x[2 * i + 1][j / 2], imm(halves[j % 2]))));
        val to = element_at(c->to, at->n, c->places, add(at->place, imm(j)), c->padded, at->channel);
        copy(rY, gmem_tensor(to, I32, compact(leaf(VECTOR / 2))), 16);
    }
}

static void make_place(const plane_copy *c, const copy_place *at, ckl_dtype dtype)
{
    tensor rY = fragment(dtype, compact(leaf(VECTOR)));
    for (int i = 0; i < VECTOR; i++) {
        val channel = add(at->channel, imm(i)), last = sub(c->channels, imm(1));
        val address = element_at(c->from, at->n, c->channels, min(channel, last), c->places, at->place);
        val x = at(gmem_tensor(address, dtype, compact(leaf(1))), 0);
        set(rY, i, select(lt(channel, c->channels), x, convert(dtype, immf(0))));
    }
    val to = element_at(c->to, at->n, c->places, at->place, c->padded, at->channel);
    copy(rY, gmem_tensor(to, dtype, compact(leaf(VECTOR))), 16);
}

static void make(const plane_copy *c, int each, val cta, ckl_dtype dtype)
{
    const copy_place at = place_of(c, each, cta);
    val inside = logical_and(lt(at.n, c->outer), lt(at.channel, c->padded));
    IF(logical_and(inside, lt(at.place, c->places))) {
        if (each > 1)
            make_places(c, &at, each);
        else
            make_place(c, &at, dtype);
    }
}

/* May a thread have so many places? As places_of_thread() of the host side has it. */
static val has_places(const plane_copy *c, int each)
{
    val whole = logical_and(eq(rem(c->places, imm(each)), imm(0)), gt(c->places, imm(CONV_NCHW_FEW_PLACES)));
    return logical_and(whole, eq(bit_and(convert(U32, c->from), imm(2 * each - 1)), imm(0)));
}

static void make_copy(const plane_copy *c, val cta, ckl_dtype dtype)
{
    IF(has_places(c, EACH_MAX)) {
        make(c, EACH_MAX, cta, dtype);
    }
    ELSE
    {
        IF(has_places(c, EACH_MAX / 2)) {
            make(c, EACH_MAX / 2, cta, dtype);
        }
        ELSE
        {
            make(c, 1, cta, dtype);
        }
    }
}

static plane_copy copy_of(val from, val to, const val size[3], val padded)
{
    return (plane_copy){ from, to, conv_number(size[0]), conv_number(size[1]), conv_number(size[2]), padded };
}

void conv_nchw_copy(ckl_dtype dtype)
{
    launch_bounds(CONV_PACK_THREADS, 0);
    conv_values p = params_of(conv);
    const plane_copy x = copy_of(p.from[CONV_X], p.copies[0], p.x_size, p.packed_channels);
    const plane_copy w = copy_of(p.from[CONV_W], p.copies[1], p.filter, p.packed_left);
    grid_wait();
    launch_dependents();
    IF(lt(cta_x(), p.packed_row)) {
        make_copy(&x, cta_x(), dtype);
    }
    ELSE
    {
        make_copy(&w, sub(cta_x(), p.packed_row), dtype);
    }
}
