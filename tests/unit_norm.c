/*
 * unit_norm.c - layer norm and RMS norm of the row lengths of models and a longer one, forward and backward, against
 * double precision: with and without weights, and where the mean is a thousand times the deviation.
 */
#include "accuracy.h"
#include "cutekernellib/operators/groupnorm.h"
#include "cutekernellib/operators/norm.h"

enum { ROWS = 6 };

static const int64_t row_lengths[] = { 768, 1024, 4096, 8192, 20000 }; // the last one takes the row pipeline
static const double EPS = 1e-5;

/* One problem: the tensors of both directions, those that it does not have with a count of 0. */
typedef struct norm_case {
    ckl_norm_desc desc;
    bool centred;
    tensor_of_test x, gamma, beta, y, mean, rstd, dy, dx, dgamma, dbeta;
} norm_case;

static double tolerance_of(const norm_case *c)
{
    return c->desc.dtype == CKL_F32 ? 1e-5 : 1e-2;
}

static void make_case(norm_case *c, uint64_t seed, double offset)
{
    const ckl_norm_desc *d = &c->desc;
    int64_t elements = d->rows * d->cols;
    c->x = make_random(d->dtype, elements, seed, offset, 1);
    c->dy = make_random(d->dtype, elements, seed + 1, 0, 1);
    c->y = make_tensor(d->dtype, elements);
    c->dx = make_tensor(d->dtype, elements);
    c->rstd = make_tensor(CKL_F32, d->rows);
    if (c->centred)
        c->mean = make_tensor(CKL_F32, d->rows);
    if (!d->affine)
        return;
    c->gamma = make_random(d->dtype, d->cols, seed + 2, 1, 0.5);
    c->dgamma = make_tensor(d->dtype, d->cols);
    if (c->centred) {
        c->beta = make_random(d->dtype, d->cols, seed + 3, 0, 0.5);
        c->dbeta = make_tensor(d->dtype, d->cols);
    }
}

static void run(norm_case *c, ckl_direction direction)
{
    const ckl_norm_args forward = { .x = c->x.memory,
                                    .gamma = c->gamma.memory,
                                    .beta = c->beta.memory,
                                    .y = c->y.memory,
                                    .mean = c->mean.memory,
                                    .rstd = c->rstd.memory };
    const ckl_norm_args backward = { .x = c->x.memory,
                                     .gamma = c->gamma.memory,
                                     .dy = c->dy.memory,
                                     .dx = c->dx.memory,
                                     .dgamma = c->dgamma.memory,
                                     .dbeta = c->dbeta.memory,
                                     .mean = c->mean.memory,
                                     .rstd = c->rstd.memory };
    const ckl_norm_args args = direction == CKL_DIRECTION_FORWARD ? forward : backward;
    c->desc.direction = direction;
    c->desc.eps = direction == CKL_DIRECTION_FORWARD ? (float)EPS : 0;
    assert_ok((c->centred ? ckl_layernorm : ckl_rmsnorm)(device, &c->desc, &args, stream));
}

static double weight(const tensor_of_test *gamma, int64_t column, double otherwise)
{
    return gamma->count ? gamma->value[column] : otherwise;
}

/* What is normalised, in units of the deviation. */
static double normalised(const norm_case *c, int64_t row, int64_t column, double mean, double rstd)
{
    return (c->x.value[row * c->desc.cols + column] - mean) * rstd;
}

static void statistics(const norm_case *c, int64_t row, double *mean, double *rstd)
{
    const int64_t cols = c->desc.cols;
    double squares = 0;
    *mean = 0;
    for (int64_t i = 0; i < cols && c->centred; i++)
        *mean += c->x.value[row * cols + i] / (double)cols;
    for (int64_t i = 0; i < cols; i++)
        squares += pow(c->x.value[row * cols + i] - *mean, 2);
    *rstd = 1 / sqrt(squares / (double)cols + EPS);
}

