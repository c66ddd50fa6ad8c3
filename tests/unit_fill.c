/* unit_fill.c - what inputs are filled with: streams of random numbers, hard values in every lane, ranges, orders. */
#include <float.h>
#include <math.h>

#include "unit.h"
#include "base/dtype.h"
#include "lab/fill.h"

/* Different operands, seeds and elements get different numbers; the same ones get the same. */
TEST(fill_streams)
{
    float memory[3][64];
    operand_image o = { .info = operand_vector("x", OPERAND_IN, CKL_F32, 64), .rows = 1, .columns = 64 };
    const struct {
        int number;
        uint64_t seed;
    } sources[] = { { 0, 1 }, { 1, 1 }, { 0, 2 } };
    for (int i = 0; i < 3; i++) {
        o.image = (unsigned char *)memory[i];
        fill_operand(&o, sources[i].number, FILL_UNIFORM, sources[i].seed, 1);
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 64; j++)
            assert_true(memory[i][j] != memory[(i + 1) % 3][j] && fabsf(memory[i][j]) <= 1);
    float again[64];
    o.image = (unsigned char *)again;
    fill_operand(&o, 0, FILL_UNIFORM, 1, 1);
    assert_memory_equal(again, memory[0], sizeof again);
}

/* A large operand has no period and hardly two rows alike, and is the same every time. */
TEST(fill_windows)
{
    enum { ROWS = 1100, COLS = 4099, LD = 4100 };
    operand_image o = { .info = operand_matrix("x", OPERAND_IN, CKL_F32, ROWS, COLS, LD),
                        .rows = ROWS,
                        .columns = COLS };
    float *memory[2];
    double sum = 0;
    int alike = 0;
    for (int i = 0; i < 2; i++) {
        memory[i] = calloc((size_t)ROWS * LD, sizeof *memory[i]);
        assert_non_null(memory[i]);
        o.image = (unsigned char *)memory[i];
        fill_operand(&o, 3, FILL_UNIFORM, 5, 1);
    }
    assert_memory_equal(memory[0], memory[1], (size_t)ROWS * LD * sizeof *memory[0]);
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = memory[0] + r * LD;
        assert_true(row[COLS] == 0);
        for (int64_t other = 0; other < r; other++)
            alike += memcmp(row, memory[0] + other * LD, 64 * sizeof *row) == 0;
        for (int64_t j = 0; j < COLS; j++)
            sum += (double)row[j];
        assert_true(row[4096] != 0 && fabsf(row[4098]) <= 1);
    }
    assert_true(fabs(sum) / (ROWS * COLS) < 0.01 && alike < 5);
    free(memory[0]);
    free(memory[1]);
}

/* Sums run along rows, and of a single row nobody knows. */
TEST(sums_run_along_rows)
{
    const int64_t shape[] = { 2, 3, 4 }, stride[] = { 12, 4, 1 };
    assert_int_equal(operand_vector("x", OPERAND_IN, CKL_F32, 9).along, 0);
    operand matrix = operand_matrix("x", OPERAND_IN, CKL_F32, 2, 9, 10);
    assert_int_equal(matrix.along, 2);
    assert_true(matrix.shape[0] == 2 && matrix.shape[1] == 9 && matrix.stride[0] == 10 && matrix.stride[1] == 1);
    operand x = operand_tensor("x", OPERAND_IN, CKL_F32, 3, shape, stride);
    assert_int_equal(x.along, 4);
    assert_memory_equal(x.shape, shape, sizeof shape);
    assert_memory_equal(x.stride, stride, sizeof stride);
    assert_int_equal(operand_along(x, 3).along, 3);
    assert_int_equal(operand_tensor("x", OPERAND_IN, CKL_F32, 1, shape, stride).along, 0);
}

/* Hard inputs */

enum { LINES = 1024, LENGTH = 77, LANES = 32, CLASSES = 7 };

/* The class of a number that a line has once; -1: it has none. */
static int class_of(float x)
{
    const float singles[CLASSES] = { NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX };
    for (int i = 0; i < 5; i++)
        if (isnan(x) ? isnan(singles[i]) : x == singles[i])
            return i;
    return fabsf(x) > 900 ? (x > 0 ? 5 : 6) : -1;
}

/* Element `at` of a line of a hard operand, which lies in its memory one after the other, or across. */
static float element_of(const float *memory, bool across, int line, int at)
{
    return across ? memory[at * LINES + line] : memory[line * LENGTH + at];
}

/*
 * Each class is alone on some lines, at every place modulo a warp, in every quarter, at the last place and at the first
 * few; no line has two numbers that are not finite, and most lines have none.
 */
