/*
 * unit_null.c - every public function refuses NULL with a sentence, in a test of its name: one of the public headers
 * without a test fails.
 */
#include <ctype.h>
#include <glob.h>

#include "files.h"
#include "unit.h"
#include "cutekernellib/cutekernellib.h"
#include "base/math.h"
#include "base/status.h"
#include "emulated_device.h"
#include "operators/operators.h"

static ckl_plan *plan; // of add

#define REFUSED(call, words)                         \
    do {                                             \
        status_clear();                              \
        assert_fails_with(call, CKL_INVALID, words); \
    } while (0)

/* Of functions without a status. */
#define SAYS(call, words)                        \
    do {                                         \
        status_clear();                          \
        (void)(call);                            \
        assert_string_equal(ckl_error(), words); \
    } while (0)

TEST(ckl_device_open)
{
    REFUSED(ckl_device_open("emulator", NULL), "device: the place for the result is NULL");
}

TEST(ckl_device_close)
{
    SAYS((ckl_device_close(NULL), 0), "");
}

TEST(ckl_device_properties)
{
    SAYS(ckl_device_properties(NULL), "device_properties: device is NULL");
    assert_null(ckl_device_properties(NULL));
}

TEST(ckl_malloc)
{
    void *at = &at;
    REFUSED(ckl_malloc(NULL, 8, &at), "malloc: device is NULL");
    REFUSED(ckl_malloc(NULL, 0, &at), "malloc: device is NULL");
    REFUSED(ckl_malloc(device, 8, NULL), "malloc: memory is NULL");
    REFUSED(ckl_malloc(device, 0, NULL), "malloc: memory is NULL");
    assert_ptr_equal(at, &at);
}

TEST(ckl_free)
{
    int there;
    SAYS((ckl_free(NULL, &there), 0), "free: device is NULL");
    SAYS((ckl_free(device, NULL), 0), "");
}

TEST(ckl_copy_in)
{
    int host = 0;
    REFUSED(ckl_copy_in(NULL, &host, &host, 4, NULL), "copy_in: device is NULL");
    REFUSED(ckl_copy_in(NULL, NULL, NULL, 0, NULL), "copy_in: device is NULL");
    REFUSED(ckl_copy_in(device, NULL, &host, 4, NULL), "copy_in: to_device is NULL");
    REFUSED(ckl_copy_in(device, &host, NULL, 4, NULL), "copy_in: from_host is NULL");
    assert_ok(ckl_copy_in(device, NULL, NULL, 0, NULL));
}

TEST(ckl_copy_out)
{
    int host = 0;
    REFUSED(ckl_copy_out(NULL, &host, &host, 4, NULL), "copy_out: device is NULL");
    REFUSED(ckl_copy_out(NULL, NULL, NULL, 0, NULL), "copy_out: device is NULL");
    REFUSED(ckl_copy_out(device, NULL, &host, 4, NULL), "copy_out: to_host is NULL");
    REFUSED(ckl_copy_out(device, &host, NULL, 4, NULL), "copy_out: from_device is NULL");
    assert_ok(ckl_copy_out(device, NULL, NULL, 0, NULL));
}

TEST(ckl_stream_create)
{
    ckl_stream stream;
    REFUSED(ckl_stream_create(NULL, &stream), "stream_create: device is NULL");
    REFUSED(ckl_stream_create(device, NULL), "stream_create: stream is NULL");
}

TEST(ckl_stream_destroy)
{
    int there;
    SAYS((ckl_stream_destroy(NULL, &there), 0), "stream_destroy: device is NULL");
    SAYS((ckl_stream_destroy(device, NULL), 0), "");
}

TEST(ckl_stream_synchronize)
{
    REFUSED(ckl_stream_synchronize(NULL, NULL), "stream_synchronize: device is NULL");
}

TEST(ckl_plan_free)
{
    SAYS((ckl_plan_free(NULL), 0), "");
}

TEST(ckl_plan_text)
{
    SAYS(ckl_plan_text(NULL), "plan_text: plan is NULL");
    assert_string_equal(ckl_plan_text(NULL), "");
}

TEST(ckl_plan_workspace_bytes)
{
    SAYS(ckl_plan_workspace_bytes(NULL), "plan_workspace_bytes: plan is NULL");
    assert_int_equal(ckl_plan_workspace_bytes(NULL), 0);
}

TEST(ckl_warm)
{
    const char *const lines[] = { "add n=4", NULL };
    REFUSED(ckl_warm(NULL, lines, 1, 1, NULL, NULL), "warm: device is NULL");
    REFUSED(ckl_warm(device, NULL, 1, 1, NULL, NULL), "warm: lines is NULL");
    REFUSED(ckl_warm(device, lines, 2, 1, NULL, NULL), "warm: lines[1] is NULL");
    REFUSED(ckl_warm(device, lines, -1, 1, NULL, NULL), "warm: count=-1 is negative");
    REFUSED(ckl_warm(device, lines, 1, -1, NULL, NULL), "warm: threads=-1 is not in 0..256");
    assert_ok(ckl_warm(device, NULL, 0, 0, NULL, NULL));
}

