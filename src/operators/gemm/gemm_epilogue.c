/* gemm_epilogue.c - scales, C, bias and activation of one element. */
#include "operators/gemm/gemm_epilogue.h"

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogues.h"
#include "skeletons/activation.h"

/* x clamped to [-most, most]: derivatives are constant beyond, but 0 times infinity would not be. */
static val clamped(val x, double most)
{
    return max_nan(min_nan(x, immf(most)), immf(-most));
}

/* s + x * 2 s (1-s) * u', of gelu_tanh(x) = x s with s = sigmoid(2u). */
static val derivative_of_gelu(val x)
{
    const double root = 0.7978845608028654, cube = 0.044715;
    val square = mul(x, x), u = mul(mul(x, immf(root)), fma(square, immf(cube), immf(1)));
    val s = sigmoid_f32(add(u, u)), rise = mul(mul(s, sub(immf(1), s)), immf(2));
    return fma(mul(x, rise), fma(square, immf(3 * cube * root), immf(root)), s);
}

static val derivative(choice activation, val x)
{
    enum { MOST = 30 };
    val near = clamped(x, MOST);
    switch ((ckl_activation)activation) {
    case CKL_ACTIVATION_DRELU:
        return select(gt(x, immf(0)), immf(1), immf(0));
    case CKL_ACTIVATION_DGELU:
        return derivative_of_gelu(near);
    case CKL_ACTIVATION_DGELU_ERF: {
        val density = mul(exp_f32(mul(mul(near, near), immf(-0.5))), immf(0.3989422804014327));
        return fma(near, density, normal_cdf_f32(near));
    }
    default: { // of silu
        val s = sigmoid_f32(near);
        return mul(s, fma(near, sub(immf(1), s), immf(1)));
    }
    }
}

static val load_scalar(val address)
{
    return at(gmem_tensor(address, F32, compact(leaf(1))), 0);
}

gemm_scalars gemm_load_scalars(gemm_epilogue e, gemm_scalar_sources from)
{
    gemm_scalars s = { .alpha = from.alpha, .beta = from.beta };
    if (e.device_scalars) {
        s.alpha = load_scalar(from.device_alpha);
        s.beta = e.c ? load_scalar(from.device_beta) : immf(0);
    }
    if (e.scale_a == CKL_GEMM_SCALE_TENSOR)
        s.alpha = mul(s.alpha, load_scalar(from.scale_a));
    if (e.scale_b == CKL_GEMM_SCALE_TENSOR)
        s.alpha = mul(s.alpha, load_scalar(from.scale_b));
    if (e.scale_d)
        s.scale_d = load_scalar(from.scale_d);
    if (e.amax)
        s.amax = variable(U32, imm_as(U32, 0));
    return s;
}

/* d as a custom epilogue changes it. */
static val customised(gemm_epilogue e, const gemm_element *in, val d)
{
    const ckl_gemm_epilogue *custom = gemm_epilogue_find(e.epilogue);
    return custom ? coerce(F32, custom->apply(d, convert(I32, in->row), convert(I32, in->col), custom->user)) : d;
}

static val scaled(gemm_epilogue e, gemm_scalars s, val product, val scale_a, val scale_b, val bias)
{
    if (e.scale_a == CKL_GEMM_SCALE_ROW)
        product = mul(product, scale_a);
    if (e.scale_b == CKL_GEMM_SCALE_ROW)
        product = mul(product, scale_b);
    return e.bias ? fma(product, s.alpha, bias) : mul(product, s.alpha);
}

gemm_finished gemm_finish(gemm_epilogue e, gemm_scalars s, gemm_element in)
{
    val x = scaled(e, s, in.product, in.scale_a, in.scale_b, in.bias);
    if (e.c)
        x = fma(s.beta, in.c, x);
    val d =
        gemm_is_backward(e.activation) ? mul(x, derivative(e.activation, in.x)) : activation_of(e.activation, e.d, x);
    if (e.gated)
        d = mul(d, scaled(e, s, in.up, in.scale_a, in.scale_up, in.bias_up));
    if (e.amax) {
        val bits = bit_and(bitcast(U32, d), imm_as(U32, 0x7fffffff));
        assign(s.amax, max(s.amax, select(in.inside, bits, imm_as(U32, 0))));
    }
    if (e.scale_d)
        d = mul(d, s.scale_d);
    if (e.weighted)
        d = mul(d, in.weight);
    return (gemm_finished){ x, customised(e, &in, d) };
}

void gemm_leave_amax(gemm_epilogue e, gemm_scalars s, val address, bool by_warps)
{
    if (!e.amax)
        return;
    val largest = by_warps ? redux_max(s.amax) : s.amax;
    IF(by_warps ? eq(lane(), imm(0)) : yes())
        red_max(address, largest);
}

