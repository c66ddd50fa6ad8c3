/*
 * report_chart.c - charts in SVG. Places are in percent of the width, so that a phone shows the same chart with letters
 * of the same size.
 */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "bench/report.h"

enum { HEAD_HEIGHT = 26, BAND_HEIGHT = 40, ROOFLINE_HEIGHT = 420 }; // pixels

/* Ratios beyond these stand at the ends of the axis. */
static const double RATIO_LEAST = 1.0 / 64, RATIO_MOST = 256;

/* A logarithmic scale, in percent of the chart; what lies beyond its ends is shown at them. */
typedef struct axis {
    double low, high; // values
    double from, to;  // percent
} axis;

static double place_on(const axis *a, double value)
{
    double share = log(fmin(fmax(value, a->low), a->high) / a->low) / log(a->high / a->low);
    return a->from + share * (a->to - a->from);
}

/* Moves the ends to powers of the base that the value lies between. */
static void widen(axis *a, double base, double value)
{
    a->low = fmin(a->low, pow(base, floor(log(value) / log(base) + 1e-9)));
    a->high = fmax(a->high, pow(base, ceil(log(value) / log(base) - 1e-9)));
}

/* The words say what the chart shows where it cannot be seen. */
static void begin_figure(const char *words, int height, text *out)
{
    text_printf(out, "<figure>\n<svg role=\"img\" aria-label=\"%s\" height=\"%d\">\n", words, height);
}

static void print_line(double x1, double y1, double x2, double y2, const char *class, const char *title, text *out)
{
    text_printf(out,
                "<line class=\"%s\" x1=\"%.2f%%\" y1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"%.2f%%\"><title>%s</title></line>\n",
                class, x1, y1, x2, y2, title);
}

/* Leads to the problem's row; on hover its line comes up, with its numbers. */
static void print_dot(const report_problem *p, double x, double y, const char *class, text *out)
{
    text words = { 0 };
    text_printf(&words, "%s\n%.2f us", p->line, p->median_us);
    if (p->peers.length)
        text_printf(&words, ", ratio to %s", text_data(&p->peers));
    if (p->of_limit > 0)
        text_printf(&words, ", %.1f %% of the limit by %s", 100 * p->of_limit, p->limit);
    text_printf(out, "<a href=\"#%s\" tabindex=\"-1\"><circle class=\"%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"4\"><title>",
                p->anchor, class, x, y);
    report_escape(text_data(&words), out);
    text_printf(out, "</title></circle></a>\n");
    text_free(&words);
}

/* Ratios */

static void print_ratio_grid(const axis *a, double top, text *out)
{
    for (double ratio = a->low; ratio <= a->high; ratio *= 2) {
        print_line(place_on(a, ratio), top, place_on(a, ratio), 100, ratio == 1 ? "strong" : "", "", out);
        text_printf(out, "<text x=\"%.2f%%\" y=\"14\" text-anchor=\"middle\">%s%g</text>\n", place_on(a, ratio),
                    ratio < 1 ? "1/" : "", ratio < 1 ? 1 / ratio : ratio);
    }
}

/* A suite's name above a line of its problems, with their mean as a stroke. */
static void print_band(const report_suite *s, const axis *a, double y, double pixel, text *out)
{
    text mean = { 0 };
    text_printf(&mean, s->best.n ? "%.3f of %d" : "no peer", s->best.mean, s->best.n);
    text_printf(out, "<text class=\"name\" x=\"0\" y=\"%.2f%%\">", y);
    report_escape(s->name, out);
    text_printf(out, "</text><text x=\"100%%\" y=\"%.2f%%\" text-anchor=\"end\">%s</text>\n", y, text_data(&mean));
    for (const report_problem *p = s->problems; p < s->problems + s->count; p++)
        if (p->best > 0)
            print_dot(p, place_on(a, p->best), y + 12 * pixel, p->best < 1 ? "below" : "", out);
    const double x = place_on(a, s->best.mean);
    if (s->best.n)
        print_line(x, y + 4 * pixel, x, y + 20 * pixel, "mean", text_data(&mean), out);
    text_free(&mean);
}

void report_chart_ratios(const report_setup *s, text *out)
{
    const int height = HEAD_HEIGHT + BAND_HEIGHT * s->suite_count;
    const double pixel = 100.0 / height;
    axis a = { 0.5, 2, 2, 98 };
    for (int i = 0; i < s->problem_count; i++)
        if (s->problems[i].best > 0)
            widen(&a, 2, fmin(fmax(s->problems[i].best, RATIO_LEAST), RATIO_MOST));
    begin_figure("Ratios to the best peer: a line for each suite, a dot for each problem", height, out);
    print_ratio_grid(&a, (HEAD_HEIGHT - 6) * pixel, out);
    for (int i = 0; i < s->suite_count; i++)
        print_band(&s->suites[i], &a, (HEAD_HEIGHT + 14 + BAND_HEIGHT * i) * pixel, pixel, out);
    text_printf(out,
                "</svg>\n<figcaption>The best peer's time by ours, a dot for each problem: right of 1 we are faster. "
                "Strokes and numbers are geometric means, and of how many problems.</figcaption>\n</figure>\n");
}

/* Roofline */