TEST(ckl_attention_score_add)
{
    REFUSED(ckl_attention_score_add(NULL), "attention_score_add: a score wants a name and a function");
}

TEST(ckl_gemm_epilogue_add)
{
    REFUSED(ckl_gemm_epilogue_add(NULL), "gemm_epilogue_add: an epilogue wants a name and a function");
}

TEST(ckl_reduce_fold_add)
{
    REFUSED(ckl_reduce_fold_add(NULL), "reduce_fold_add: a fold wants a name and a function that combines");
}

/* Each pointer of an operator's three functions. What lies behind those that are there is not looked at. */
static max_align_t zeros[64]; // a desc, or args
static const void *const any = zeros;

#define X(op)                                                                \
    TEST(ckl_##op##_plan)                                                    \
    {                                                                        \
        ckl_plan *made = plan;                                               \
        REFUSED(ckl_##op##_plan(NULL, any, &made), #op ": device is NULL");  \
        REFUSED(ckl_##op##_plan(device, NULL, &made), #op ": desc is NULL"); \
        REFUSED(ckl_##op##_plan(device, any, NULL), #op ": plan is NULL");   \
        assert_ptr_equal(made, plan);                                        \
    }                                                                        \
    TEST(ckl_##op##_run)                                                     \
    {                                                                        \
        REFUSED(ckl_##op##_run(NULL, any, NULL), #op ": plan is NULL");      \
        REFUSED(ckl_##op##_run(plan, NULL, NULL), #op ": args is NULL");     \
    }                                                                        \
    TEST(ckl_##op)                                                           \
    {                                                                        \
        REFUSED(ckl_##op(NULL, any, any, NULL), #op ": device is NULL");     \
        REFUSED(ckl_##op(device, NULL, any, NULL), #op ": desc is NULL");    \
        REFUSED(ckl_##op(device, any, NULL, NULL), #op ": args is NULL");    \
    }
OPERATORS(X)
#undef X

/* Functions that take no pointer, or one that is the caller's own. */
static const char *const take_none[] = { "ckl_status_name",    "ckl_error",           "ckl_version",
                                         "ckl_dtype_name",     "ckl_dtype_bytes",     "ckl_attention_slope_one",
                                         "ckl_attention_read", "ckl_attention_heads", "ckl_val_f32",
                                         "ckl_val_i32",        "ckl_val_add",         "ckl_val_sub",
                                         "ckl_val_mul",        "ckl_val_div",         "ckl_val_rem",
                                         "ckl_val_min",        "ckl_val_max",         "ckl_val_fma",
                                         "ckl_val_neg",        "ckl_val_abs",         "ckl_val_exp",
                                         "ckl_val_exp2",       "ckl_val_log",         "ckl_val_tanh",
                                         "ckl_val_sqrt",       "ckl_val_eq",          "ckl_val_ne",
                                         "ckl_val_lt",         "ckl_val_le",          "ckl_val_and",
                                         "ckl_val_or",         "ckl_val_not",         "ckl_val_select",
                                         "ckl_val_to_f32",     "ckl_val_to_i32" };

/* The name of the function whose declaration begins at `at`: the last word before the parenthesis. */
static void expect_test(const char *at)
{
    const char *end = strchr(at, '('), *begin = end;
    char test[TEST_NAME_MAX], *name = test + strlen("test_");
    while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')
        begin--;
    snprintf(test, sizeof test, "test_%.*s", (int)(end - begin), begin);
    for (size_t i = 0; i < enlisted_count; i++)
        if (strcmp(enlisted[i].name, test) == 0)
            return;
    for (int i = 0; i < COUNT_OF(take_none); i++)
        if (strcmp(take_none[i], name) == 0)
            return;
    fail_msg("%s is public, but no test here says what it does with NULL", name);
}

static int count_in(const char *path)
{
    static char header[1 << 16];
    int count = 0;
    for (const char *at = read_words(path, header); (at = strstr(at, "CKL_API ")); at++)
        if (strncmp(at, "CKL_API __attribute__", 21) != 0 && strncmp(at, "CKL_API __declspec", 18) != 0) {
            expect_test(at);
            count++;
        }
    return count;
}

TEST(every_function_has_a_test)
{
    static const char *const folders[] = { TESTDATA "/../../include/cutekernellib/*.h",
                                           TESTDATA "/../../include/cutekernellib/operators/*.h" };
    int count = 0;
    for (int f = 0; f < COUNT_OF(folders); f++) {
        glob_t headers;
        assert_int_equal(glob(folders[f], 0, NULL, &headers), 0);
        for (size_t i = 0; i < headers.gl_pathc; i++)
            count += count_in(headers.gl_pathv[i]);
        globfree(&headers);
    }
    assert_int_equal(count, (int)enlisted_count - 1 + COUNT_OF(take_none));
}

static int make_plan(void **state)
{
    const ckl_add_desc desc = { .dtype = CKL_F32, .n = 4 };
    return open_device(state) || ckl_add_plan(device, &desc, &plan) != CKL_OK;
}

static int free_plan(void **state)
{
    ckl_plan_free(plan);
    return close_device(state);
}

RUN_TESTS(make_plan, free_plan)
