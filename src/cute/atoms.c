/* atoms.c - the tables of MMA and copy atoms. */
#include "cute/atoms.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"

/* MMA atoms */

/*
 * What atoms that differ in n and in the types of A and B have in common; M, threads and where A and B lie follow from
 * the op.
 */
typedef struct mma_form {
    ir_op op;
    int k;
    const char *layouts[3];
} mma_form;

#define WGMMA_C    "((4,8,4),(2,2,N/8)):((128,1,16),(64,8,512))"
#define MMA_SYNC_C "((4,8),(2,2)):((32,1),(16,8))"
#define LONE       "(1,1):(0,0)"

static const mma_form wgmma_8 = { IR_WGMMA, 8, { "(128,(64,8)):(0,(1,64))", "(128,(N,8)):(0,(1,N))", WGMMA_C } };
static const mma_form wgmma_16 = { IR_WGMMA, 16, { "(128,(64,16)):(0,(1,64))", "(128,(N,16)):(0,(1,N))", WGMMA_C } };
static const mma_form wgmma_32 = { IR_WGMMA, 32, { "(128,(64,32)):(0,(1,64))", "(128,(N,32)):(0,(1,N))", WGMMA_C } };
static const mma_form wgmma_rs = { IR_WGMMA_RS,
                                   16,
                                   { "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))", "(128,(N,16)):(0,(1,N))", WGMMA_C } };
static const mma_form mma_8 = { IR_MMA, 8, { "((4,8),(2,2)):((16,1),(8,64))", "((4,8),2):((8,1),32)", MMA_SYNC_C } };
static const mma_form mma_16 = {
    IR_MMA, 16, { "((4,8),(2,2,2)):((32,1),(16,8,128))", "((4,8),(2,2)):((16,1),(8,64))", MMA_SYNC_C }
};
static const mma_form mma_32 = {
    IR_MMA, 32, { "((4,8),(4,2,2)):((64,1),(16,8,256))", "((4,8),(4,2)):((32,1),(8,128))", MMA_SYNC_C }
};
static const mma_form fma_thread = { IR_FMA, 1, { LONE, LONE, LONE } };

/* The * of a name stands for n: first, first + 8, ... last; a name without it has n = first. */
typedef struct mma_row {
    const char *name;
    int first, last;
    ckl_dtype a, b;
    const mma_form *form;
} mma_row;

static const mma_row mma_rows[] = {
    { "SM90_64x*x16_F32F16F16_SS", 8, 256, CKL_F16, CKL_F16, &wgmma_16 },
    { "SM90_64x*x16_F32F16F16_RS", 8, 256, CKL_F16, CKL_F16, &wgmma_rs },
    { "SM90_64x*x16_F32BF16BF16_SS", 8, 256, CKL_BF16, CKL_BF16, &wgmma_16 },
    { "SM90_64x*x16_F32BF16BF16_RS", 8, 256, CKL_BF16, CKL_BF16, &wgmma_rs },
    { "SM90_64x*x8_F32TF32TF32_SS_TN", 8, 256, CKL_F32, CKL_F32, &wgmma_8 },
    { "SM90_64x*x32_F32E4M3E4M3_SS_TN", 8, 256, CKL_E4M3, CKL_E4M3, &wgmma_32 },
    { "SM90_64x*x32_F32E4M3E5M2_SS_TN", 8, 256, CKL_E4M3, CKL_E5M2, &wgmma_32 },
    { "SM90_64x*x32_F32E5M2E4M3_SS_TN", 8, 256, CKL_E5M2, CKL_E4M3, &wgmma_32 },
    { "SM90_64x*x32_F32E5M2E5M2_SS_TN", 8, 256, CKL_E5M2, CKL_E5M2, &wgmma_32 },
    { "SM90_64x*x32_S32S8S8_SS_TN", 8, 256, CKL_I8, CKL_I8, &wgmma_32 },
    { "SM90_64x*x32_S32U8U8_SS_TN", 8, 256, CKL_U8, CKL_U8, &wgmma_32 },
    { "SM80_16x*x16_F32F16F16F32_TN", 8, 8, CKL_F16, CKL_F16, &mma_16 },
    { "SM80_16x*x16_F32BF16BF16F32_TN", 8, 8, CKL_BF16, CKL_BF16, &mma_16 },
    { "SM80_16x*x8_F32TF32TF32F32_TN", 8, 8, CKL_F32, CKL_F32, &mma_8 },
    { "SM80_16x*x32_S32S8S8S32_TN", 8, 8, CKL_I8, CKL_I8, &mma_32 },
    { "UniversalFMA", 1, 1, CKL_F32, CKL_F32, &fma_thread },
};

/* Copy atoms */

