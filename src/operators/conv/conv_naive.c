/* conv_naive.c - one thread computes one element: the definition on the GPU, for every direction, layout and size. */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_wait.h"

/* The coordinates of element `number` of a shape, last mode fastest. */
static void coordinates_of(val number, const val *shape, val *out)
{
    for (int i = CONV_RANK - 1; i > 0; i--) {
        out[i] = rem(number, shape[i]);
        number = div(number, shape[i]);
    }
    out[0] = number;
}

/* A tensor at an address; its sizes do not matter. */
static tensor tensor_of(val address, ckl_dtype dtype, const val *stride)
{
    val one = imm64(1);
    return gmem_tensor(
        address, dtype,
        make_layout(shape(one, one, one, one, one), stride(stride[0], stride[1], stride[2], stride[3], stride[4])));
}

/* An element's distance from the first. */
static val index_of(const val *at, const val *stride)
{
    val index = mul(at[0], stride[0]);
    for (int i = 1; i < CONV_RANK; i++)
        index = add(index, mul(at[i], stride[i]));
    return index;
}

/* Along a mode, the place in x that tap t sees from place o; is it inside? */
static val under(const conv_values *p, int mode, val o, val t, val *inside)
{
    val i = sub(add(mul(o, p->step[mode]), mul(t, p->dilation[mode])), p->pad[mode]);
    *inside = logical_and(*inside, logical_and(ge(i, imm64(0)), lt(i, p->x_size[mode])));
    return i;
}

/* Along a mode, the place from which tap t sees i of x; is there one? */
static val over(const conv_values *p, int mode, val i, val t, val *there)
{
    val reach = sub(add(i, p->pad[mode]), mul(t, p->dilation[mode])), o = div(reach, p->step[mode]);
    val whole = logical_and(ge(reach, imm64(0)), eq(rem(reach, p->step[mode]), imm64(0)));
    *there = logical_and(*there, logical_and(whole, lt(o, p->y_size[mode])));
    return o;
}

/* The tensors of a problem, as a thread reads them. */
typedef struct conv_tensors {
    tensor x, w, y;
} conv_tensors;

/* As a factor: i8 as an integer. */
static val factor(const conv_form *form, val x)
{
    return form->dtype == CKL_I8 ? convert(I32, bitcast(CKL_I16, x))
                                 : convert(F32, x); // a byte is loaded with its sign
}

static val forward_sum(const conv_form *form, const conv_values *p, const conv_tensors *g, const val *at)
{
    const ckl_dtype type = conv_sum_type(form);
    val sum = variable(type, convert(type, imm(0))), group = div(at[4], p->k), first = mul(group, p->c);
    LOOP(t, p->filter[0])
        LOOP(r, p->filter[1])
            LOOP(s, p->filter[2]) {
                val inside = yes();
                val d = under(p, 0, at[1], t, &inside), h = under(p, 1, at[2], r, &inside);
                val w = under(p, 2, at[3], s, &inside);
                IF(inside)
                    LOOP(c, p->c)
                        assign(sum, fma(factor(form, at(g->x, at[0], d, h, w, add(first, c))),
                                        factor(form, at(g->w, at[4], t, r, s, c)), sum));
            }
    return sum;
}

static val data_sum(const conv_values *p, const conv_tensors *g, const val *at)
{
    val sum = variable(F32, immf(0)), group = div(at[4], p->c), first = mul(group, p->k), c = rem(at[4], p->c);
    LOOP(t, p->filter[0])
        LOOP(r, p->filter[1])
            LOOP(s, p->filter[2]) {
                val there = yes();
                val d = over(p, 0, at[1], t, &there), h = over(p, 1, at[2], r, &there);
                val w = over(p, 2, at[3], s, &there);
                IF(there)
                    LOOP(q, p->k) {
                        val k = add(first, q);
                        assign(sum, fma(at_f32(g->y, at[0], d, h, w, k), at_f32(g->w, k, t, r, s, c), sum));
                    }
            }
    return sum;
}

