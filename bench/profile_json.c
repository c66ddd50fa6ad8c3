/* profile_json.c - JSON of both kinds of profiles. */
#include "bench/profile_json.h"

#include <math.h>

static json_t *counted_kernel(const profiled_kernel *k)
{
    static const char *const names[] = {
#define X(name, text) text,
        COUNTERS(X)
#undef X
    };
    json_t *counts = json_object(), *lines = json_object();
    for (int i = 0; i < COUNTER_COUNT; i++)
        json_object_set_new(counts, names[i], json_integer(k->count[i]));
    for (int i = 0; i < k->line_count; i++)
        json_object_set_new(lines, k->lines[i].where, json_integer(k->lines[i].value));
    return json_pack("{s:s, s:[III], s:i, s:i, s:I, s:o, s:o}", "name", k->name, "grid", (json_int_t)k->grid[0],
                     (json_int_t)k->grid[1], (json_int_t)k->grid[2], "threads", k->threads, "cluster", k->cluster,
                     "smem_bytes", (json_int_t)k->smem_bytes, "counters", counts, "bank_conflicts", lines);
}

json_t *profile_to_json(const profile *p)
{
    json_t *kernels = json_array();
    for (int i = 0; i < p->kernel_count; i++)
        json_array_append_new(kernels, counted_kernel(&p->kernels[i]));
    json_t *out = json_pack("{s:f, s:f, s:f, s:o}", "bytes_read", p->bytes_read, "bytes_written", p->bytes_written,
                            "flops", p->flops, "kernels", kernels);
    if (p->cost.bound)
        json_object_set_new(out, "predicted", json_pack("{s:f, s:s}", "us", p->cost.us, "bound", p->cost.bound));
    return out;
}

static json_t *finding(const ncu_finding *f)
{
    return json_pack("{s:s, s:f}", "what", f->what, "percent", f->percent);
}

static json_t *measured_kernel(const ncu_kernel *k)
{
    json_t *out = json_pack("{s:s, s:i}", "name", k->name, "launches", k->launches);
    for (int i = 0; i < NCU_METRIC_COUNT; i++)
        if (!isnan(k->value[i]))
            json_object_set_new(out, ncu_metrics[i].key, json_real(k->value[i]));
    if (*k->pipe.what)
        json_object_set_new(out, "pipe", finding(&k->pipe));
    if (*k->stall.what)
        json_object_set_new(out, "stall", finding(&k->stall));
    return out;
}

json_t *ncu_to_json(const ncu_report *r)
{
    json_t *kernels = json_array();
    for (int i = 0; i < r->count; i++)
        json_array_append_new(kernels, measured_kernel(&r->kernels[i]));
    return json_pack("{s:o}", "kernels", kernels);
}