#define ONE_THREAD   "(1,N):(0,1)"
#define ROWS_OF_1    "((8,4),128):((128,0),1)"  // 8 lanes point at the 16-byte rows of a matrix, the others repeat them
#define ROWS_OF_2    "((16,2),128):((128,0),1)" // the same of two matrices
#define ROWS_OF_4    "(32,128):(128,1)"
#define PAIRS_OF_1   "(32,32):(32,1)" // a lane holds two neighbours in a row of the matrix
#define PAIRS_OF_2   "(32,(32,2)):(32,(1,1024))"
#define PAIRS_OF_4   "(32,(32,4)):(32,(1,1024))"
#define TRANSPOSED_1 "((4,8),(16,2)):((256,16),(1,128))" // two neighbours in a column
#define TRANSPOSED_2 "((4,8),(16,2,2)):((256,16),(1,128,1024))"
#define TRANSPOSED_4 "((4,8),(16,2,4)):((256,16),(1,128,1024))"

/* The * of a name stands for the bits of a thread: a power of two from first to last. */
typedef struct copy_row {
    const char *name;
    int first, last;
    int threads;
    ir_op op;
    int n;
    bool transpose;
    const char *source, *destination;
} copy_row;

static const copy_row copy_rows[] = {
    { "UniversalCopy<*>", 8, 128, 1, IR_LD, 1, false, ONE_THREAD, ONE_THREAD },
    { "SM80_CP_ASYNC_CACHEALWAYS<*>", 32, 128, 1, IR_CP_ASYNC, 0, false, ONE_THREAD, ONE_THREAD },
    { "SM80_CP_ASYNC_CACHEGLOBAL<*>", 128, 128, 1, IR_CP_ASYNC, 0, false, ONE_THREAD, ONE_THREAD },
    { "SM75_U32x1_LDSM_N", 0, 0, 32, IR_LDMATRIX, 1, false, ROWS_OF_1, PAIRS_OF_1 },
    { "SM75_U32x2_LDSM_N", 0, 0, 32, IR_LDMATRIX, 2, false, ROWS_OF_2, PAIRS_OF_2 },
    { "SM75_U32x4_LDSM_N", 0, 0, 32, IR_LDMATRIX, 4, false, ROWS_OF_4, PAIRS_OF_4 },
    { "SM75_U16x2_LDSM_T", 0, 0, 32, IR_LDMATRIX, 1, true, ROWS_OF_1, TRANSPOSED_1 },
    { "SM75_U16x4_LDSM_T", 0, 0, 32, IR_LDMATRIX, 2, true, ROWS_OF_2, TRANSPOSED_2 },
    { "SM75_U16x8_LDSM_T", 0, 0, 32, IR_LDMATRIX, 4, true, ROWS_OF_4, TRANSPOSED_4 },
    { "SM90_U32x1_STSM_N", 0, 0, 32, IR_STMATRIX, 1, false, PAIRS_OF_1, ROWS_OF_1 },
    { "SM90_U32x2_STSM_N", 0, 0, 32, IR_STMATRIX, 2, false, PAIRS_OF_2, ROWS_OF_2 },
    { "SM90_U32x4_STSM_N", 0, 0, 32, IR_STMATRIX, 4, false, PAIRS_OF_4, ROWS_OF_4 },
    { "SM90_U16x2_STSM_T", 0, 0, 32, IR_STMATRIX, 1, true, TRANSPOSED_1, ROWS_OF_1 },
    { "SM90_U16x4_STSM_T", 0, 0, 32, IR_STMATRIX, 2, true, TRANSPOSED_2, ROWS_OF_2 },
    { "SM90_U16x8_STSM_T", 0, 0, 32, IR_STMATRIX, 4, true, TRANSPOSED_4, ROWS_OF_4 },
    { "SM90_BULK_COPY_G2S", 0, 0, 1, IR_BULK_LOAD, 0, false, NULL, NULL },
    { "SM90_BULK_COPY_S2G", 0, 0, 1, IR_BULK_STORE, 0, false, NULL, NULL },
    { "SM90_TMA_LOAD", 0, 0, 1, IR_TMA_LOAD, 0, false, NULL, NULL },
    { "SM90_TMA_LOAD_MULTICAST", 0, 0, 1, IR_TMA_LOAD, 0, false, NULL, NULL },
    { "SM90_TMA_STORE", 0, 0, 1, IR_TMA_STORE, 0, false, NULL, NULL },
};

/* Finding */

/* Whether the name fits a row's. The number in the place of * must be first..last; 0 if there is no *. */
static bool matches(const char *row, int first, int last, const char *name, int *number)
{
    const char *star = strchr(row, '*');
    *number = 0;
    if (!star)
        return strcmp(name, row) == 0;
    size_t before = (size_t)(star - row);
    if (strncmp(name, row, before) != 0 || !isdigit((unsigned char)name[before]) || name[before] == '0')
        return false;
    char *after;
    long parsed = strtol(name + before, &after, 10);
    *number = (int)(parsed > last ? 0 : parsed);
    return strcmp(after, star + 1) == 0 && *number >= first;
}

/* Is there an instruction of n columns? Those of integers beyond 24 come by 16. */
static bool takes_columns(const mma_row *row, int n)
{
    bool integers = row->a == CKL_I8 || row->a == CKL_U8;
    return n % 8 == 0 && (!integers || n <= 24 || n % 16 == 0);
}