static void check_forward(norm_case *c)
{
    run(c, CKL_DIRECTION_FORWARD);
    read_tensor(&c->y);
    read_tensor(&c->rstd);
    if (c->centred)
        read_tensor(&c->mean);
    for (int64_t row = 0; row < c->desc.rows; row++) {
        double mean, rstd;
        statistics(c, row, &mean, &rstd);
        assert_near("rstd", CKL_F32, c->rstd.value[row], rstd, 1e-5 * rstd);
        if (c->centred)
            assert_near("mean", CKL_F32, c->mean.value[row], mean, 1e-5);
        for (int64_t i = 0; i < c->desc.cols; i++) {
            double y = normalised(c, row, i, mean, rstd) * weight(&c->gamma, i, 1) + weight(&c->beta, i, 0);
            assert_near("y", c->desc.dtype, c->y.value[row * c->desc.cols + i], y, tolerance_of(c));
        }
    }
}

/* From the statistics that the forward pass has saved. */
static void check_dx_row(const norm_case *c, int64_t row)
{
    const int64_t cols = c->desc.cols;
    const double *dy = c->dy.value + row * cols;
    double mean = c->centred ? c->mean.value[row] : 0, rstd = c->rstd.value[row], along = 0, level = 0;
    for (int64_t i = 0; i < cols; i++) {
        double g = dy[i] * weight(&c->gamma, i, 1);
        along += g * normalised(c, row, i, mean, rstd) / (double)cols;
        level += c->centred ? g / (double)cols : 0;
    }
    for (int64_t i = 0; i < cols; i++) {
        double g = dy[i] * weight(&c->gamma, i, 1);
        double dx = (g - normalised(c, row, i, mean, rstd) * along - level) * rstd;
        assert_near("dx", c->desc.dtype, c->dx.value[row * cols + i], dx, tolerance_of(c));
    }
}

static void check_weights(const norm_case *c)
{
    for (int64_t i = 0; i < c->desc.cols; i++) {
        double dgamma = 0, dbeta = 0;
        for (int64_t row = 0; row < c->desc.rows; row++) {
            double dy = c->dy.value[row * c->desc.cols + i];
            dgamma += dy * normalised(c, row, i, c->centred ? c->mean.value[row] : 0, c->rstd.value[row]);
            dbeta += dy;
        }
        assert_near("dgamma", c->desc.dtype, c->dgamma.value[i], dgamma, tolerance_of(c));
        if (c->centred)
            assert_near("dbeta", c->desc.dtype, c->dbeta.value[i], dbeta, tolerance_of(c));
    }
}

static void check_backward(norm_case *c)
{
    run(c, CKL_DIRECTION_BACKWARD);
    read_tensor(&c->dx);
    for (int64_t row = 0; row < c->desc.rows; row++)
        check_dx_row(c, row);
    if (!c->desc.affine)
        return;
    read_tensor(&c->dgamma);
    if (c->centred)
        read_tensor(&c->dbeta);
    check_weights(c);
}

static void for_all(bool centred, double offset, void (*check)(norm_case *c))
{
    for (int l = 0; l < COUNT_OF(row_lengths); l++)
        for (int t = 0; t < COUNT_OF(float_types); t++)
            for (int affine = 0; affine < 2; affine++)
                for (int seed = 1, seeds = seeds_for(SMALL); seed <= seeds; seed++) {
                    norm_case c = {
                        .centred = centred,
                        .desc = { .dtype = float_types[t], .rows = ROWS, .cols = row_lengths[l], .affine = affine }
                    };
                    make_case(&c, 100 * (uint64_t)seed, offset);
                    check(&c);
                    free_tensors();
                }
}

static void check_both(norm_case *c)
{
    check_forward(c);
    check_backward(c);
}

TEST(layernorm)
{
    for_all(true, 0, check_both);
}

TEST(rmsnorm)
{
    for_all(false, 0, check_both);
}

TEST(large_mean)
{
    for_all(true, 1e3, check_both);
    for_all(false, 1e3, check_both);
}

/* Rows with one element that is no number, at either end or inside: `shift` says which is where. */
static tensor_of_test make_special(int64_t rows, int64_t cols, int shift)
{
    const double values[] = { INFINITY, -INFINITY, NAN };
    const int64_t places[] = { 0, cols / 3, cols - 1 };
    tensor_of_test x = make_random(CKL_F32, rows * cols, 7, 0, 1);
    for (int64_t row = 0; row < rows; row++)
        x.value[row * cols + places[(row + shift) % 3]] = values[row % 3];
    write_tensor(&x);
    return x;
}

static ckl_status run_layernorm(int64_t rows, int64_t cols, const ckl_norm_args *a)
{
    const ckl_norm_desc d = { .dtype = CKL_F32, .rows = rows, .cols = cols };
    return ckl_layernorm(device, &d, a, stream);
}

