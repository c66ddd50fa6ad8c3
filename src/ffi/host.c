/* host.c - staging of host tensors around a run. */
#include "ffi/host.h"

#include "base/math.h"

/* Copies of the tensors of a call. */
typedef struct staged {
    const plan_tensor *tensors;
    int count;
    void *host[PLAN_TENSORS_MAX], *device[PLAN_TENSORS_MAX];
    int64_t bytes[PLAN_TENSORS_MAX];
} staged;

/* The first tensor of the same memory. */
static int first_of(const staged *s, int i)
{
    int first = 0;
    while (s->host[first] != s->host[i])
        first++;
    return first;
}

static ckl_status copy_in(ckl_device *device, staged *s, void *const *args)
{
    for (int i = 0; i < s->count; i++) {
        s->host[i] = s->tensors[i].rank || s->tensors[i].output ? args[i] : NULL; // numbers stay on the host
        int first = first_of(s, i);
        s->bytes[first] = max_i64(s->bytes[first], plan_tensor_bytes(&s->tensors[i]));
    }
    for (int i = 0; i < s->count; i++) {
        if (!s->host[i] || first_of(s, i) != i || s->bytes[i] == 0)
            continue;
        TRY(ckl_malloc(device, (size_t)s->bytes[i], &s->device[i]));
        TRY(ckl_copy_in(device, s->device[i], s->host[i], (size_t)s->bytes[i], NULL));
    }
    return CKL_OK;
}

static ckl_status copy_out(ckl_device *device, const staged *s)
{
    for (int i = 0; i < s->count; i++) {
        int first = first_of(s, i);
        if (s->tensors[i].output && s->host[i] && s->device[first])
            TRY(ckl_copy_out(device, s->host[i], s->device[first], (size_t)s->bytes[first], NULL));
    }
    return CKL_OK;
}

static ckl_status run_staged(const ckl_plan *plan, staged *s, void **args)
{
    TRY(copy_in(plan->device, s, args));
    for (int i = 0; i < s->count; i++)
        if (s->host[i] && s->device[first_of(s, i)])
            args[i] = s->device[first_of(s, i)];
    TRY(plan_run(plan, plan->op, args, NULL));
    TRY(ckl_stream_synchronize(plan->device, NULL));
    return copy_out(plan->device, s);
}

ckl_status host_run(const ckl_plan *plan, void **args)
{
    staged s = { .tensors = plan->tensors, .count = plan->tensor_count };
    TRY(plan_check_pointers(plan->op->name, s.tensors, s.count, (const void *const *)args));
    ckl_status status = run_staged(plan, &s, args);
    for (int i = 0; i < s.count; i++)
        ckl_free(plan->device, s.device[i]);
    return status;
}
