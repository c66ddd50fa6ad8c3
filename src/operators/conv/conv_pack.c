/*
 * conv_pack.c - copies tensors of pixels to NHWC rows that begin at whole 16 bytes, as TMA takes them, and back.
 *
 * A thread moves 16 bytes of a packed row, element by element on the plain side; what that side lacks becomes zeros.
 * Neighbouring threads have neighbouring vectors of a row or, `across`, where plain channels lie apart, neighbouring
 * pixels of a plane. Back to dense pixels it has 16 bytes of these: pieces of sectors would be read before they are
 * written (529 channels of 128 images of 80x80: some 2 ms).
 */
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_packed.h"
#include "operators/conv/conv_wait.h"

enum { VECTOR_MAX = 8 };

/* A thread's vector. */
typedef struct vector_place {
    val inside; // predicate: there is such a vector
    val packed; // i64: its first element in the packed tensor
    val plain;  // i64: the beginning of its row, or image, in the plain one
    val w, c;   // i32: its first element; w: from the first column of the plain one
} vector_place;

/* Its plain elements: which of them exist, and how far from `plain` they lie. */
typedef struct vector_elements {
    val inside[VECTOR_MAX], offset[VECTOR_MAX]; // predicates, i32
} vector_elements;

static val wide(val x)
{
    return convert(I64, x);
}

static vector_place place_across(const conv_values *p, int vector)
{
    val number = add(mul(cta_x(), imm(CONV_PACK_THREADS)), thread()), plane = convert(U32, p->x_size[2]);
    val vectors = div(p->packed_channels, imm(vector)), rest = div(number, plane), n = div(rest, vectors);
    val w = sub(number, mul(rest, plane)), c = mul(sub(rest, mul(n, vectors)), imm(vector));
    val pixel = add(mul(wide(n), p->x_size[2]), wide(w));
    return (vector_place){ .inside = lt(wide(n), p->n),
                           .packed = add(mul(pixel, wide(p->packed_channels)), wide(c)),
                           .plain = mul(wide(n), p->x[0]),
                           .w = conv_signed(w),
                           .c = conv_signed(c) };
}

static vector_place place_along(const conv_values *p, int vector)
{
    val number = add(mul(cta_x(), imm(CONV_PACK_THREADS)), thread()), vectors = div(p->packed_row, imm(vector));
    val row = div(number, vectors), first = mul(sub(number, mul(row, vectors)), imm(vector));
    val rows = convert(U32, p->x_size[1]), n = div(row, rows), h = sub(row, mul(n, rows));
    val column = div(first, p->packed_channels);
    return (vector_place){ .inside = lt(wide(n), p->n),
                           .packed = add(mul(wide(row), wide(p->packed_row)), wide(first)),
                           .plain = add(mul(wide(n), p->x[0]), mul(wide(h), p->x[2])),
                           .w = conv_signed(sub(column, p->packed_left)),
                           .c = conv_signed(sub(first, mul(column, p->packed_channels))) };
}

static vector_elements elements_of(const conv_values *p, const vector_place *v, int vector)
{
    vector_elements e;
    val w = v->w, c = v->c, channels = conv_signed(p->c), columns = conv_signed(p->x_size[2]);
    val w_step = conv_signed(p->x[3]), c_step = conv_signed(p->x[4]),
        last = conv_signed(sub(p->packed_channels, imm(1)));
    for (int i = 0; i < vector; i++) {
        val column = logical_and(ge(w, imm(0)), lt(w, columns));
        e.inside[i] = logical_and(v->inside, logical_and(column, lt(c, channels)));
        e.offset[i] = add(mul(w, w_step), mul(c, c_step));
        val wraps = eq(c, last); // the next one is of the next column
        w = select(wraps, add(w, imm(1)), w);
        c = select(wraps, imm(0), add(c, imm(1)));
    }
    return e;
}

/* The same where a vector is of one column. */
static vector_elements channels_of(const conv_values *p, const vector_place *v, int vector)
{
    vector_elements e;
    val channels = conv_signed(p->c), step = conv_signed(p->x[4]);
    val columns = conv_signed(p->x_size[2]), column = logical_and(ge(v->w, imm(0)), lt(v->w, columns));
    val inside = logical_and(v->inside, column), offset = add(mul(v->w, conv_signed(p->x[3])), mul(v->c, step));
    for (int i = 0; i < vector; i++) {
        e.inside[i] = logical_and(inside, lt(add(v->c, imm(i)), channels));
        e.offset[i] = offset;
        offset = add(offset, step);
    }
    return e;
}

