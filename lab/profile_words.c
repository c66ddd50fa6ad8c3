/* profile_words.c - a profile as people read it: the figures of each kernel, then what stands out. */
#include "lab/profile.h"

#include <string.h>

#include "base/math.h"

/* From where on something is worth a sentence. */
static const double MOVED_TWICE = 1.1, SECTOR_WASTED = 0.8, CONFLICTS_MANY = 0.05, PADDED = 1.02, SMALL_SHARE = 0.1;
enum { LINES_SHOWN = 4, SECTOR_BYTES = 32 };

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* "gemm.c:88" of "src/operators/gemm/gemm.c:88". */
static const char *short_of(const char *where)
{
    const char *slash = strrchr(where, '/');
    return slash ? slash + 1 : where;
}

/* "1.23 M" and the unit, which more may follow. */
static void print_amount(double amount, const char *unit, text *out)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
    int prefix = 0;
    for (; amount >= 999.5 && prefix + 1 < COUNT_OF(prefixes); prefix++)
        amount /= 1000;
    text_printf(out, "%.3g %s%s", amount, prefixes[prefix], unit);
}

/* The figures */

static void print_instructions(const profiled_kernel *k, text *out)
{
    text_printf(out, "  instructions   %" PRId64 " of warps", k->count[COUNT_INSTRUCTIONS]);
    for (int i = 0; i < IR_CLASS_COUNT; i++) // counters of classes stand in their order
        if (k->count[COUNT_ALU + i])
            text_printf(out, ", %s %.1f %%", ir_class_text((ir_class)i),
                        100 * ratio((double)k->count[COUNT_ALU + i], (double)k->count[COUNT_INSTRUCTIONS]));
    text_printf(out, "\n");
}

/* Which counters say what went in one direction. */
typedef struct direction {
    const char *name;
    counter bytes, requests, sectors, tma;
} direction;

static const direction READ = { "read", COUNT_GLOBAL_READ_BYTES, COUNT_GLOBAL_READ_REQUESTS, COUNT_GLOBAL_READ_SECTORS,
                                COUNT_TMA_LOAD_BYTES };
static const direction WRITTEN = { "written", COUNT_GLOBAL_WRITE_BYTES, COUNT_GLOBAL_WRITE_REQUESTS,
                                   COUNT_GLOBAL_WRITE_SECTORS, COUNT_TMA_STORE_BYTES };

static void print_global(const profiled_kernel *k, const direction *d, double asked, text *out)
{
    const int64_t *count = k->count, bytes = count[d->bytes] + count[d->tma];
    if (!bytes)
        return;
    text_printf(out, "  %-14s ", d->name);
    print_amount((double)bytes, "B", out);
    text_printf(out, ", %.2f times the problem's", ratio((double)bytes, asked));
    if (count[d->tma]) {
        text_printf(out, "; ");
        print_amount((double)count[d->tma], "B by TMA", out);
    }
    if (count[d->requests])
        text_printf(out, "; %" PRId64 " requests of %.1f sectors, %.1f bytes in each", count[d->requests],
                    ratio((double)count[d->sectors], (double)count[d->requests]),
                    ratio((double)count[d->bytes], (double)count[d->sectors]));
    text_printf(out, "\n");
}

static void print_shared(const profiled_kernel *k, text *out)
{
    const int64_t *count = k->count;
    if (!count[COUNT_SHARED_WAVEFRONTS])
        return;
    text_printf(out, "  shared memory  ");
    print_amount((double)count[COUNT_SHARED_READ_BYTES], "B read, ", out);
    print_amount((double)count[COUNT_SHARED_WRITE_BYTES], "B written; ", out);
    text_printf(out, "%" PRId64 " wavefronts, %" PRId64 " of them bank conflicts\n", count[COUNT_SHARED_WAVEFRONTS],
                count[COUNT_BANK_CONFLICTS]);
    for (int i = 0; i < k->line_count && i < LINES_SHOWN; i++)
        text_printf(out, "  %14s %" PRId64 " at %s\n", "", k->lines[i].value, short_of(k->lines[i].where));
}

static void print_kernel(const profile *p, const profiled_kernel *k, text *out)
{
    const int64_t *count = k->count, *grid = k->grid;
    text_printf(out, "kernel %s", k->name);
    if (count[COUNT_LAUNCHES] > 1)
        text_printf(out, ", %" PRId64 " launches", count[COUNT_LAUNCHES]);
    text_printf(out, "\n  grid           %" PRId64 " x %" PRId64 " x %" PRId64 " CTAs of %d threads", grid[0], grid[1],
                grid[2], k->threads);
    if (k->cluster > 1)
        text_printf(out, " in clusters of %d", k->cluster);
    text_printf(out, ", %" PRId64 " bytes of shared memory each\n", k->smem_bytes);
    print_instructions(k, out);
    print_global(k, &READ, p->bytes_read, out);
    print_global(k, &WRITTEN, p->bytes_written, out);
    print_shared(k, out);
    if (count[COUNT_TENSOR_FLOPS]) {
        text_printf(out, "  tensor cores   ");
        print_amount((double)count[COUNT_TENSOR_FLOPS], "FLOP", out);
        text_printf(out, ", %.2f times the problem's\n", ratio((double)count[COUNT_TENSOR_FLOPS], p->flops));
    }
    if (count[COUNT_BARRIER_WAITS])
        text_printf(out, "  barriers       %" PRId64 " waits, %.1f a warp\n", count[COUNT_BARRIER_WAITS],
                    ratio((double)count[COUNT_BARRIER_WAITS], (double)count[COUNT_WARPS]));
}