static ckl_status run_rmsnorm(int64_t rows, int64_t cols, const ckl_norm_args *a)
{
    const ckl_norm_desc d = { .dtype = CKL_F32, .rows = rows, .cols = cols };
    const ckl_norm_args args = { .x = a->x, .y = a->y, .rstd = a->rstd };
    return ckl_rmsnorm(device, &d, &args, stream);
}

static ckl_status run_groupnorm(int64_t rows, int64_t cols, const ckl_norm_args *a)
{
    const ckl_groupnorm_desc d = { .dtype = CKL_F32, .n = rows, .c = 1, .h = 1, .w = cols, .groups = 1 };
    const ckl_groupnorm_args args = { .x = a->x, .y = a->y, .mean = a->mean, .rstd = a->rstd };
    return ckl_groupnorm(device, &d, &args, stream);
}

/* Both statistics of such a row are NaN in every norm and kernel, but rstd of infinities is 0 where no mean is. */
static void check_special(int64_t cols, int shift,
                          ckl_status (*run_norm)(int64_t rows, int64_t cols, const ckl_norm_args *a))
{
    enum { SPECIAL = 3 };
    const bool centred = run_norm != run_rmsnorm;
    tensor_of_test x = make_special(SPECIAL, cols, shift), y = make_tensor(CKL_F32, SPECIAL * cols);
    tensor_of_test mean = make_random(CKL_F32, SPECIAL, 1, 1, 0), rstd = make_random(CKL_F32, SPECIAL, 1, 1, 0);
    const ckl_norm_args args = { .x = x.memory, .y = y.memory, .mean = mean.memory, .rstd = rstd.memory };
    assert_ok(run_norm(SPECIAL, cols, &args));
    read_tensor(&mean);
    read_tensor(&rstd);
    for (int row = 0; row < SPECIAL; row++) {
        assert_near("mean", CKL_F32, mean.value[row], centred ? NAN : 1, 0);
        assert_near("rstd", CKL_F32, rstd.value[row], centred || row == 2 ? NAN : 0, 0);
    }
    free_tensors();
}

TEST(statistics_of_specials)
{
    static const int64_t lengths[] = { 3, 4096, 20000, 50001, 300000 }; // lanes, a CTA, rows that flow, tiles; split
    for (int i = 0; i < COUNT_OF(lengths); i++) {
        check_special(lengths[i], i, run_layernorm);
        check_special(lengths[i], i, run_rmsnorm);
        check_special(lengths[i], i, run_groupnorm);
    }
}

/* One element far from all others, early in its row: the mean stays exact to a few units of the mean distance to it. */
TEST(outliers)
{
    enum { OUTLIERS = 8, COLS = 250000, PEAK = 1 << 30 };
    static const int places[OUTLIERS] = { 0, 1, 10, 11, 21, 22, 31, 32 };
    tensor_of_test x = make_random(CKL_F32, OUTLIERS * COLS, 3, 0, 1), y = make_tensor(CKL_F32, OUTLIERS * COLS);
    tensor_of_test mean = make_tensor(CKL_F32, OUTLIERS), rstd = make_tensor(CKL_F32, OUTLIERS);
    for (int row = 0; row < OUTLIERS; row++)
        x.value[row * COLS + places[row]] = PEAK;
    write_tensor(&x);
    const ckl_norm_args args = { .x = x.memory, .y = y.memory, .mean = mean.memory, .rstd = rstd.memory };
    assert_ok(run_layernorm(OUTLIERS, COLS, &args));
    read_tensor(&mean);
    read_tensor(&rstd);
    for (int row = 0; row < OUTLIERS; row++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < COLS; i++)
            sum += x.value[row * COLS + i];
        for (int64_t i = 0; i < COLS; i++)
            squares += pow(x.value[row * COLS + i] - sum / COLS, 2);
        assert_near("mean", CKL_F32, mean.value[row], sum / COLS, 0x1p-19 * 2 * PEAK / COLS);
        assert_near("rstd", CKL_F32, rstd.value[row], sqrt(COLS / squares), 0x1p-19 * sqrt(COLS / squares));
    }
    free_tensors();
}

/*
 * Rows of x are cut out of a ring of bulk copies, which begin at boundaries: a residual that alone lies otherwise goes
 * another way.
 */
