/* host.c - staging of host tensors around a run. */
#include "ffi/host.h"

#include "base/math.h"

enum { ALIGNMENT = 256 }; // of what a device gives; a block keeps its place modulo this

/* Memory of the host that one or more tensors of a call have, and its copy. Parts of a joint projection share one. */
typedef struct block {
    unsigned char *begin, *end;
    void *device;
    bool written;
} block;

typedef struct staged {
    block blocks[PLAN_TENSORS_MAX];
    int count;
} staged;

/* A block of a tensor and of what overlaps it. */
static void add(staged *s, block new)
{
    for (int i = 0; i < s->count; i++) {
        const block *old = &s->blocks[i];
        if (old->begin >= new.end || new.begin >= old->end)
            continue;
        new.begin = old->begin < new.begin ? old->begin : new.begin;
        new.end = old->end > new.end ? old->end : new.end;
        new.written |= old->written;
        s->blocks[i] = s->blocks[--s->count];
        i = -1; // the longer block may overlap those before
    }
    s->blocks[s->count++] = new;
}

static ckl_status copy_in(ckl_device *device, staged *s)
{
    for (int i = 0; i < s->count; i++) {
        block *b = &s->blocks[i];
        size_t bytes = (size_t)(b->end - b->begin), shift = (uintptr_t)b->begin % ALIGNMENT;
        TRY(ckl_malloc(device, bytes + shift, &b->device));
        TRY(ckl_copy_in(device, (unsigned char *)b->device + shift, b->begin, bytes, NULL));
    }
    return CKL_OK;
}

static ckl_status copy_out(ckl_device *device, const staged *s)
{
    for (int i = 0; i < s->count; i++) {
        const block *b = &s->blocks[i];
        size_t bytes = (size_t)(b->end - b->begin), shift = (uintptr_t)b->begin % ALIGNMENT;
        if (b->written)
            TRY(ckl_copy_out(device, b->begin, (unsigned char *)b->device + shift, bytes, NULL));
    }
    return CKL_OK;
}

static void *on_device(const staged *s, void *host)
{
    const block *b = s->blocks;
    while ((unsigned char *)host < b->begin || (unsigned char *)host >= b->end)
        b++;
    return (unsigned char *)b->device + (uintptr_t)b->begin % ALIGNMENT + ((unsigned char *)host - b->begin);
}

/* Has it memory to stage? Numbers stay on the host. */
static bool is_staged(const plan_tensor *t, const void *host)
{
    return host && (t->rank || t->output) && plan_tensor_bytes(t) > 0;
}

static ckl_status run_staged(const ckl_plan *plan, staged *s, void **args)
{
    TRY(copy_in(plan->device, s));
    for (int i = 0; i < plan->tensor_count; i++)
        if (is_staged(&plan->tensors[i], args[i]))
            args[i] = on_device(s, args[i]);
    TRY(plan_run(plan, plan->op, args, NULL));
    return copy_out(plan->device, s); // which comes behind it on the stream, and waits
}

ckl_status host_run(const ckl_plan *plan, void **args)
{
    staged s = { 0 };
    TRY(plan_check_pointers(plan->op->name, plan->tensors, plan->tensor_count, (const void *const *)args));
    for (int i = 0; i < plan->tensor_count; i++) {
        const plan_tensor *t = &plan->tensors[i];
        unsigned char *at = args[i];
        if (is_staged(t, at))
            add(&s, (block){ .begin = at, .end = at + plan_tensor_bytes(t), .written = t->output });
    }
    ckl_status status = run_staged(plan, &s, args);
    for (int i = 0; i < s.count; i++)
        ckl_free(plan->device, s.blocks[i].device);
    return status;
}