/* Limits name classes of the style, too; a file may hold any words. */
static const char *class_of(const report_problem *p)
{
    static const char *const limits[] = { "matrix", "memory", "launch" };
    for (int i = 0; i < COUNT_OF(limits); i++)
        if (strcmp(p->limit, limits[i]) == 0)
            return limits[i];
    return "";
}

typedef struct roofline {
    axis x, y;                   // FLOP per byte, TFLOP/s
    double gbs, tflops, tflops8; // the highest of the setup's runs; 0 if not measured
} roofline;

static bool has_rate(const result_row *row)
{
    return row->median_us > 0 && row->flops > 0 && row->bytes > 0 && row->tflops > 0;
}

static double intensity(const result_row *row)
{
    return row->flops / row->bytes;
}

/* Where a rate of computing takes all that memory gives, in FLOP per byte. */
static double ridge(const roofline *r, double tflops)
{
    return 1e3 * tflops / r->gbs;
}

static roofline make_roofline(const report_setup *s)
{
    roofline r = { .x = { 1, 10, 8, 98 }, .y = { 1, 10, 90, 4 } };
    for (const report_run *run = s->runs; run < s->runs + s->run_count; run++) {
        r.gbs = fmax(r.gbs, fmax(run->copy_gbs, fmax(run->read_gbs, run->write_gbs)));
        r.tflops = fmax(r.tflops, run->matrix_tflops);
        r.tflops8 = fmax(r.tflops8, run->matrix8_tflops);
    }
    const double peak = fmax(r.tflops, r.tflops8);
    if (peak > 0 && r.gbs > 0) {
        widen(&r.x, 10, 2 * ridge(&r, peak));
        widen(&r.y, 10, peak);
    }
    for (int i = 0; i < s->problem_count; i++) {
        const result_row *row = s->problems[i].row;
        if (has_rate(row)) {
            widen(&r.x, 10, intensity(row));
            widen(&r.y, 10, row->tflops);
        }
    }
    return r;
}

static void print_grid(const roofline *r, text *out)
{
    for (double x = r->x.low; x <= r->x.high * 1.01; x *= 10) {
        print_line(place_on(&r->x, x), r->y.to, place_on(&r->x, x), r->y.from, "", "", out);
        text_printf(out, "<text x=\"%.2f%%\" y=\"95%%\" text-anchor=\"middle\">%g</text>\n", place_on(&r->x, x), x);
    }
    for (double y = r->y.low; y <= r->y.high * 1.01; y *= 10) {
        print_line(r->x.from, place_on(&r->y, y), r->x.to, place_on(&r->y, y), "", "", out);
        text_printf(out, "<text x=\"0\" y=\"%.2f%%\">%g</text>\n", place_on(&r->y, y) + 1, y);
    }
}

/* Up to the ridge of the fastest matrix rate, or to an end of the chart. */
static void print_slope(const roofline *r, text *out)
{
    const double peak = fmax(r->tflops, r->tflops8);
    const double from = fmax(r->x.low, ridge(r, r->y.low)), to = fmin(r->x.high, ridge(r, peak > 0 ? peak : r->y.high));
    if (from < to)
        print_line(place_on(&r->x, from), place_on(&r->y, from * r->gbs / 1e3), place_on(&r->x, to),
                   place_on(&r->y, to * r->gbs / 1e3), "strong", "memory", out);
}

/* Its words stand left of it, where no problem can be. */
static void print_flat(const roofline *r, double tflops, const char *bits, text *out)
{
    const double x = place_on(&r->x, ridge(r, tflops)), y = place_on(&r->y, tflops);
    if (!(tflops > 0))
        return;
    print_line(x, y, r->x.to, y, "strong", "matrix units", out);
    text_printf(out, "<text x=\"%.2f%%\" y=\"%.2f%%\" text-anchor=\"end\">%.0f TFLOP/s, %s bits</text>\n", x - 1,
                y + 0.5, tflops, bits);
}

void report_chart_roofline(const report_setup *s, text *out)
{
    const roofline r = make_roofline(s);
    int without = 0;
    begin_figure("Roofline: the TFLOP/s of each problem over its FLOP per byte, under the measured rates",
                 ROOFLINE_HEIGHT, out);
    print_grid(&r, out);
    if (r.gbs > 0) {
        print_slope(&r, out);
        print_flat(&r, r.tflops, "16", out);
        print_flat(&r, r.tflops8, "8", out);
    }
    for (const report_problem *p = s->problems; p < s->problems + s->problem_count; p++)
        if (has_rate(p->row))
            print_dot(p, place_on(&r.x, intensity(p->row)), place_on(&r.y, p->row->tflops), class_of(p), out);
        else
            without++;
    text_printf(
        out,
        "</svg>\n<figcaption>TFLOP/s over FLOP per compulsory byte, under %.0f GB/s and the rates of the matrix "
        "units; types other than of 16 and 8 bits have lower ones. Bound by <b class=\"matrix\">matrix "
        "units</b>, <b class=\"memory\">memory</b>, <b class=\"launch\">the launch</b>. Without a dot, as they "
        "compute nothing or were not timed: %d problems.</figcaption>\n</figure>\n",
        r.gbs, without);
}
