/* cmd_layout.c - ckl layout: the calculator of layouts, and their pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "cli/cli.h"
#include "cli/layout_draw.h"
#include "cute/atoms.h"
#include "lab/file.h"
#include "lab/layout_expr.h"

static const char *want_table, *svg_path, *want_banks, *bits_text, *wanted_atom, *want_atoms, *want_functions;
static const cli_option options[] = {
    { "--table", NULL, &want_table, "draw the result as a grid of indices" },
    { "--svg", "FILE", &svg_path, "draw it into an SVG file" },
    { "--banks", NULL, &want_banks, "say which bank conflicts 16-byte accesses have (drawings of swizzles do too)" },
    { "--bits", "N", &bits_text, "bits of an element for --banks; 16 if not given" },
    { "--atom", "NAME", &wanted_atom, "which thread holds which value of an MMA or copy atom" },
    { "--atoms", NULL, &want_atoms, "list the atoms" },
    { "--functions", NULL, &want_functions, "list the functions" },
};

enum { LINE_BYTES_MAX = 1 << 20 };

/* Pictures */

/* Text to `out` or SVG to its file, as asked for. */
static void draw(int64_t count, const grid *grids, text *out)
{
    if (ir_failed())
        return;
    if (want_table)
        grids_print(count, grids, out);
    if (!svg_path)
        return;
    text svg = { 0 };
    grids_svg(count, grids, &svg);
    if (file_write("layout", svg_path, &svg) != CKL_OK)
        ir_fail("%s", ckl_error());
    text_free(&svg);
}

static void draw_value(const layout_value *value, int element_bits, text *out)
{
    bool drawing = want_table || svg_path;
    if (!drawing && !want_banks)
        return;
    if (value->kind != VALUE_LAYOUT && value->kind != VALUE_SHAPE) {
        ir_fail("only a layout can be drawn");
        return;
    }
    if (drawing) {
        grid *grids = NULL;
        int64_t count = layout_grids(value->layout, &grids);
        draw(count, grids, out);
    }
    if (want_banks || has_swizzle(value->layout))
        bank_conflicts_print(value->layout, element_bits, out);
}

/* Atoms */

static grid operand_grid(const mma_atom *atom, const char *name, mma_operand operand, int rows, int cols)
{
    bool shared =
        (operand == MMA_A && atom->a_from == MMA_DESCRIPTOR) || (operand == MMA_B && atom->b_from == MMA_DESCRIPTOR);
    char title[96];
    snprintf(title, sizeof title, "%s %dx%d%s", name, rows, cols, shared ? ", the same to all threads" : "");
    return thread_value_grid(title, mma_atom_layout(atom, operand), rows, cols, false);
}

static void show_layout(const char *name, layout a, text *out)
{
    text_printf(out, "%-12s ", name);
    layout_print(a, out);
    text_printf(out, "\n");
}

static void show_mma_atom(const mma_atom *atom, text *out)
{
    text_printf(out, "%s: %dx%dx%d, %d threads\n", atom->name, atom->m, atom->n, atom->k, atom->threads);
    show_layout("A (T,V)->MK", mma_atom_layout(atom, MMA_A), out);
    show_layout("B (T,V)->NK", mma_atom_layout(atom, MMA_B), out);
    show_layout("C (T,V)->MN", mma_atom_layout(atom, MMA_C), out);
    const grid grids[] = { operand_grid(atom, "A", MMA_A, atom->m, atom->k),
                           operand_grid(atom, "B", MMA_B, atom->n, atom->k),
                           operand_grid(atom, "C", MMA_C, atom->m, atom->n) };
    draw(COUNT_OF(grids), grids, out);
}

/* Matrix copies are drawn in elements of 16 bits, 8x8 matrices one below the other; others in bytes. */
static void show_copy_atom(const copy_atom *atom, text *out)
{
    layout source = copy_atom_layout_source(atom), destination = copy_atom_layout_destination(atom);
    if (ir_failed())
        return;
    bool matrices = atom->threads == 32;
    int unit = matrices ? 16 : 8;
    text_printf(out, "%s: %d threads, indices in bits\n", atom->name, atom->threads);
    show_layout("source", source, out);
    show_layout("destination", destination, out);
    int64_t rows = matrices ? 8 * atom->n : 1, cols = matrices ? 8 : atom->bits / unit;
    const grid grids[] = { thread_value_grid("source", recast_layout(source, 1, unit), rows, cols, true),
                           thread_value_grid("destination", recast_layout(destination, 1, unit), rows, cols, true) };
    draw(COUNT_OF(grids), grids, out);
}

