/* profile.c - the emulator's counters, taken at each launch. */
#include "lab/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

/* The functions of a device that is watched, whose first member a launch finds in the device. */
typedef struct watched_ops {
    device_ops ops;
    const device_ops *original;
    const ckl_plan *plan;
    profile *out;
} watched_ops;

int64_t profile_read_bytes(const profiled_kernel *k)
{
    return k->count[COUNT_GLOBAL_READ_BYTES] + k->count[COUNT_TMA_LOAD_BYTES];
}

int64_t profile_written_bytes(const profiled_kernel *k)
{
    return k->count[COUNT_GLOBAL_WRITE_BYTES] + k->count[COUNT_TMA_STORE_BYTES];
}

/* The name stands in the kernel's description alone. */
static ckl_status read_launch(const ckl_plan *plan, const device_kernel *loaded, const int64_t *grid,
                              profiled_kernel *out)
{
    int which = 0;
    while (plan->kernels[which].loaded != loaded)
        which++;
    const plan_kernel *kernel = &plan->kernels[which];
    *out =
        (profiled_kernel){ .threads = kernel->threads, .cluster = kernel->cluster, .smem_bytes = kernel->smem_bytes };
    memcpy(out->grid, grid, sizeof out->grid);
    ir_kernel *described;
    TRY(plan_describe(plan->op, plan->impl, plan->config, which, plan_target(&plan->device->info), &described));
    snprintf(out->name, sizeof out->name, "%s", described->name);
    ir_kernel_free(described);
    return CKL_OK;
}

static int more_first(const void *a, const void *b)
{
    int64_t x = ((const device_counter *)a)->value, y = ((const device_counter *)b)->value;
    return (x < y) - (x > y);
}

static void add_lines(profiled_kernel *to, const device_counter *lines, int count)
{
    for (int i = 0; i < count; i++) {
        int at = 0;
        while (at < to->line_count && strcmp(to->lines[at].where, lines[i].where) != 0)
            at++;
        if (at < to->line_count)
            to->lines[at].value += lines[i].value;
        else if (at < COUNT_OF(to->lines))
            to->lines[to->line_count++] = lines[i];
    }
    qsort(to->lines, (size_t)to->line_count, sizeof to->lines[0], more_first);
}

/* The entry of that kernel on that grid, a new one if there is none. */
static ckl_status entry_of(profile *p, const profiled_kernel *launched, profiled_kernel **entry)
{
    for (int i = 0; i < p->kernel_count; i++)
        if (strcmp(p->kernels[i].name, launched->name) == 0 &&
            memcmp(p->kernels[i].grid, launched->grid, sizeof launched->grid) == 0) {
            *entry = &p->kernels[i];
            return CKL_OK;
        }
    if (p->kernel_count == COUNT_OF(p->kernels))
        FAIL(CKL_UNSUPPORTED, "profile: more than %d kinds of launches", COUNT_OF(p->kernels));
    *entry = &p->kernels[p->kernel_count++];
    **entry = *launched;
    return CKL_OK;
}

static ckl_status launch(ckl_device *d, const device_kernel *kernel, const device_launch *l, ckl_stream s)
{
    const watched_ops *w = (const watched_ops *)d->ops;
    profiled_kernel launched, *entry;
    device_counter counters[COUNTER_COUNT], lines[CONFLICT_LINES_MAX];
    TRY(read_launch(w->plan, kernel, l->grid, &launched));
    TRY(entry_of(w->out, &launched, &entry));
    w->original->counters_reset(d);
    TRY(w->original->launch(d, kernel, l, s));
    w->original->counters(d, counters, COUNT_OF(counters));
    for (int i = 0; i < COUNTER_COUNT; i++)
        entry->count[i] += counters[i].value;
    add_lines(entry, lines, w->original->conflicts(d, lines, COUNT_OF(lines)));
    return CKL_OK;
}

/* Those words of a plan's text that say how large its tiles are. */
static void read_tiles(const char *config, char *tiles, size_t bytes)
{
    int length = 0;
    for (const char *at = strstr(config, " tile_"); at; at = strstr(at + 1, " tile_"))
        length += snprintf(tiles + length, bytes - (size_t)length, "%s%.*s", length ? " " : "",
                           (int)strcspn(at + 1, " "), at + 1);
}

ckl_status profile_run(check *k, profile *out)
{
    ckl_device *d = k->device;
    const ckl_plan *plan = k->plan;
    const operator_test *test = k->c->test;
    *out = (profile){ .sm_count = d->info.sm_count,
                      .bytes_written = adapter_bytes_written(test, k->c->problem),
                      .flops = check_flops(k) };
    out->bytes_read = adapter_bytes(test, k->c->problem) - out->bytes_written;
    if (plan->impl && plan->impl->cost)
        out->cost = plan->impl->cost(plan->desc, &d->info, plan->config);
    read_tiles(ckl_plan_text(plan), out->tiles, sizeof out->tiles);
    operand_images_poison(&k->images, 0xff);
    TRY(operand_set_write(d, &k->images, &k->set, OPERANDS_ALL, k->stream));
    watched_ops watched = { *d->ops, d->ops, plan, out };
    watched.ops.launch = launch;
    d->ops = &watched.ops;
    ckl_status status = check_enqueue(k);
    d->ops = watched.original;
    return status != CKL_OK ? status : ckl_stream_synchronize(d, k->stream);
}