static val weight_sum(const conv_values *p, const conv_tensors *g, const val *at)
{
    val sum = variable(F32, immf(0)), c = add(mul(div(at[0], p->k), p->c), at[4]);
    LOOP(n, p->n)
        LOOP(od, p->y_size[0])
            LOOP(oh, p->y_size[1])
                LOOP(ow, p->y_size[2]) {
                    val inside = yes();
                    val d = under(p, 0, od, at[1], &inside), h = under(p, 1, oh, at[2], &inside);
                    val w = under(p, 2, ow, at[3], &inside);
                    IF(inside)
                        assign(sum, fma(at_f32(g->x, n, d, h, w, c), at_f32(g->y, n, od, oh, ow, at[0]), sum));
                }
    return sum;
}

/* The gradient of the bias of one channel. */
static void sum_channel(const conv_naive_config *cfg, const conv_values *p, const conv_tensors *g, val k)
{
    val sum = variable(F32, immf(0));
    LOOP(n, p->n)
        LOOP(d, p->y_size[0])
            LOOP(h, p->y_size[1])
                LOOP(w, p->y_size[2])
                    assign(sum, add(sum, at_f32(g->y, n, d, h, w, k)));
    set(conv_elements_from(p->bias, cfg->form.out), k, sum);
}

void conv_naive(const void *config, int kernel)
{
    const conv_naive_config *cfg = config;
    const conv_form *form = &cfg->form;
    const bool data = form->direction == CKL_CONV_DATA, weight = form->direction == CKL_CONV_WEIGHT;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    conv_values p = params_of(conv);
    conv_tensors g = { .x = tensor_of(p.from[CONV_X], data ? form->out : form->dtype, p.x),
                       .w = tensor_of(p.from[CONV_W], weight ? form->out : form->dtype, p.w),
                       .y = tensor_of(p.from[CONV_Y], data || weight ? form->dtype : form->out, p.y) };
    val channels = mul(p.groups, p.c), filters = mul(p.groups, p.k), at[CONV_RANK];
    const val *places = data ? p.x_size : weight ? p.filter : p.y_size;
    const val sizes[CONV_RANK] = { weight ? filters : p.n, places[0], places[1], places[2],
                                   data     ? channels
                                   : weight ? p.c
                                            : filters };
    val element = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread())), count = sizes[0];
    for (int i = 1; i < CONV_RANK; i++)
        count = mul(count, sizes[i]);
    conv_wait(&p);
    coordinates_of(element, sizes, at);
    IF(lt(element, count)) {
        if (data)
            set(g.x, coord(at[0], at[1], at[2], at[3], at[4]), data_sum(&p, &g, at));
        else if (weight)
            set(g.w, coord(at[0], at[1], at[2], at[3], at[4]), weight_sum(&p, &g, at));
        else
            conv_store(form, &p, p.from[CONV_Y], index_of(at, p.y), at[4], forward_sum(form, &p, &g, at));
    }
    if (weight && form->bias) {
        val k = sub(element, count);
        IF(logical_and(ge(k, imm64(0)), lt(k, filters)))
            sum_channel(cfg, &p, &g, k);
    }
}

/* The host side */

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ((conv_naive_config *)config)->form = conv_form_of(desc);
    return CKL_OK;
}

static int64_t threads_needed(const ckl_conv_desc *d)
{
    const int output = d->direction == CKL_CONV_DATA ? CONV_X : d->direction == CKL_CONV_WEIGHT ? CONV_W : CONV_Y;
    const conv_tensor t = conv_tensor_of(d, output);
    int64_t count = 1;
    for (int i = 0; i < CONV_RANK; i++)
        count = product_i64(count, t.shape[i]);
    return sum_i64(count, d->direction == CKL_CONV_WEIGHT && d->bias ? d->k : 0);
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_naive_config *c = config;
    TRY(conv_check_form("naive", d, &c->form));
    TRY(plan_check_threads("conv naive", c->threads, device));
    if (threads_needed(d) > (int64_t)INT32_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "conv naive: %" PRId64 " outputs are more than one launch has threads",
             threads_needed(d));
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const conv_naive_config *c = plan->config;
    const conv_params params = conv_params_of(plan, plan->desc, args);
    return plan_launch(plan, 0, (plan_grid){ .x = ceil_div(threads_needed(plan->desc), c->threads) }, &params, stream);
}

static const field naive_fields[] = CONV_FIELDS(conv_naive_config, CONV_NAIVE_CONFIG);

const implementation conv_naive_implementation = {
    IMPLEMENTATION_PARTS(conv, naive),
    .cost = conv_cost_naive,
    .summary = "one thread an element, any layout and direction",
    .params = &conv_param_list,
};