/* Dense pixels of NHWC from packed ones: vector `number` of all their elements, element by element at the end. */
static void copy_back(ckl_dtype dtype)
{
    const int vector = 16 / (int)ckl_dtype_bytes(dtype);
    const conv_values p = params_of(conv);
    grid_wait();
    launch_dependents();
    val number = add(mul(cta_x(), imm(CONV_PACK_THREADS)), thread()), channels = convert(U32, p.c);
    val some = div(number, channels); // times as many vectors as channels, which end together
    val within = mul(sub(number, mul(some, channels)), imm(vector)), pixel = div(within, channels);
    val c = sub(within, mul(pixel, channels)), far = add(mul(pixel, p.packed_channels), c), offset[VECTOR_MAX];
    val base = mul(mul(wide(some), imm64(vector)), wide(p.packed_channels));
    val first = mul(wide(number), imm64(vector)), left = sub(mul(mul(p.x_size[1], p.x_size[2]), p.c), first);
    for (int i = 0; i < vector; i++) {
        offset[i] = far;
        c = add(c, imm(1));
        val wraps = eq(c, channels); // the next one is of the next pixel
        far = add(far, select(wraps, sub(add(p.packed_channels, imm(1)), channels), imm_as(U32, 1)));
        c = select(wraps, imm_as(U32, 0), c);
    }
    tensor gPacked =
        gmem_tensor(gmem_address(p.from[CONV_Y], dtype, base), dtype, make_layout(dynamic(imm(1)), leaf(1)));
    tensor gPlain = conv_run_at(p.from[CONV_X], dtype, first, vector), rX = fragment(dtype, compact(leaf(vector)));
    val aligned = eq(bit_and(p.from[CONV_X], imm_as(U64, 15)), imm_as(U64, 0));
    IF(logical_and(aligned, ge(left, imm64(vector)))) {
        for (int i = 0; i < vector; i++)
            set(rX, i, at(gPacked, offset[i]));
        copy(rX, gPlain, 16);
    }
    ELSE for (int i = 0; i < vector; i++) IF(lt(imm64(i), left)) set(gPlain, i, at(gPacked, offset[i]));
}

/* The plain tensor is `x`, of n, x_size and c; the packed one is `y`. */
void conv_pack(ckl_dtype dtype, bool across, bool fold, bool back)
{
    const int vector = 16 / (int)ckl_dtype_bytes(dtype);
    launch_bounds(CONV_PACK_THREADS, 0);
    if (back && !across) {
        copy_back(dtype);
        return;
    }
    conv_values p = params_of(conv);
    conv_wait(&p);
    const vector_place v = (across ? place_across : place_along)(&p, vector);
    const vector_elements e = (fold ? elements_of : channels_of)(&p, &v, vector);
    val bytes = imm((int)ckl_dtype_bytes(dtype)), plain = add(p.from[CONV_X], convert(U64, mul(v.plain, wide(bytes))));
    tensor gPlain = gmem_tensor(plain, dtype, make_layout(dynamic(imm(1)), leaf(1)));
    tensor gPacked =
        gmem_tensor(add(p.from[CONV_Y], convert(U64, mul(v.packed, wide(bytes)))), dtype, compact(leaf(vector)));
    tensor rX = fragment(dtype, compact(leaf(vector)));
    fill(rX, convert(dtype, immf(0)));
    if (back) {
        IF(v.inside)
            copy(gPacked, rX, 16);
        for (int i = 0; i < vector; i++)
            IF(e.inside[i])
                set(gPlain, e.offset[i], at(rX, i));
        return;
    }
    for (int i = 0; i < vector; i++) {
        val x = variable(dtype, convert(dtype, immf(0)));
        IF(e.inside[i])
            assign(x, at(gPlain, e.offset[i]));
        set(rX, i, x);
    }
    IF(v.inside)
        copy(rX, gPacked, 16);
}

/*
 * Neighbouring channels of a place a thread: in NCHW neighbouring threads have neighbouring places, else neighbouring
 * channels.
 */
void conv_add_packed(const conv_form *form, int slices, bool nchw)
{
    launch_bounds(CONV_PACK_THREADS, 0);
    const conv_values p = params_of(conv);
    const bool data = form->direction == CKL_CONV_DATA;
    const val *places = data ? p.x_size : p.y_size;
    val image = mul(places[0], mul(places[1], places[2])), row = wide(p.packed_channels), count = mul(p.n, image);
    val number = add(mul(wide(cta_x()), imm64(CONV_PACK_THREADS)), wide(thread()));
    val quads = div(row, imm64(CONV_PACK_QUAD)), inner = nchw ? count : quads;
    val outer = div(number, inner), rest = sub(number, mul(outer, inner));
    val place = nchw ? rest : outer, channel = mul(nchw ? outer : rest, imm64(CONV_PACK_QUAD));
    val apart = mul(mul(wide(p.sum_images), image), row), first = add(mul(place, row), channel);
    val n = div(place, image), at = nchw ? add(mul(mul(n, p.k), image), sub(place, mul(n, image))) : mul(place, p.k);
    grid_wait();
    launch_dependents();
    IF(logical_and(lt(place, count), lt(channel, row))) {
        val address = add(p.sums, convert(U64, mul(first, imm64(4))));
        tensor rSum = conv_add_slices(slices, address, apart, CONV_PACK_QUAD);
        for (int i = 0; i < CONV_PACK_QUAD; i++) {
            val c = add(channel, imm64(i));
            IF(lt(c, p.k))
                conv_store(form, &p, p.from[data ? CONV_X : CONV_Y], add(at, nchw ? mul(c, image) : c), c, at(rSum, i));
        }
    }
}