void profile_print(const profile *p, text *out)
{
    text_printf(out, "problem ");
    print_amount(p->flops, "FLOP; reads ", out);
    print_amount(p->bytes_read, "B, writes ", out);
    print_amount(p->bytes_written, "B\n", out);
    for (int i = 0; i < p->kernel_count; i++)
        print_kernel(p, &p->kernels[i], out);
}

/* What stands out */

static double total(const profile *p, counter of)
{
    double sum = 0;
    for (int i = 0; i < p->kernel_count; i++)
        sum += (double)p->kernels[i].count[of];
    return sum;
}

static double moved_by(const profiled_kernel *k)
{
    return (double)(profile_read_bytes(k) + profile_written_bytes(k));
}

static double moved(const profile *p)
{
    double sum = 0;
    for (int i = 0; i < p->kernel_count; i++)
        sum += moved_by(&p->kernels[i]);
    return sum;
}

/* The kernel that moves most. */
static const profiled_kernel *busiest(const profile *p)
{
    const profiled_kernel *most = &p->kernels[0];
    for (int i = 1; i < p->kernel_count; i++)
        if (moved_by(&p->kernels[i]) > moved_by(most))
            most = &p->kernels[i];
    return most;
}

static void say_moved(const profile *p, text *out)
{
    const profiled_kernel *most = busiest(p);
    double read = total(p, READ.bytes) + total(p, READ.tma), written = total(p, WRITTEN.bytes) + total(p, WRITTEN.tma);
    double times = ratio(moved(p), p->bytes_read + p->bytes_written);
    text_printf(out, "Moves %.2f times the bytes that the problem has", times);
    if (times > MOVED_TWICE)
        text_printf(out, ": %.2f times what it reads, %.2f times what it writes", ratio(read, p->bytes_read),
                    ratio(written, p->bytes_written));
    if (p->kernel_count > 1)
        text_printf(out, "; %s moves %.0f %% of them", most->name, 100 * ratio(moved_by(most), moved(p)));
    text_printf(out, ".");
}

static void say_sectors(const profile *p, const direction *d, text *out)
{
    double bytes = total(p, d->bytes), used = ratio(bytes, total(p, d->sectors) * SECTOR_BYTES);
    if (used < SECTOR_WASTED && bytes > SMALL_SHARE * moved(p))
        text_printf(out, " Of the sectors %s, requests use %.0f of %d bytes.", d->name, used * SECTOR_BYTES,
                    SECTOR_BYTES);
}

/* Of all kernels the line with most conflicts. */
static const device_counter *worst_line(const profile *p)
{
    const device_counter *worst = NULL;
    for (int i = 0; i < p->kernel_count; i++)
        if (p->kernels[i].line_count && (!worst || p->kernels[i].lines[0].value > worst->value))
            worst = &p->kernels[i].lines[0];
    return worst;
}

static void say_conflicts(const profile *p, text *out)
{
    const device_counter *worst = worst_line(p);
    double conflicts = total(p, COUNT_BANK_CONFLICTS), wavefronts = total(p, COUNT_SHARED_WAVEFRONTS);
    if (wavefronts == 0)
        return;
    if (!worst) {
        text_printf(out, " No bank conflicts.");
        return;
    }
    double there = ratio((double)worst->value, conflicts);
    text_printf(out, " %.0f %% of shared-memory wavefronts are conflicts", 100 * conflicts / wavefronts);
    if (conflicts / wavefronts >= CONFLICTS_MANY)
        text_printf(out, ", %s at %s",
                    there == 1    ? "all"
                    : there > 0.9 ? "nearly all"
                    : there > 0.5 ? "most"
                                  : "more than elsewhere",
                    short_of(worst->where));
    text_printf(out, ".");
}

static void say_tensor(const profile *p, text *out)
{
    double times = ratio(total(p, COUNT_TENSOR_FLOPS), p->flops);
    if (times == 0)
        return;
    text_printf(out, " Tensor cores multiply %.2f times what is asked", times);
    if (times > PADDED && *p->tiles)
        text_printf(out, ", with %s", p->tiles);
    text_printf(out, ".");
}

static void say_ctas(const profile *p, text *out)
{
    const profiled_kernel *most = busiest(p);
    int64_t ctas = most->grid[0] * most->grid[1] * most->grid[2];
    if (ctas < p->sm_count)
        text_printf(out, " %" PRId64 " CTA%s leave%s %" PRId64 " of %d SMs idle.", ctas, ctas > 1 ? "s" : "",
                    ctas > 1 ? "" : "s", p->sm_count - ctas, p->sm_count);
}

void profile_say(const profile *p, text *out)
{
    if (!p->kernel_count) {
        text_printf(out, "Launches no kernel.");
        return;
    }
    say_moved(p, out);
    say_sectors(p, &READ, out);
    say_sectors(p, &WRITTEN, out);
    say_conflicts(p, out);
    say_tensor(p, out);
    say_ctas(p, out);
    if (p->cost.bound)
        text_printf(out, " The model predicts %.2f us, bound by %s.", p->cost.us, p->cost.bound);
}