TEST(residual_out_of_phase)
{
    enum { LONG = 20000, PITCH = LONG + 3, ALL = ROWS * PITCH };
    const ckl_norm_desc d = { .dtype = CKL_F16, .rows = ROWS, .cols = LONG, .residual = true, .ldx = PITCH };
    tensor_of_test x = make_random(CKL_F16, ALL, 1, 0, 1), residual = make_random(CKL_F16, ALL + 1, 2, 0, 1);
    tensor_of_test y = make_tensor(CKL_F16, ROWS * LONG), sum = make_tensor(CKL_F16, ROWS * LONG);
    tensor_of_test rstd = make_tensor(CKL_F32, ROWS);
    const ckl_norm_args args = {
        .x = x.memory, .residual = (char *)residual.memory + 2, .sum = sum.memory, .y = y.memory, .rstd = rstd.memory
    };
    assert_ok(ckl_rmsnorm(device, &d, &args, stream));
    read_tensor(&y);
    read_tensor(&rstd);
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t i = row * PITCH; i < row * PITCH + LONG; i++)
            assert_near("y", CKL_F16, y.value[i - 3 * row], (x.value[i] + residual.value[i + 1]) * rstd.value[row],
                        1e-2);
    free_tensors();
}

/* A workspace of the caller's is looked at before anything else. */
TEST(workspace_alignment)
{
    const ckl_norm_args odd = { .workspace = (void *)(uintptr_t)4 };
    for (int direction = CKL_DIRECTION_FORWARD; direction <= CKL_DIRECTION_BACKWARD; direction++) {
        const ckl_norm_desc d = { .direction = (ckl_direction)direction, .dtype = CKL_F32, .rows = 1, .cols = 8 };
        assert_fails(ckl_layernorm(device, &d, &odd, stream), CKL_INVALID, "layernorm: workspace=");
    }
}

/* Pointers that a problem does not have are refused, and so is eps of a backward problem. */
TEST(absent)
{
    static char memory[64];
    static const struct {
        ckl_norm_desc desc;
        ckl_norm_args args;
        const char *sentence;
    } refused[] = {
        { { .direction = CKL_DIRECTION_FORWARD }, { .dy = memory }, "is not part of a forward problem" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .dgamma = memory }, "is not part of a forward problem" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .sum = memory }, "is not part of a problem without residual" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .gamma = memory }, "is not part of a problem without affine" },
        { { .direction = CKL_DIRECTION_FORWARD, .affine = true }, { .beta = memory }, "is not part of an RMS norm" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .mean = (float *)memory }, "is not part of an RMS norm" },
        { { .direction = CKL_DIRECTION_BACKWARD }, { .y = memory }, "is not part of a backward problem" },
        { { .direction = CKL_DIRECTION_BACKWARD }, { .dsum = memory }, "is not part of a problem without residual" },
        { { .direction = CKL_DIRECTION_BACKWARD, .eps = 0.5F }, { 0 }, "eps=0.5 is not part of a backward problem" },
    };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        ckl_norm_desc d = refused[i].desc; // of no rows: nothing else is asked for
        d.dtype = CKL_F32;
        d.cols = 8;
        assert_fails(ckl_rmsnorm(device, &d, &refused[i].args, stream), CKL_INVALID, refused[i].sentence);
    }
}

TEST(absent_groupnorm)
{
    static char memory[64];
    static const struct {
        ckl_groupnorm_desc desc;
        ckl_groupnorm_args args;
        const char *sentence;
    } refused[] = {
        { { .direction = CKL_DIRECTION_FORWARD }, { .dy = memory }, "is not part of a forward problem" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .dx = memory }, "is not part of a forward problem" },
        { { .direction = CKL_DIRECTION_FORWARD }, { .beta = memory }, "is not part of a problem without affine" },
        { { .direction = CKL_DIRECTION_BACKWARD }, { .y = memory }, "is not part of a backward problem" },
        { { .direction = CKL_DIRECTION_BACKWARD }, { .dgamma = memory }, "is not part of a problem without affine" },
    };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        ckl_groupnorm_desc d = refused[i].desc; // of no images: nothing else is asked for
        d.dtype = CKL_F32;
        d.c = d.h = d.w = d.groups = 4;
        assert_fails(ckl_groupnorm(device, &d, &refused[i].args, stream), CKL_INVALID, refused[i].sentence);
    }
}

RUN_TESTS(open_device, close_device)
