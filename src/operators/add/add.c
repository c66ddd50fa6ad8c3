/* add.c - y = alpha*a + beta*b: validation, choice of kernel, launch. */
#include "cutekernellib/operators/add.h"

#include "operators/add/add_config.h"
#include "operators/operators.h"

enum { VECTOR_BYTES = 16, CTAS_MAX = INT32_MAX };

/* Validation */

static ckl_status check_pitch(const char *name, int64_t *ld, int64_t n)
{
    if (*ld == 0)
        *ld = n;
    if (*ld < n)
        FAIL(CKL_INVALID, "add: %s=%" PRId64 " is smaller than n=%" PRId64, name, *ld, n);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_add_desc *d = desc;
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "add: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->n < 0)
        FAIL(CKL_INVALID, "add: n=%" PRId64 " is negative", d->n);
    if (d->rows < 0)
        FAIL(CKL_INVALID, "add: rows=%" PRId64 " is negative", d->rows);
    if (d->rows == 0)
        d->rows = 1;
    TRY(check_pitch("lda", &d->lda, d->n));
    TRY(check_pitch("ldb", &d->ldb, d->n));
    return check_pitch("ldy", &d->ldy, d->n);
}

/* Bytes from the first to past the last element of a tensor. */
static int64_t extent(const ckl_add_desc *d, int64_t ld)
{
    return ((d->rows - 1) * ld + d->n) * (int64_t)ckl_dtype_bytes(d->dtype);
}

static ckl_status check_pointer(const ckl_add_desc *d, const char *name, const void *pointer)
{
    if (!pointer)
        FAIL(CKL_INVALID, "add: %s is NULL", name);
    if ((uintptr_t)pointer % ckl_dtype_bytes(d->dtype))
        FAIL(CKL_INVALID, "add: %s=%p is not aligned to its %zu-byte elements", name, pointer,
             ckl_dtype_bytes(d->dtype));
    return CKL_OK;
}

/* In place is fine, element by element; any other overlap would read what was already written. */
static ckl_status check_overlap(const ckl_add_desc *d, const char *name, const void *x, int64_t ldx, const void *y)
{
    if ((x != y || ldx != d->ldy) && plan_overlap(x, extent(d, ldx), y, extent(d, d->ldy)))
        FAIL(CKL_INVALID, "add: y overlaps %s without being the same tensor", name);
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_add_desc *d = desc;
    const ckl_add_args *x = args;
    if (d->n == 0)
        return CKL_OK;
    TRY(check_pointer(d, "a", x->a));
    TRY(check_pointer(d, "b", x->b));
    TRY(check_pointer(d, "y", x->y));
    TRY(check_overlap(d, "a", x->a, d->lda, x->y));
    return check_overlap(d, "b", x->b, d->ldb, x->y);
}

/* Choice */

/* Rows that follow each other without gaps are one long row. */
static ckl_add_desc flattened(const ckl_add_desc *d)
{
    ckl_add_desc flat = *d;
    if (d->lda == d->n && d->ldb == d->n && d->ldy == d->n) {
        flat.n = flat.lda = flat.ldb = flat.ldy = d->n * d->rows;
        flat.rows = 1;
    }
    return flat;
}

static bool divides_pitches(const ckl_add_desc *d, int vec)
{
    return d->rows == 1 || (d->lda % vec == 0 && d->ldb % vec == 0 && d->ldy % vec == 0);
}

static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ckl_add_desc d = flattened(desc);
    add_config *c = config;
    c->dtype = d.dtype;
    c->vec = VECTOR_BYTES / (int)ckl_dtype_bytes(d.dtype);
    while (!divides_pitches(&d, c->vec))
        c->vec /= 2;
    while (c->steps > 1 && d.n <= add_tile(c) / 2) // short rows: no threads without work
        c->steps /= 2;
    return CKL_OK;
}

static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)
{
    ckl_add_desc d = flattened(desc);
    const add_config *c = config;
    int64_t bytes = c->vec * (int64_t)ckl_dtype_bytes(c->dtype);
    if (c->dtype != d.dtype)
        FAIL(CKL_INVALID, "add vector: dtype=%s is not that of the problem", ckl_dtype_name(c->dtype));
    if (!is_power_of_two(c->vec) || bytes > VECTOR_BYTES)
        FAIL(CKL_INVALID, "add vector: vec=%d must be a power of two of at most %d bytes", c->vec, VECTOR_BYTES);
    if (!divides_pitches(&d, c->vec))
        FAIL(CKL_UNSUPPORTED, "add vector: vec=%d does not divide the distance between rows", c->vec);
    if (c->threads < 32 || c->threads % 32 || c->threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "add vector: threads=%d must be a multiple of 32 up to %d", c->threads,
             device->threads_per_cta_max);
    if (c->steps < 1 || c->steps > 16)
        FAIL(CKL_INVALID, "add vector: steps=%d is not in 1..16", c->steps);
    if (d.rows > CTAS_MAX / max_i64(1, ceil_div(d.n, add_tile(c))))
        FAIL(CKL_UNSUPPORTED, "add vector: more than %d tiles", CTAS_MAX);
    return CKL_OK;
}

/* Launch */

static bool aligned(const void *pointer, int64_t bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const add_config *c = plan->config;
    const ckl_add_args *x = args;
    ckl_add_desc d = flattened(plan->desc);
    if (d.n == 0)
        return CKL_OK;
    int64_t bytes = c->vec * (int64_t)ckl_dtype_bytes(c->dtype);
    int part = aligned(x->a, bytes) && aligned(x->b, bytes) && aligned(x->y, bytes) ? 0 : 1;
    int64_t tiles = ceil_div(d.n, add_tile(c));
    uint32_t tiles_per_row = (uint32_t)tiles;
    float one = 1;
    /* in the order in which the kernel names them */
    void *params[] = { &tiles_per_row,
                       &d.n,
                       (void *)&d.lda,
                       (void *)&x->a,
                       (void *)&d.ldb,
                       (void *)&x->b,
                       (void *)&d.ldy,
                       (void *)&x->y,
                       (void *)(x->alpha ? x->alpha : &one),
                       (void *)(x->beta ? x->beta : &one) };
    device_launch l = { .grid = { tiles * d.rows, 1, 1 }, .params = params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

static const field add_fields[] = { ADD_CONFIG(FIELD_ROW) };

static const implementation vector = {
    .name = "vector",
    .summary = "one tile of vectors a CTA; single elements where a row ends or a pointer is not aligned to vectors",
    .config_bytes = sizeof(add_config),
    .config = FIELD_TABLE(add_fields),
    .choose = choose,
    .admit = admit,
    .describe = add_vector,
    .kernels = 2,
    .target = IR_SM80,
    .launch = launch,
};

static const implementation *const implementations[] = { &vector, NULL };

const operator_info add_operator = {
    .name = "add",
    .summary = "y = alpha*a + beta*b",
    .desc_bytes = sizeof(ckl_add_desc),
    .args_bytes = sizeof(ckl_add_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_add_plan(ckl_device *device, const ckl_add_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &add_operator, desc, NULL, plan);
}

ckl_status ckl_add_run(const ckl_plan *plan, const ckl_add_args *args, ckl_stream stream)
{
    return plan_run(plan, &add_operator, args, stream);
}

ckl_status ckl_add(ckl_device *device, const ckl_add_desc *desc, const ckl_add_args *args, ckl_stream stream)
{
    return plan_once(device, &add_operator, desc, args, stream);
}