static void show_atom(const char *name, text *out)
{
    mma_atom mma;
    copy_atom copy;
    if (!svg_path)
        want_table = "--table"; // a picture is what was asked for
    if (mma_atom_find(name, &mma))
        show_mma_atom(&mma, out);
    else if (copy_atom_find(name, &copy))
        show_copy_atom(&copy, out);
    else
        ir_fail("there is no atom %s; see 'ckl layout --atoms'", name);
}

/* The command */

static void list_atoms(void)
{
    for (int i = 0; atom_name(i); i++)
        printf("%s\n", atom_name(i));
    printf("\n* is n = 8, 16 ... 256 in SM90_64x*x16 (8 in SM80_16x*x16), and bits in copies.\n");
}

static void list_functions(void)
{
    const char *name, *help;
    for (int i = 0; layout_function(i, &name, &help); i++)
        printf("  %-18s %s\n", name, help);
}

/* One expression or atom, with the drawings asked for; text goes to standard output. */
static ckl_status answer(const char *expression, int element_bits, text *out)
{
    layout_value value;
    ir_describe_begin(NULL, IR_SM80);
    if (wanted_atom)
        show_atom(wanted_atom, out);
    else if (layout_evaluate(expression, &value)) {
        layout_value_print(&value, out);
        text_printf(out, "\n");
        draw_value(&value, element_bits, out);
    }
    return ir_describe_end(NULL);
}

static int answer_lines(int element_bits)
{
    char *line = NULL;
    size_t capacity = 0;
    text out = { 0 };
    for (ssize_t length; (length = getline(&line, &capacity, stdin)) >= 0;) {
        line[strcspn(line, "\r\n")] = '\0';
        text_clear(&out);
        if (length > LINE_BYTES_MAX)
            printf("error: a line of more than %d bytes\n", LINE_BYTES_MAX);
        else if (answer(line, element_bits, &out) == CKL_OK)
            fputs(text_data(&out), stdout);
        else
            printf("error: %s\n", ckl_error());
    }
    free(line);
    text_free(&out);
    return EXIT_PASSED;
}

static int answer_one(const char *expression, int element_bits)
{
    text out = { 0 };
    ckl_status status = answer(expression, element_bits, &out);
    if (status == CKL_OK)
        fputs(text_data(&out), stdout);
    text_free(&out);
    return cli_exit(status);
}

static int wrong_usage(const char *sentence)
{
    fprintf(stderr, "ckl layout: %s; see 'ckl help layout'\n", sentence);
    return EXIT_USAGE;
}

static int command(int argc, char **argv)
{
    if (want_atoms || want_functions) {
        want_atoms ? list_atoms() : list_functions();
        return EXIT_PASSED;
    }
    int64_t bits = 16;
    if (cli_integer("--bits", bits_text, 1, 128, &bits) != CKL_OK || !is_power_of_two(bits))
        return wrong_usage("--bits wants a power of two up to 128");
    const int element_bits = (int)bits;
    if (argc != (wanted_atom ? 1 : 2))
        return wrong_usage(wanted_atom ? "--atom goes without an expression" : "one expression is wanted, in quotes");
    bool from_lines = !wanted_atom && strcmp(argv[1], "-") == 0;
    if (from_lines && (svg_path || want_table || want_banks))
        return wrong_usage("drawings are of one expression, not of -");
    return from_lines ? answer_lines(element_bits) : answer_one(argv[1], element_bits);
}

CLI_COMMAND(
    layout, "EXPR | - | --atom NAME [options]", "calculates with CuTe layouts and draws them",
    "Calculates with CuTe layouts: ckl layout 'logical_divide((4,8):(1,4), 4:1)'. A literal is shape:stride, or a\n"
    "shape alone, which is compact with the first mode fastest; Sw<3,4,3>o(8,64):(64,1) is swizzled, <4:1,8> is a\n"
    "tiler by mode. With - it reads an expression from each line of standard input and answers each with one\n"
    "line, 'error: ...' for a bad one, and goes on (exit status 0). docs/layouts.md explains the functions.");