val gemm_f32_of_f8(ckl_dtype dtype, val byte)
{
    const bool e4m3 = dtype == CKL_E4M3;
    const int shift = e4m3 ? 20 : 21;
    val bits = convert(U32, byte), magnitude = bit_and(bits, imm(0x7f));
    val scaled =
        bitcast(F32, shift_left(magnitude, imm(shift))); // then the exponent's bias is f32's; right for subnormals, too
    val finite = mul(scaled, immf(e4m3 ? 0x1p120 : 0x1p112));
    val special =
        e4m3 ? select(eq(magnitude, imm(0x7f)), immf(NAN), finite)
             : select(gt(magnitude, imm(0x7c)), immf(NAN), select(eq(magnitude, imm(0x7c)), immf(INFINITY), finite));
    return select(ge(bits, imm(0x80)), neg(special), special);
}

val gemm_block_scale(gemm_epilogue e, char matrix, const gemm_values *p, val i, val extent, val block)
{
    const bool is_a = matrix == 'a';
    const choice how = is_a ? e.scale_a : e.scale_b;
    if (!gemm_has_block_scales(how))
        return immf(1);
    val blocks = div_up(p->k, gemm_block_k(&e));
    val index = how == CKL_GEMM_SCALE_BLOCK ? add(mul(convert(I64, block), extent), i)
                                            : add(mul(div(i, imm(GEMM_BLOCK)), blocks), convert(I64, block));
    tensor gScales = gmem_tensor(is_a ? p->scale_a : p->scale_b, is_a ? F32 : gemm_scale_type(e.ab),
                                 make_layout(dynamic(extent), leaf(1)));
    return at_f32(gScales, index);
}

/* The group's range of K. */
static void take_group_of_k(gemm_epilogue e, gemm_values *p, const gemm_values *all, val group)
{
    const val first = gemm_first_row(all, group);
    const val skipped_A = gemm_k_major(e.layout, 'a') ? first : mul(first, all->lda);
    const val skipped_B = gemm_k_major(e.layout, 'b') ? first : mul(first, all->ldb);
    p->a = gmem_address(p->a, e.ab, skipped_A);
    p->b = gmem_address(p->b, e.b, skipped_B);
    p->k = sub(gemm_first_row(all, add(convert(U32, group), imm(1))), first);
}

gemm_values gemm_product_of(gemm_epilogue e, int grouped, const gemm_values *all, val product)
{
    gemm_values p = *all;
    const bool of_k = grouped == GEMM_GROUPED_K;
    if (of_k)
        take_group_of_k(e, &p, all, product);
    const struct {
        val *address, stride;
        ckl_dtype type;
        bool used;
    } matrices[] = { { &p.a, p.a_batch, e.ab, !of_k },
                     { &p.b, p.b_batch, e.b, !of_k },
                     { &p.c, p.c_batch, e.d, e.c },
                     { &p.x, p.x_batch, e.d, gemm_uses_x(&e) },
                     { &p.d, p.d_batch, e.d, true } };
    for (int i = 0; i < COUNT_OF(matrices); i++)
        if (matrices[i].used && e.pointers) {
            tensor gAddresses = gmem_vector(*matrices[i].address, I64, all->batch);
            *matrices[i].address = convert(U64, at(gAddresses, product));
        } else if (matrices[i].used) {
            val elements = mul(convert(I64, product), matrices[i].stride);
            *matrices[i].address = gmem_address(*matrices[i].address, matrices[i].type, elements);
        }
    return p;
}

val gemm_first_row(const gemm_values *all, val group)
{
    tensor gOffsets = gmem_vector(all->offsets, I32, add(all->groups, imm(1)));
    return convert(I64, at(gOffsets, group));
}

/* Columns of B, each with its bias and scale. */
static val columns_of_B(gemm_epilogue e, const gemm_values *p)
{
    return e.gated ? add(p->n, p->n) : p->n;
}

/* Scales of B that a group has. */
static val scales_of_B(gemm_epilogue e, const gemm_values *all)
{
    val blocks = div_up(all->k, gemm_block_k(&e));
    val squares = div_up(all->n, GEMM_BLOCK);
    return e.scale_b == CKL_GEMM_SCALE_ROW     ? columns_of_B(e, all)
           : e.scale_b == CKL_GEMM_SCALE_BLOCK ? mul(all->n, blocks)
                                               : mul(squares, blocks);
}

