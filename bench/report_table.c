/* report_table.c - results for people: a table on stdout. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/math.h"
#include "base/text.h"
#include "bench/results.h"
#include "bench/statistics.h"

static const double INTENSITY_MATRIX = 16; // FLOP per byte above which TFLOP/s says more than GB/s

void report_header(const result_header *h)
{
    printf("%s, driver %s, %" PRId64 " SMs, %s\n", h->gpu, h->driver, h->sm_count, h->date);
    printf("%s\n", h->protocol);
    if (h->busy_percent > 0)
        printf("warning: others use the GPU, %" PRId64 " %% of the time when this began: do not believe its times\n",
               h->busy_percent);
    printf("limits measured here: copy %.0f GB/s, read %.0f, write %.0f, empty kernel %.2f us", h->copy_gbs,
           h->read_gbs, h->write_gbs, h->launch_us);
    if (*h->matrix_source)
        printf(", matrix %.0f TFLOP/s (%s)", h->matrix_tflops, h->matrix_source);
    if (*h->matrix8_source)
        printf(", in 8 bits %.0f (%s)", h->matrix8_tflops, h->matrix8_source);
    printf("; in %.1f s, by %" PRId64 " threads\nratio: the peer's time / ours, above 1 we are faster\n\n", h->limits_s,
           h->threads);
    printf("%10s  %-19s %13s %15s | %10s %6s %6s | %8s %5s  %s\n", "median us", "[p20 - p80]", "rate", "limit",
           "best us", "ratio", "first", "SM MHz", "W", "problem");
}

static void print_peer(const result_row *row)
{
    const result_peer *best = result_find_peer(row, "best"), *first = result_find_peer(row, "first");
    if (best)
        printf(" | %10.2f %6.3f", best->median_us, best->ratio);
    else
        printf(" | %10s %6s", "-", "-");
    if (first)
        printf(" %6.3f", first->ratio);
    else
        printf(" %6s", "-");
}

/* Peers' launches hardly overlap: what changes their time changes ours. */
static void print_chain(const result_row *row)
{
    const result_peer *best = result_find_peer(row, "best");
    printf("%.2f us if every launch waits for the one before", row->chain_us);
    if (best && best->chain_us > 0)
        printf(", then ratio %.3f", best->chain_us / row->chain_us);
    printf("\n");
}

static void print_remarks(const result_row *row)
{
    if (row->event_us > 0)
        printf("%12s%.2f us by events%s", "", row->event_us, row->chain_us > 0 ? ", " : "\n");
    if (row->chain_us > 0)
        print_chain(row);
    if (*row->clock_reasons)
        printf("%12sthe clock was kept down: %s\n", "", row->clock_reasons);
    if (row->beyond_limit)
        printf("%12swarning: faster than the limit by more than 3 %%: do not believe this row\n", "");
    if (row->shared)
        printf("%12swarning: another process came to the GPU: do not believe this row\n", "");
    for (int i = 0; i < row->peer_count; i++)
        if (*row->peers[i].fault)
            printf("%12s%s %s does not count: %s\n", "", row->peers[i].name, row->peers[i].role, row->peers[i].fault);
    if (*row->note)
        printf("%12s%s\n", "", row->note);
}

void report_row(const result_row *row)
{
    if (*row->fault) {
        printf("%10s  %s\n%12sFAILED, not timed: %s\n", "-", row->line, "", row->fault);
        return;
    }
    char range[32];
    snprintf(range, sizeof range, "[%.2f - %.2f]", row->p20_us, row->p80_us);
    bool matrix = row->flops > INTENSITY_MATRIX * row->bytes;
    printf("%10.2f  %-19s %8.1f %-6s %5.1f%% %-6s", row->median_us, range, matrix ? row->tflops : row->gbs,
           matrix ? "TFLOPs" : "GB/s", 100 * row->of_limit, row->limit);
    print_peer(row);
    printf(" | %8.0f %5.0f  %s\n", row->clock_mhz, row->power_w, row->line);
    printf("%12s%s\n", "", row->config);
    print_remarks(row);
    fflush(stdout);
}

static void print_mean(const results *r, const char *role)
{
    double *ratios = calloc((size_t)r->row_count + 1, sizeof *ratios);
    int count = 0;
    for (int i = 0; i < r->row_count && ratios; i++) {
        const result_peer *p = result_find_peer(&r->rows[i], role);
        if (p)
            ratios[count++] = p->ratio;
    }
    if (count)
        printf("; %.4f against the peer's %s (%d rows)", geometric_mean(ratios, count), role, count);
    free(ratios);
}

/* A part of a row's time. */
typedef struct phase {
    const char *name;
    size_t offset; // of its seconds in a row
} phase;

/* Appends the seconds that each took of a row on average; returns their sum. */
static double print_phases_of(const results *r, const phase *phases, int count, text *out)
{
    double all = 0;
    for (int p = 0; p < count; p++) {
        double seconds = 0;
        for (int i = 0; i < r->row_count; i++)
            seconds += *(const double *)((const char *)&r->rows[i] + phases[p].offset);
        text_printf(out, "%s%s %.3f", p ? ", " : "", phases[p].name, seconds / fmax(r->row_count, 1));
        all += seconds;
    }
    return all / fmax(r->row_count, 1);
}

/* Where the time of the run went. */
static void print_phases(const results *r)
{
    static const phase phases[] = {
        { "waiting", offsetof(result_row, wait_s) }, { "planning", offsetof(result_row, plan_s) },
        { "data", offsetof(result_row, data_s) },    { "checking", offsetof(result_row, check_s) },
        { "peers", offsetof(result_row, peers_s) },  { "timing", offsetof(result_row, timing_s) }
    };
    static const phase timing[] = { { "graphs", offsetof(result_row, prepare_s) },
                                    { "warming up", offsetof(result_row, warm_s) },
                                    { "sampling", offsetof(result_row, sample_s) },
                                    { "a second look", offsetof(result_row, again_s) } };
    text parts = { 0 }, of_timing = { 0 };
    double all = print_phases_of(r, phases, COUNT_OF(phases), &parts);
    print_phases_of(r, timing, COUNT_OF(timing), &of_timing);
    printf("%.3f s a row: %s (%s)\n", all, text_data(&parts), text_data(&of_timing));
    text_free(&parts);
    text_free(&of_timing);
}

void report_end(const results *r)
{
    int timed = 0;
    for (int i = 0; i < r->row_count; i++)
        timed += r->rows[i].median_us > 0;
    printf("\n%d of %d rows timed; geometric means of the ratios", timed, r->row_count);
    print_mean(r, "best");
    print_mean(r, "first");
    printf("\n");
    print_phases(r);
}