static const mma_row *find_mma(const char *name, int *n)
{
    for (const mma_row *row = mma_rows; row < mma_rows + COUNT_OF(mma_rows); row++)
        if (matches(row->name, row->first, row->last, name, n) && takes_columns(row, *n))
            return row;
    return NULL;
}

bool mma_atom_find(const char *name, mma_atom *out)
{
    int n;
    const mma_row *row = find_mma(name, &n);
    if (!row)
        return false;
    const mma_form *form = row->form;
    const bool group = form->op == IR_WGMMA || form->op == IR_WGMMA_RS, warp = form->op == IR_MMA;
    *out = (mma_atom){
        .m = group  ? 64
             : warp ? 16
                    : 1,
        .n = n ? n : row->first,
        .k = form->k,
        .threads = group  ? 128
                   : warp ? 32
                          : 1,
        .a = row->a,
        .b = row->b,
        .c = row->a == CKL_I8 || row->a == CKL_U8 ? CKL_I32 : CKL_F32,
        .a_from = form->op == IR_WGMMA ? MMA_DESCRIPTOR : MMA_REGISTERS,
        .b_from = group ? MMA_DESCRIPTOR : MMA_REGISTERS,
        .op = form->op,
        .layouts = { form->layouts[MMA_A], form->layouts[MMA_B], form->layouts[MMA_C] },
    };
    snprintf(out->name, sizeof out->name, "%s", name);
    return true;
}

/* The name of a row with the number that stands in the same place of a name, or with the nearest one that exists. */
static void fill_in(const mma_row *row, const char *name, char out[ATOM_NAME_MAX])
{
    const char *star = strchr(row->name, '*');
    size_t before = star ? (size_t)(star - row->name) : 0;
    if (!star) {
        snprintf(out, ATOM_NAME_MAX, "%s", row->name);
        return;
    }
    long n = strlen(name) > before ? strtol(name + before, NULL, 10) : 0;
    n = n < row->first ? row->first : n > row->last ? row->last : n / 8 * 8;
    n -= takes_columns(row, (int)n) ? 0 : 8;
    snprintf(out, ATOM_NAME_MAX, "%.*s%ld%s", (int)before, row->name, n, star + 1);
}

mma_atom mma_atom_nearest(const char *name)
{
    mma_atom nearest = { 0 };
    int least = INT_MAX;
    for (const mma_row *row = mma_rows; row < mma_rows + COUNT_OF(mma_rows); row++) {
        char known[ATOM_NAME_MAX];
        fill_in(row, name, known);
        int distance = edit_distance(name, known);
        if (distance < least)
            mma_atom_find(known, &nearest);
        least = (int)min_i64(least, distance);
    }
    return nearest;
}

static const copy_row *find_copy(const char *name, int *bits)
{
    for (const copy_row *row = copy_rows; row < copy_rows + COUNT_OF(copy_rows); row++)
        if (matches(row->name, row->first, row->last, name, bits) && (!*bits || is_power_of_two(*bits)))
            return row;
    return NULL;
}

bool copy_atom_find(const char *name, copy_atom *out)
{
    int bits;
    const copy_row *row = find_copy(name, &bits);
    if (!row)
        return false;
    *out = (copy_atom){
        .threads = row->threads,
        .bits = bits ? bits : 32 * row->n,
        .op = row->op,
        .n = row->op == IR_CP_ASYNC ? bits / 8 : row->n,
        .transpose = row->transpose,
        .source = row->source,
        .destination = row->destination,
    };
    snprintf(out->name, sizeof out->name, "%s", name);
    return true;
}

const char *atom_name(int i)
{
    if (i < COUNT_OF(mma_rows))
        return mma_rows[i].name;
    i -= COUNT_OF(mma_rows);
    return i < COUNT_OF(copy_rows) ? copy_rows[i].name : NULL;
}

/* Layouts */

/* A layout text with N and N/8 replaced by numbers. */
static layout layout_for(const char *template, int n)
{
    text filled = { 0 };
    for (const char *c = template; *c; c++) {
        bool eighth = strncmp(c, "N/8", 3) == 0;
        if (*c == 'N')
            text_printf(&filled, "%d", eighth ? n / 8 : n);
        else
            text_append(&filled, c, 1);
        c += eighth ? 2 : 0;
    }
    layout a = { leaf(1), leaf(0), { 0 } };
    const char *end;
    layout_parse(text_data(&filled), &end, &a);
    text_free(&filled);
    return a;
}

layout mma_atom_layout(const mma_atom *atom, mma_operand operand)
{
    return layout_for(atom->layouts[operand], atom->n);
}

static layout copy_layout(const copy_atom *atom, const char *template)
{
    if (template)
        return layout_for(template, atom->bits);
    ir_fail("%s: its layout is that of the box or of the tile", atom->name);
    return make_layout(leaf(1), leaf(0));
}

layout copy_atom_layout_source(const copy_atom *atom)
{
    return copy_layout(atom, atom->source);
}

layout copy_atom_layout_destination(const copy_atom *atom)
{
    return copy_layout(atom, atom->destination);
}