gemm_values gemm_group_of(gemm_epilogue e, const gemm_values *all, val group)
{
    gemm_values p = *all;
    const bool x = gemm_uses_x(&e);
    const val first = gemm_first_row(all, group), of_group = convert(I64, group);
    const val columns = mul(of_group, columns_of_B(e, all));
    const val row_of_A = gemm_k_major(e.layout, 'a') ? all->lda : imm64(1);
    const struct {
        val *address, elements;
        ckl_dtype type;
        bool used;
    } parts[] = { { &p.a, mul(first, row_of_A), e.ab, !e.gather },
                  { &p.b, mul(of_group, all->b_batch), e.b, true },
                  { &p.c, mul(first, all->ldc), e.d, e.c && !e.scatter },
                  { &p.x, mul(first, all->ldx), e.d, x && !e.scatter },
                  { &p.d, mul(first, all->ldd), e.d, !e.scatter },
                  { &p.rows_a, first, I32, e.gather },
                  { &p.rows_d, first, I32, e.scatter },
                  { &p.row_weights, first, F32, e.weighted },
                  { &p.bias, e.bias_along == CKL_GEMM_ALONG_M ? first : columns, gemm_bias_type(e.d), e.bias },
                  { &p.scale_a, first, F32, e.scale_a >= CKL_GEMM_SCALE_ROW },
                  { &p.scale_b, mul(of_group, scales_of_B(e, all)),
                    gemm_has_block_scales(e.scale_b) ? gemm_scale_type(e.ab) : F32, e.scale_b >= CKL_GEMM_SCALE_ROW } };
    for (int i = 0; i < COUNT_OF(parts); i++)
        if (parts[i].used)
            *parts[i].address = gmem_address(*parts[i].address, parts[i].type, parts[i].elements);
    p.m = sub(gemm_first_row(all, add(group, imm(1))), first);
    return p;
}

static val load_of_row(val address, ckl_dtype type, val count, val i)
{
    return at_f32(gmem_vector(address, type, count), i);
}

static val row_of_list(val list, const gemm_values *p, val i)
{
    return convert(I64, at(gmem_vector(list, I32, p->m), i));
}

val gemm_row_of_A(gemm_epilogue e, const gemm_values *p, val i)
{
    return e.gather ? row_of_list(p->rows_a, p, i) : i;
}

val gemm_last_to_come(val counter, val count)
{
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    cta_sync();                                                   // its sums are stored
    IF(eq(thread(), imm(0))) {
        val last = eq(convert(U32, atomic_add_acq_rel(counter, imm(1))), sub(count, imm(1)));
        IF(last)
            store_relaxed(I32, counter, imm(0));
        set(sLast, 0, select(last, imm(1), imm(0)));
    }
    cta_sync(); // all threads can read the answer
    return ne(at(sLast, 0), imm(0));
}

val gemm_row_of_D(gemm_epilogue e, const gemm_values *p, val i)
{
    return e.scatter ? row_of_list(p->rows_d, p, i) : i;
}

gemm_finished gemm_finish_at(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val i, val j, gemm_element in)
{
    in.row = i;
    in.col = j;
    if (e.bias)
        in.bias = e.bias_along == CKL_GEMM_ALONG_M ? load_of_row(p->bias, gemm_bias_type(e.d), p->m, i)
                                                   : load_of_row(p->bias, gemm_bias_type(e.d), p->n, j);
    if (e.scale_a == CKL_GEMM_SCALE_ROW)
        in.scale_a = load_of_row(p->scale_a, F32, p->m, i);
    if (e.scale_b == CKL_GEMM_SCALE_ROW)
        in.scale_b = load_of_row(p->scale_b, F32, p->n, j);
    if (e.gated && e.bias)
        in.bias_up = load_of_row(p->bias, gemm_bias_type(e.d), columns_of_B(e, p), add(j, p->n));
    if (e.gated && e.scale_b == CKL_GEMM_SCALE_ROW)
        in.scale_up = load_of_row(p->scale_b, F32, columns_of_B(e, p), add(j, p->n));
    if (e.weighted)
        in.weight = load_of_row(p->row_weights, F32, p->m, i);
    return gemm_finish(e, s, in);
}

/* Sets c to element (row,j) of C, where beta is not 0. */
static void load_C(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val row, val j, val c)
{
    tensor gC = gmem_tensor(p->c, e.d, make_layout(shape(p->m, p->n), stride(p->ldc, 1))); // (M,N)
    IF(ne(s.beta, immf(0)))
        assign(c, at_f32(gC, row, j));
}

/* Finishes element (i,j), which is in this row of D, and stores it. */
static void store_element(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val row, val i, val j, gemm_element in)
{
    tensor gD = gmem_tensor(p->d, e.d, make_layout(shape(p->m, p->n), stride(p->ldd, 1))); // (M,N)
    tensor gX = gmem_tensor(p->x, e.d, make_layout(shape(p->m, p->n), stride(p->ldx, 1))); // (M,N)
    if (gemm_is_backward(e.activation))
        in.x = at_f32(gX, row, j);
    gemm_finished out = gemm_finish_at(e, s, p, i, j, in);
    if (e.preactivation)
        set(gX, coord(row, j), out.x);
    set(gD, coord(row, j), out.d);
}

