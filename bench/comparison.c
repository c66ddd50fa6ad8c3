/* comparison.c - cases found by their lines, changes judged by intervals. */
#include "bench/comparison.h"

#include <string.h>

#include "base/heap.h"
#include "bench/statistics.h"

const char *const verdict_names[] = { "same", "faster", "slower", "ambiguous", "new", "gone", "failed" };

static const result_row *find_row(const results *r, const char *line)
{
    for (int i = 0; i < r->row_count; i++)
        if (strcmp(r->rows[i].line, line) == 0)
            return &r->rows[i];
    return NULL;
}

static bool was_timed(const result_row *row)
{
    return row && row->median_us > 0 && !*row->fault;
}

static ckl_status check_texts(const char *what, const char *old, const char *new)
{
    if (strcmp(old, new) != 0)
        FAIL(CKL_INVALID, "compare: %s differ: \"%s\" and \"%s\"", what, old, new);
    return CKL_OK;
}

static ckl_status check_headers(const result_header *old, const result_header *new)
{
    TRY(check_texts("GPUs", old->gpu, new->gpu));
    TRY(check_texts("drivers", old->driver, new->driver));
    return check_texts("methods", old->protocol, new->protocol);
}

static ckl_status check_methods(const result_row *old, const result_row *new)
{
    if (strcmp(old->method, new->method) != 0 || strcmp(old->l2, new->l2) != 0)
        FAIL(CKL_INVALID, "compare: %.200s was timed by %s with L2 %s, then by %s with L2 %s", new->line, old->method,
             old->l2, new->method, new->l2);
    return CKL_OK;
}

static verdict judge(double change, double half_width, double tolerance)
{
    double low = change * (1 - half_width), high = change * (1 + half_width);
    double least = 1 / (1 + tolerance), most = 1 + tolerance;
    if (low >= least && high <= most)
        return VERDICT_SAME;
    if (high < least)
        return VERDICT_FASTER;
    return low > most ? VERDICT_SLOWER : VERDICT_AMBIGUOUS;
}

static comparison_row compare_row(const result_row *old, const result_row *new, double tolerance)
{
    comparison_row row = { .line = new ? new->line : old->line };
    row.old_us = was_timed(old) ? old->median_us : 0;
    row.new_us = was_timed(new) ? new->median_us : 0;
    if (!new)
        row.verdict = VERDICT_GONE;
    else if (!was_timed(new))
        row.verdict = VERDICT_FAILED;
    else if (!was_timed(old))
        row.verdict = VERDICT_NEW;
    else {
        row.change = new->median_us / old->median_us;
        row.half_width = old->half_width + new->half_width;
        bool shared = old->shared || new->shared; // the GPU, with others: no interval knows that
        row.verdict = shared ? VERDICT_AMBIGUOUS : judge(row.change, row.half_width, tolerance);
    }
    return row;
}

/* The best peer's change, or 0 if it was not the same one twice. */
static double peer_change(const result_row *old, const result_row *new)
{
    const result_peer *a = result_find_peer(old, "best"), *b = result_find_peer(new, "best");
    return a && b && strcmp(a->name, b->name) == 0 ? b->median_us / a->median_us : 0;
}

typedef struct changes {
    double *ours, *peers;
    int count, peer_count;
} changes;

static ckl_status add_row(comparison *c, changes *ch, const result_row *old, const result_row *new, double tolerance)
{
    comparison_row row = compare_row(old, new, tolerance);
    c->rows[c->row_count++] = row;
    c->count[row.verdict]++;
    if (row.change == 0)
        return CKL_OK;
    TRY(check_methods(old, new));
    ch->ours[ch->count++] = row.change;
    double peer = peer_change(old, new);
    if (peer > 0)
        ch->peers[ch->peer_count++] = peer;
    return CKL_OK;
}

static ckl_status add_rows(const results *old, const results *new, double tolerance, comparison *c, changes *ch)
{
    for (int i = 0; i < new->row_count; i++)
        TRY(add_row(c, ch, find_row(old, new->rows[i].line), &new->rows[i], tolerance));
    for (int i = 0; i < old->row_count; i++)
        if (!find_row(new, old->rows[i].line))
            TRY(add_row(c, ch, &old->rows[i], NULL, tolerance));
    return CKL_OK;
}

ckl_status compare_results(const results *old, const results *new, double tolerance, comparison *out)
{
    *out = (comparison){ 0 };
    TRY(check_headers(&old->header, &new->header));
    size_t most = (size_t)(old->row_count + new->row_count) + 1;
    changes ch = { .ours = heap_alloc(2 * most, sizeof *ch.ours) };
    ch.peers = ch.ours + most;
    out->rows = heap_alloc(most, sizeof *out->rows);
    ckl_status status = add_rows(old, new, tolerance, out, &ch);
    out->mean = geometric_mean(ch.ours, ch.count);
    out->peers_mean = geometric_mean(ch.peers, ch.peer_count);
    heap_free(ch.ours);
    return status;
}

void comparison_free(comparison *c)
{
    heap_free(c->rows);
    *c = (comparison){ 0 };
}

static void report_row_of(const comparison_row *row)
{
    printf("%-9s ", verdict_names[row->verdict]);
    if (row->change > 0)
        printf("%10.2f -> %8.2f us  %6.3f +- %.3f", row->old_us, row->new_us, row->change,
               row->change * row->half_width);
    else
        printf("%41s", "");
    printf("  %s\n", row->line);
}

void comparison_report(const comparison *c)
{
    for (int i = 0; i < c->row_count; i++)
        if (c->rows[i].verdict != VERDICT_SAME)
            report_row_of(&c->rows[i]);
    for (int i = 0; i < VERDICT_COUNT; i++)
        printf("%s%d %s", i ? ", " : "", c->count[i], verdict_names[i]);
    if (c->mean > 0)
        printf("; new / old time %.4f in geometric mean", c->mean);
    if (c->peers_mean > 0)
        printf(", that of the peers %.4f", c->peers_mean);
    printf("\n");
}
