/*
 * unit_atoms.c - the tables of instructions: tests/data/atoms.txt has every atom with its layouts, which numbers its
 * name takes, and what a wrong name is told is nearest. `build/unit_atoms --update` writes it anew.
 */
#include "unit.h"
#include "cute/atoms.h"
#include "golden.h"
#include "ir/build.h"

#define ATOMS_FILE TESTDATA "/atoms.txt"

static void print_layout(const char *name, layout a, text *out)
{
    text_printf(out, "  %s ", name);
    layout_print(a, out);
    text_append(out, "\n", 1);
}

static void print_mma(const mma_atom *a, text *out)
{
    text_printf(out, "  %s: %d x %d x %d by %d threads, %s * %s + %s, A from %s, B from %s\n", ir_op_text(a->op), a->m,
                a->n, a->k, a->threads, ckl_dtype_name(a->a), ckl_dtype_name(a->b), ckl_dtype_name(a->c),
                a->a_from == MMA_REGISTERS ? "registers" : "shared memory",
                a->b_from == MMA_REGISTERS ? "registers" : "shared memory");
    print_layout("A", mma_atom_layout(a, MMA_A), out);
    print_layout("B", mma_atom_layout(a, MMA_B), out);
    print_layout("C", mma_atom_layout(a, MMA_C), out);
}

static void print_copy(const copy_atom *a, text *out)
{
    text_printf(out, "  %s: %d threads, %d bits each, n=%d%s\n", ir_op_text(a->op), a->threads, a->bits, a->n,
                a->transpose ? ", transposed" : "");
    if (a->source)
        print_layout("source", copy_atom_layout_source(a), out);
    if (a->destination)
        print_layout("destination", copy_atom_layout_destination(a), out);
}

/* The atom of that name, whichever kind it is. */
static bool find(const char *name, text *out)
{
    mma_atom mma;
    copy_atom copy;
    bool multiplies = mma_atom_find(name, &mma), copies = copy_atom_find(name, &copy);
    assert_false(multiplies && copies);
    if (out && multiplies)
        print_mma(&mma, out);
    if (out && copies)
        print_copy(&copy, out);
    return multiplies || copies;
}

/* Every number that the name takes in place of its star; the atoms of the first and of the last. */
static void print_numbers(const char *row, text *out)
{
    const char *star = strchr(row, '*');
    char name[ATOM_NAME_MAX], last[ATOM_NAME_MAX] = "";
    int count = 0;
    text_printf(out, "  numbers:");
    for (int n = 0; n <= 300; n++) {
        snprintf(name, sizeof name, "%.*s%d%s", (int)(star - row), row, n, star + 1);
        if (!find(name, NULL))
            continue;
        text_printf(out, " %d", n);
        if (count++ == 0)
            memcpy(last, name, sizeof last);
    }
    text_append(out, "\n", 1);
    find(last, out);
    snprintf(name, sizeof name, "%.*s128%s", (int)(star - row), row, star + 1);
    find(name, out);
}

static void print_nearest(text *out)
{
    static const char *const wrong[] = {
        "",
        "SM90_64x100x16_F32F16F16_SS",
        "SM90_64x4x16_F32F16F16_SS",
        "SM90_64x999x16_F32F16F16_RS",
        "SM90_64x8x16_F32F16F16",
        "SM90_64x64x16_F32BF16BF16_S",
        "SM80_16x16x16_F32F16F16F32_TN",
        "SM80_16x8x8_F32BF16BF16F32_TN",
        "64x256x16 BF16 RS",
    };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        mma_atom untouched = { .m = 77 };
        assert_false(mma_atom_find(wrong[i], &untouched));
        assert_int_equal(untouched.m, 77);
        text_printf(out, "nearest to '%s': %s\n", wrong[i], mma_atom_nearest(wrong[i]).name);
    }
    static const char *const none[] = { "SM90_TMA_LOA",      "SM90_TMA_LOAD2",
                                        "UniversalCopy<08>", "UniversalCopy<-8>",
                                        "UniversalCopy<>",   "UniversalCopy<8",
                                        "UniversalCopy<8>x", "UniversalCopy<99999999999999999999>" };
    for (int i = 0; i < COUNT_OF(none); i++)
        assert_false(find(none[i], NULL));
}

static void print_all(text *out)
{
    ir_describe_begin(NULL, IR_SM90A);
    text_printf(out, "# atoms.txt - the tables of src/cute/atoms.c; build/unit_atoms --update writes it.\n");
    const char *name;
    for (int i = 0; (name = atom_name(i)) != NULL; i++) {
        text_printf(out, "%s\n", name);
        if (strchr(name, '*'))
            print_numbers(name, out);
        else
            assert_true(find(name, out));
    }
    print_nearest(out);
    assert_ok(ir_describe_end(NULL));
}

GOLDEN_MAIN(ATOMS_FILE, print_all)