void gemm_store(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val i, val j, val product, val up)
{
    gemm_element in = { .product = convert(F32, product), .c = variable(F32, immf(0)), .inside = yes() };
    const val row = gemm_row_of_D(e, p, i);
    if (e.d == CKL_I32) {
        tensor gD = gmem_tensor(p->d, e.d, make_layout(shape(p->m, p->n), stride(p->ldd, 1))); // (M,N)
        set(gD, coord(row, j), product);
        return;
    }
    if (e.gated)
        in.up = convert(F32, up);
    if (e.c)
        load_C(e, s, p, row, j, in.c);
    store_element(e, s, p, row, i, j, in);
}

void gemm_store_accumulators(gemm_epilogue e, const gemm_values *p, tensor acc, tensor tCcD)
{
    const gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(p));
    const int count = (int)static_size(tCcD.layout);
    UNROLL(i, count) {
        val up = e.gated ? at(acc, i + count) : (val){ 0 };
        val row = convert(I64, coordinate(tCcD, 0, i)), col = convert(I64, coordinate(tCcD, 1, i));
        IF(logical_and(lt(row, p->m), lt(col, p->n)))
            gemm_store(e, scalars, p, row, col, at(acc, i), up);
    }
    gemm_leave_amax(e, scalars, p->amax, true);
}

/* An element of a block of D^T: where it lies in the block, and in D. */
typedef struct block_element {
    val row, col, i, j;
    val inside; // predicate: it is in D
} block_element;

static int threads_of(const gemm_warp_sums *x)
{
    return x->warps * LANES;
}

/* Elements of a thread, at most. */
static int elements_of(const gemm_warp_sums *x)
{
    return (int)ceil_div(x->rows * x->columns, threads_of(x));
}

/* This thread's element i. Where whole rows are taken at once they differ in their column alone. */
static block_element element_of(const gemm_values *p, const gemm_warp_sums *x, int i)
{
    const int threads = threads_of(x), whole = threads / x->rows;
    val number = add(thread(), imm(i * threads)), col = div(number, imm(x->rows)), row = rem(number, imm(x->rows));
    if (threads % x->rows == 0) {
        row = rem(thread(), imm(x->rows));
        col = add(div(thread(), imm(x->rows)), imm(i * whole));
    }
    block_element at = { .row = row, .col = col };
    at.i = add(x->row, convert(I64, col));
    at.j = add(x->col, convert(I64, row));
    at.inside = logical_and(logical_and(lt(at.i, p->m), lt(at.j, p->n)), lt(col, imm(x->columns)));
    return at;
}

tensor gemm_load_block_C(gemm_epilogue e, const gemm_values *p, const gemm_warp_sums *x)
{
    if (!e.c)
        return (tensor){ 0 };
    const gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(p));
    tensor rC = fragment(F32, compact(leaf(elements_of(x))));
    UNROLL(i, elements_of(x)) {
        const block_element at = element_of(p, x, i);
        val c = variable(F32, immf(0));
        IF(at.inside)
            load_C(e, scalars, p, gemm_row_of_D(e, p, at.i), at.j, c);
        set(rC, i, c);
    }
    return rC;
}

/* Adds the warps' sums of an element, finishes and stores it. */
static void finish_element(gemm_epilogue e, gemm_scalars s, const gemm_values *p, const gemm_warp_sums *x, tensor sSums,
                           block_element at, val c)
{
    IF(at.inside) {
        gemm_element in = { .product = at(sSums, at.row, at.col, 0), .c = c, .inside = yes() };
        for (int w = 1; w < x->warps; w++)
            in.product = add(in.product, at(sSums, at.row, at.col, w));
        store_element(e, s, p, gemm_row_of_D(e, p, at.i), at.i, at.j, in);
    }
}

void gemm_add_warps(gemm_epilogue e, const gemm_values *p, const tiled_mma *mma, tensor acc, tensor rC,
                    const gemm_warp_sums *x)
{
    tensor sSums =
        smem_view(x->partials, F32,
                  make_layout(shape(x->rows, x->columns, x->warps), stride(1, x->rows, x->apart))); // (ROWS,COLS,WARPS)
    copy(acc, partition_C(mma, slice(sSums, _, _, warp()), lane()), 4);
    cta_sync();
    const gemm_scalars scalars = gemm_load_scalars(e, GEMM_SCALAR_SOURCES(p));
    UNROLL(i, elements_of(x))
        finish_element(e, scalars, p, x, sSums, element_of(p, x, i), e.c ? at(rC, i) : immf(0));
}
