/*
 * conv_pack.c - tensors of pixels between where they lie and NHWC rows that begin at whole 16 bytes, as TMA takes them.
 *
 * A thread moves 16 bytes of a row there, channels of a column or of some, element by element here. Neighbouring threads have
 * neighbouring vectors, or, where the channels lie apart here, neighbouring columns. What the other side lacks becomes zeros.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_packed.h"

/* A thread's vector: where it begins, and the elements that it moves. */
typedef struct vector_place {
    val inside;            // predicate: there is such a vector
    val index;             // i64: of its first element in the packed tensor
    val outer, d, h, w, c; // i64: of its first element; w counts from the first column there
} vector_place;

/* The next coordinate of a number that counts through all of them, fastest first. */
static val take(val *number, val size)
{
    val at = rem(*number, size);
    *number = div(*number, size);
    return convert(I64, at);
}

static val narrow(val x)
{
    return convert(U32, x);
}

static vector_place place_of(const conv_values *p, int vector, bool across)
{
    vector_place at;
    val number = add(mul(cta_x(), imm(CONV_PACK_THREADS)), thread()), vectors = div(p->packed_row, imm(vector));
    val columns = across ? div(p->packed_row, p->packed_channels) : imm(0);
    val of_column = across ? div(p->packed_channels, imm(vector)) : imm(0);
    val in_row = across ? imm64(0) : take(&number, vectors);
    at.w = across ? take(&number, columns) : imm64(0);
    at.h = take(&number, narrow(p->x_size[1]));
    at.d = take(&number, narrow(p->x_size[0]));
    at.c = across ? mul(take(&number, of_column), imm64(vector)) : imm64(0);
    at.outer = convert(I64, number);
    at.inside = lt(at.outer, p->n);
    val row = add(mul(add(mul(at.outer, p->x_size[0]), at.d), p->x_size[1]), at.h);
    val channels = convert(I64, p->packed_channels), first = mul(in_row, imm64(vector));
    if (across) {
        first = add(mul(at.w, channels), at.c);
    } else {
        at.w = convert(I64, div(narrow(first), p->packed_channels));
        at.c = sub(first, mul(at.w, channels));
    }
    at.index = add(mul(row, convert(I64, p->packed_row)), first);
    return at;
}

/* Where the elements of a vector lie here, and which of them do. */
static void find_elements(const conv_values *p, const vector_place *v, int vector, val *offset, val *inside)
{
    val w = sub(v->w, convert(I64, p->packed_left)), c = v->c;
    val row = add(mul(v->outer, p->x[0]), add(mul(v->d, p->x[1]), mul(v->h, p->x[2])));
    for (int e = 0; e < vector; e++) {
        val column = logical_and(ge(w, imm64(0)), lt(w, p->x_size[2]));
        inside[e] = logical_and(v->inside, logical_and(column, lt(c, p->c)));
        offset[e] = add(row, add(mul(w, p->x[3]), mul(c, p->x[4])));
        val last = eq(add(c, imm64(1)), convert(I64, p->packed_channels)); // of a column
        w = select(last, add(w, imm64(1)), w);
        c = select(last, imm64(0), add(c, imm64(1)));
    }
}

/* The tensor here is `x`, of n, x_size and c; there it is `y`. */
void conv_pack(ckl_dtype dtype, bool across, bool back)
{
    enum { VECTOR_MAX = 8 };
    const int vector = 16 / (int)ckl_dtype_bytes(dtype);
    launch_bounds(CONV_PACK_THREADS, 0);
    conv_values p = params_of(conv);
    val offset[VECTOR_MAX], inside[VECTOR_MAX];
    grid_wait();
    launch_dependents();
    const vector_place v = place_of(&p, vector, across);
    find_elements(&p, &v, vector, offset, inside);
    tensor gPlain = gmem_tensor(p.from[CONV_X], dtype, make_layout(dynamic(imm64(1)), leaf(1)));
    val first = add(p.from[CONV_Y], convert(U64, mul(v.index, imm((int)ckl_dtype_bytes(dtype)))));
    tensor gPacked = gmem_tensor(first, dtype, compact(leaf(vector))), rX = fragment(dtype, compact(leaf(vector)));
    fill(rX, convert(dtype, immf(0)));
    if (back) {
        IF(v.inside)
            copy(gPacked, rX, 16);
        for (int e = 0; e < vector; e++)
            IF(inside[e])
                set(gPlain, offset[e], at(rX, e));
        return;
    }
    for (int e = 0; e < vector; e++) {
        val x = at(gPlain, select(inside[e], offset[e], imm64(0)));
        set(rX, e, select(inside[e], x, convert(dtype, immf(0))));
    }
    IF(v.inside)
        copy(rX, gPacked, 16);
}