static void check_lines(const float *memory, bool across)
{
    bool lane[CLASSES][LANES] = { 0 }, quarter[CLASSES][4] = { 0 }, last[CLASSES] = { 0 };
    int spoiled = 0, ties = 0, tiny = 0, minus_zeros = 0;
    for (int line = 0; line < LINES; line++) {
        int singles = 0, single = -1, place = 0, infinite = 0;
        for (int at = 0; at < LENGTH; at++) {
            float x = element_of(memory, across, line, at);
            int class = class_of(x);
            infinite += !isfinite(x);
            ties += at > 0 && x == 1 && element_of(memory, across, line, at - 1) == 1;
            tiny += x != 0 && fabsf(x) < FLT_MIN;
            minus_zeros += x == 0 && signbit(x);
            if (class >= 0) {
                singles++;
                single = class;
                place = at;
            }
        }
        assert_true(infinite <= 1);
        spoiled += infinite;
        if (singles == 1) {
            lane[single][place % LANES] = true;
            quarter[single][place * 4 / LENGTH] = true;
            last[single] |= place == LENGTH - 1;
        }
    }
    assert_in_range(spoiled, LINES / 8, LINES / 3);
    assert_true(ties > LINES && tiny > LINES && minus_zeros > LINES);
    for (int c = 0; c < CLASSES; c++) {
        assert_true(last[c]);
        for (int i = 0; i < LANES; i++)
            assert_true(lane[c][i]);
        for (int i = 0; i < 4; i++)
            assert_true(quarter[c][i]);
    }
}

static void fill_hard(operand info, float *memory)
{
    operand_image o = {
        .info = info, .image = (unsigned char *)memory, .columns = info.shape[info.rank - 1], .rows = 1
    };
    for (int d = 0; d + 1 < info.rank; d++)
        o.rows *= info.shape[d];
    fill_operand(&o, 0, FILL_HARD, 1, 1);
}

TEST(hard_lines)
{
    static float memory[LINES * LENGTH];
    fill_hard(operand_matrix("x", OPERAND_IN, CKL_F32, LINES, LENGTH, LENGTH), memory);
    check_lines(memory, false);
    const int64_t shape[] = { 7, LENGTH / 7, LINES }, stride[] = { LENGTH / 7 * LINES, LINES, 1 };
    fill_hard(operand_along(operand_tensor("x", OPERAND_IN, CKL_F32, 3, shape, stride), 1u << 0 | 1u << 1), memory);
    check_lines(memory, true); // lines across memory, along two modes
}

/* Elements that are alone: each class at every place modulo vectors of all threads of a CTA. */
TEST(hard_elements)
{
    enum { COUNT = 1 << 15, PLACES = 512 };
    static float memory[COUNT];
    static bool seen[CLASSES][PLACES];
    fill_hard(operand_vector("x", OPERAND_IN, CKL_F32, COUNT), memory);
    for (int i = 0; i < COUNT; i++)
        if (class_of(memory[i]) >= 0)
            seen[class_of(memory[i])][i % PLACES] = true;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < PLACES; i++)
            assert_true(seen[c][i]);
}

/* Problems of a single line are of different kinds. */
TEST(hard_single_lines)
{
    static float memory[LENGTH];
    bool nan[LENGTH] = { 0 };
    int count = 0;
    for (int length = 1; length < LENGTH; length++) {
        fill_hard(operand_matrix("x", OPERAND_IN, CKL_F32, 1, length, length), memory);
        for (int i = 0; i < length; i++)
            nan[length] |= isnan(memory[i]) != 0;
        count += nan[length];
    }
    assert_in_range(count, 1, LENGTH / 3);
}

/* A range is kept; integers have peaks; the largest number may be stated. */
TEST(hard_ranges)
{
    static float memory[LINES * LENGTH];
    static int32_t integers[LINES];
    operand o = operand_matrix("x", OPERAND_IN, CKL_F32, LINES, LENGTH, LENGTH);
    fill_hard(operand_range(o, 0, 0), memory);
    for (int i = 0; i < LINES * LENGTH; i++)
        assert_true(memory[i] == 0);
    o.hard_max = 4;
    fill_hard(o, memory);
    for (int i = 0; i < LINES * LENGTH; i++)
        assert_true(!isfinite(memory[i]) || fabsf(memory[i]) <= 5);
    fill_hard(operand_vector("i", OPERAND_IN, CKL_I32, LINES), (float *)integers);
    int above = 0, below = 0;
    for (int i = 0; i < LINES; i++) {
        assert_in_range(integers[i] + 1000, 0, 2000);
        above += integers[i] > 900;
        below += integers[i] < -900;
    }
    assert_true(above > 0 && below > 0);
}

/* Indices that differ are a permutation of their range; positions that rise do so by no more than they may. */
TEST(orders)
{
    enum { COUNT = 48, STEP = 10 };
    static int32_t numbers[COUNT];
    bool seen[COUNT] = { false };
    operand o = operand_range(operand_vector("i", OPERAND_IN, CKL_I32, COUNT), 0, COUNT - 1);
    o.distinct = true;
    fill_hard(o, (float *)numbers);
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(numbers[i], 0, COUNT - 1);
        assert_false(seen[numbers[i]]);
        seen[numbers[i]] = true;
    }
    o = operand_range(operand_vector("i", OPERAND_IN, CKL_I32, COUNT), 0, STEP);
    o.rising = (COUNT - 1) * STEP / 2;
    fill_hard(o, (float *)numbers);
    int none = 0, whole = 0;
    for (int i = 1; i < COUNT; i++) {
        assert_in_range(numbers[i] - numbers[i - 1], 0, STEP);
        none += numbers[i] == numbers[i - 1];
        whole += numbers[i] == numbers[i - 1] + STEP;
    }
    assert_true(numbers[0] == 0 && numbers[COUNT - 1] == o.rising && none > 0 && whole > 0);
}

RUN_TESTS(NULL, NULL)
