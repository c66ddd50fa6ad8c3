/*
 * unit_sizes.c - sizes at the edge of every operator: problems without elements do nothing and at once; problem lines
 * of random, mostly absurd values end in a sentence or a result, never in a crash, a hang or an internal fault.
 */
#include <signal.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "ir/build.h"
#include "lab/check.h"
#include "emulated_device.h"

enum { SECONDS_MAX = 60 }; // of a line: what hangs, hangs for ever

static const char *const empty_lines[] = {
    "add n=0 rows=8",
    "add n=0 rows=2^62 lda=2^62",
    "conv n=0 h=2^31-1 w=2^31-1 stride=2",
    "conv n=0 c=2^20 h=2^31-1 k=2^20 direction=data",
    "conv c=0 k=2^31-1 direction=weight",
    "conv k=0 dilation=1 bias=1",
    "crossentropy rows=0 cols=2^62",
    "crossentropy rows=0 direction=backward reduction=mean",
    "elementwise shape=272x0 expr=x",
    "elementwise shape=2^62x2^62x0 expr=x",
    "attention q=0 kv=2^30 heads=2^8 d=128",
    "attention batch=0 ldq_batch=2^62",
    "attention_decode batch=0 page=16 ldk_batch=2^60",
    "attention_decode q=0 heads=2^8 lse=1",
    "gemm m=0 n=2^31 k=8",
    "gemm m=2^31 n=0 k=8",
    "groupnorm n=0 h=2^31 w=2^31",
    "groupnorm n=2^40 c=2^40 h=0 affine=0 direction=backward",
    "layernorm rows=0 cols=2^62",
    "layernorm rows=2^62 cols=0 stats=0 affine=0 direction=backward",
    "permute shape=0x2147483647 order=1,0",
    "permute shape=2^62x2^62x0 order=1,2,0",
    "reduce shape=2^62x0 axes=0",
    "rmsnorm rows=0 cols=0",
    "rope tokens=0 heads=2^16 head_dim=2^20 rotary_dim=2 ldq=2^62",
    "softmax shape=2^62x0x2^62 axis=1",
    "softmax shape=0x8 direction=backward",
    "transpose rows=0 cols=2^62",
    "transpose rows=2^62 cols=0 batch=2^62",
};

TEST(empty)
{
    for (int i = 0; i < COUNT_OF(empty_lines); i++) {
        test_case c;
        check k = { 0 };
        check_result result = { 0 };
        alarm(SECONDS_MAX);
        if (case_parse(empty_lines[i], &c) || check_open(&c, device, NULL, &k) || check_run(&k, &result))
            fail_msg("%s: %s", empty_lines[i], ckl_error());
        if (!result.passed || result.elements || !strstr(ckl_plan_text(k.plan), " nothing"))
            fail_msg("%s: %s %s", empty_lines[i], ckl_plan_text(k.plan), result.fault);
        check_close(&k);
        case_clear(&c);
    }
    alarm(0);
}

/* Random lines */

static uint64_t random_state;

static int below(int count)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((random_state >> 33) % (uint64_t)count);
}

#define PICK(list) (list)[below(COUNT_OF(list))]

static const char *size(void)
{
    static const char *const likely[] = { "1", "2", "3", "7", "8", "16", "33", "64", "100" };
    static const char *const absurd[] = {
        "0",
        "-1",
        "2^15",
        "2^31-1",
        "2^31",
        "2^31+1",
        "2^32",
        "2^40",
        "2^55",
        "2^61",
        "2^62-1",
        "2^62",
        "2^62+2^61",
        "9223372036854775807",
        "-9223372036854775807",
        "-2^40",
    };
    return below(6) ? PICK(likely) : PICK(absurd);
}

/* "8x2^62" */
static void append_list(text *out, const char *separator)
{
    for (int i = 0, rank = 1 + below(5); i < rank; i++)
        text_printf(out, "%s%s", i ? separator : "", size());
}

/* Of axes and of modes in another order. */
static void append_small(text *out)
{
    int rank = 1 + below(4), step = 1 + below(3);
    for (int i = 0; i < rank; i++)
        text_printf(out, "%s%d", i ? "," : "", i * step % rank);
}

static void append_text(const char *name, text *out)
{
    static const char *const exprs[] = { "x", "a*x+b", "gelu(x)*y", "max(a,b)-exp(c)", "a+b+c+d" };
    if (strcmp(name, "expr") == 0)
        text_printf(out, "%s", PICK(exprs));
    else if (strcmp(name, "axes") == 0 || strcmp(name, "order") == 0)
        append_small(out);
    else
        append_list(out, below(8) ? "x" : ",");
}

static void append_value(const field *f, text *out)
{
    static const char *const floats[] = { "0", "1", "0.5", "-1", "1e-45", "3e38", "inf", "nan", "1e400", "", "2^-3" };
    text choices = { 0 };
    field_choices(f, &choices);
    const char *word;
    int count = 0, length;
    while (field_word(text_data(&choices), count, &word))
        count++;
    if (f->kind == FIELD_quoted)
        append_text(f->name, out);
    else if (f->kind == FIELD_float)
        text_printf(out, "%s", below(4) ? "1" : PICK(floats));
    else if ((f->kind == FIELD_int64_t || f->kind == FIELD_int) || !count)
        text_printf(out, "%s", size());
    else {
        length = field_word(text_data(&choices), below(count), &word);
        text_printf(out, "%.*s", length, word);
    }
    text_free(&choices);
}

static void append_line(const operator_test *test, text *out)
{
    text_printf(out, "%s", test->op->name);
    for (int i = 0; i < test->line->problem.count; i++) {
        if (below(3))
            continue;
        text_printf(out, " %s=", test->line->problem.rows[i].name);
        append_value(&test->line->problem.rows[i], out);
    }
    if (below(8) == 0)
        text_printf(out, " misalign=1");
}

static double bytes_of(const test_case *c)
{
    operand all[OPERANDS_MAX];
    double sum = 0;
    for (int i = 0, count = adapter_operands(c->test, c->problem, all); i < count; i++) {
        plan_tensor t = plan_strided("", all[i].dtype, all[i].rank, all[i].shape, all[i].stride);
        sum += all[i].dtype ? (double)plan_tensor_bytes(&t) : 0;
    }
    return sum;
}

/* Chooses, and describes the kernels; the device need not have the memory. */
static ckl_status explain(const test_case *c)
{
    const ckl_device_info *info = ckl_device_properties(device);
    const operator_info *op = c->test->op;
    const implementation *impl;
    arena memory = { 0 };
    void *config;
    ckl_status status = plan_choose(info, op, c->problem, case_force(c, &memory), &memory, &impl, &config);
    for (int i = 0; status == CKL_OK && i < plan_kernels(op, impl, config); i++) {
        ir_kernel *kernel = NULL;
        status = plan_describe(op, impl, config, i, plan_target(info), &kernel);
        ir_kernel_free(kernel);
    }
    arena_clear(&memory);
    return status;
}

static ckl_status run(const test_case *c)
{
    check k = { 0 };
    check_result result;
    ckl_status status = check_open(c, device, NULL, &k);
    if (status == CKL_OK)
        status = check_run(&k, &result);
    check_close(&k);
    return status;
}

/* What explain, and run where it is small or too large, make of a line. */
static ckl_status try_line(const char *line, bool *ran)
{
    static const double SMALL = 64 << 10, LARGE = 0x1p42;
    test_case c;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = explain(&c);
    if (status == CKL_OK && (bytes_of(&c) <= SMALL || bytes_of(&c) >= LARGE)) {
        status = run(&c);
        *ran = status == CKL_OK;
    }
    case_clear(&c);
    return status;
}

static void expect(const char *line, ckl_status wanted, const char *words)
{
    test_case c;
    status_clear();
    ckl_status status = case_parse(line, &c);
    status = status == CKL_OK ? explain(&c) : status;
    if (status != wanted || !strstr(ckl_error(), words))
        fail_msg("%s: %s: %s", line, ckl_status_name(status), ckl_error());
    case_clear(&c);
}

/*
 * Limits that docs/operators.md states, each with the last size that is taken, and problems beyond what used to be one;
 * no memory is wanted for a choice.
 */
TEST(limits)
{
    static const struct {
        const char *line;
        ckl_status status;
        const char *words;
    } limits[] = {
        { "crossentropy rows=2^32 cols=4", CKL_OK, "" },
        { "crossentropy rows=2^45 cols=1", CKL_UNSUPPORTED, "more CTAs than a launch may have" },
        { "crossentropy rows=1 cols=2^31-1", CKL_OK, "" },
        { "crossentropy rows=1 cols=2^31", CKL_UNSUPPORTED, "no implementation" },
        { "gemm m=2^31-1 n=8 k=8 groups=2", CKL_OK, "" },
        { "gemm m=2^31 n=8 k=8 groups=2", CKL_INVALID, "m=2147483648 is beyond the 32 bits of offsets" },
        { "gemm m=8 n=8 k=2^31-1 groups=2 groups_of=k", CKL_OK, "" },
        { "gemm m=8 n=8 k=2^31 groups=2 groups_of=k", CKL_INVALID, "k=2147483648 is beyond the 32 bits of offsets" },
        { "gemm m=8 n=8 k=8 groups=2^31-1", CKL_OK, "" },
        { "gemm m=8 n=8 k=8 groups=2^31", CKL_INVALID, "groups=2147483648 or m=8 is beyond the 32 bits" },
        { "gemm m=2^31-1 n=8 k=8 gather=2^31-1", CKL_OK, "" },
        { "gemm m=8 n=8 k=8 gather=2^31", CKL_INVALID, "beyond the 32 bits of lists" },
        { "gemm m=2^31-1 n=8 k=8 scatter=2^31-1", CKL_OK, "" },
        { "gemm m=2^31 n=8 k=8 gather=8", CKL_INVALID, "beyond the 32 bits of lists" },
        { "gemm m=8 n=8 k=8 groups=1024 host_offsets=1", CKL_OK, "" },
        { "gemm m=8 n=8 k=8 groups=1025 host_offsets=1", CKL_INVALID, "host_offsets=1 is of 1 to 1024 groups" },
        { "gemm m=2^31-1 n=8 k=8 epilogue=relu2", CKL_OK, "" },
        { "gemm m=8 n=2^31-1 k=8 epilogue=relu2", CKL_OK, "" },
        { "gemm m=2^31 n=8 k=8 epilogue=relu2", CKL_INVALID, "epilogue=relu2 is of m and n below 2^31" },
        { "gemm m=8 n=2^31 k=8 epilogue=relu2", CKL_INVALID, "epilogue=relu2 is of m and n below 2^31" },
        { "gemm m=2^31-1 n=8 k=8 bias_gradient=columns", CKL_OK, "" },
        { "gemm m=2^30 n=8 k=8 batch=2 bias_gradient=columns", CKL_INVALID, "bias_gradient is of up to 2^31-1 rows" },
        { "gemm m=8 n=8 k=2^31-1 bias_gradient=a", CKL_OK, "" },
        { "gemm m=8 n=8 k=2^31 bias_gradient=a", CKL_INVALID, "bias_gradient is of up to 2^31-1 rows in all" },
        { "gemm m=8 n=8 k=8 groups=65535 bias_gradient=columns", CKL_OK, "" },
        { "gemm m=8 n=8 k=8 groups=65536 bias_gradient=columns", CKL_INVALID, "and 65535 groups" },
        { "attention q=2^30 kv=2^30 heads=1 d=8", CKL_OK, "" },
        { "attention q=2^30+1 kv=8 heads=1 d=8", CKL_INVALID, "q=1073741825 is not in 0..2^30" },
        { "attention q=8 kv=2^30+1 heads=1 d=8", CKL_INVALID, "kv=1073741825 is not in 0..2^30" },
        { "attention batch=2^31-2 q=1 kv=1 heads=1 d=8 ragged=1 q_total=8 kv_total=8", CKL_OK, "" },
        { "attention batch=2^31-1 q=1 kv=1 heads=1 d=8 ragged=1 q_total=8 kv_total=8", CKL_INVALID, "32 bits count" },
        { "attention batch=2 q=2^30 kv=8 heads=1 d=8 ragged=1", CKL_INVALID, "q_total=2147483648 or kv_total=16 is" },
        { "attention batch=2 q=8 kv=2^30 heads=1 d=8 ragged=1", CKL_INVALID, "kv_total=2147483648 is more than" },
        { "attention_decode kv=2^30 heads=1 d=8", CKL_OK, "" },
        { "attention_decode kv=64 heads=1 d=64 page=16 pages=2^31-1", CKL_OK, "" },
        { "attention_decode kv=64 heads=1 d=64 page=16 pages=2^31", CKL_INVALID, "pages=2147483648 have no numbers" },
        { "attention_decode kv=2^30+1 heads=1 d=8", CKL_INVALID, "kv=1073741825 is not in 1..2^30" },
        { "layernorm rows=2^32 cols=4", CKL_OK, "" },
        { "layernorm rows=1 cols=2^31-1", CKL_OK, "" },
        { "layernorm rows=1 cols=2^31", CKL_UNSUPPORTED, "more than 2147483647 columns" },
        { "rmsnorm rows=1 cols=2^31-1 direction=backward", CKL_OK, "" },
        { "rmsnorm rows=1 cols=2^31 direction=backward", CKL_UNSUPPORTED, "more than 2147483647 columns" },
        { "groupnorm n=1 c=2^25-1 groups=1 h=1 w=1", CKL_OK, "" },
        { "groupnorm n=1 c=2^25 groups=1 h=1 w=1", CKL_UNSUPPORTED, "more than 33554431 channels of a group" },
        { "groupnorm n=1 c=32 groups=1 h=2^14 w=2^14", CKL_OK, "" },
        { "groupnorm n=1 c=1 groups=1 h=2^17 w=2^17", CKL_UNSUPPORTED, "pixels of an image, or CTAs" },
        { "softmax shape=2x2^31-1", CKL_OK, "" },
        { "softmax shape=2x2^31", CKL_UNSUPPORTED, "n=2147483648 is more than 2147483647" },
        { "add n=2^54 dtype=f32", CKL_UNSUPPORTED, "more than 2147483647 tiles" },
        { "add n=2^54+1 dtype=f32", CKL_INVALID, "spans more than 2^56 bytes" },
        { "add n=1 rows=35 lda=2^62", CKL_INVALID, "add: a of 35x1 elements" }, // the first tensor alone
        { "add n=1 rows=35 ldy=2^62", CKL_INVALID, "add: y of 35x1 elements" },
    };
    for (int i = 0; i < COUNT_OF(limits); i++)
        expect(limits[i].line, limits[i].status, limits[i].words);
}

/* The size that ends a line: the largest that the implementation takes, and the next. */
TEST(limits_of_implementations)
{
    static const struct {
        const char *line;
        int64_t last;
        const char *words;
    } limits[] = {
        { "gemm n=8 k=8 impl=sm90 m=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm m=8 k=8 impl=sm90 n=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm m=8 n=8 k=8 impl=sm90 batch=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm n=8 k=8 impl=tma_mma m=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm m=8 k=8 impl=tma_mma n=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm m=8 n=8 k=8 impl=tma_mma batch=", INT32_MAX, "32-bit coordinates of TMA" },
        { "gemm n=8 k=8 a=f32 impl=fma m=", INT32_MAX, "a size, or their tiles, are beyond 32 bits" },
        { "gemm m=8 k=8 a=f32 impl=fma n=", INT32_MAX / 2, "a size, or their tiles, are beyond 32 bits" },
        { "gemm m=8 n=8 a=f32 impl=fma k=", INT32_MAX, "a size, or their tiles, are beyond 32 bits" },
        { "gemm m=8 n=8 k=8 a=f32 impl=fma batch=", INT32_MAX, "a size, or their tiles, are beyond 32 bits" },
        { "gemm n=8 k=8 impl=blocked m=", INT32_MAX, "a size is beyond 32 bits" },
        { "gemm m=8 k=8 impl=blocked n=", INT32_MAX, "a size is beyond 32 bits" },
        { "gemm m=8 n=8 impl=blocked k=", INT32_MAX, "a size is beyond 32 bits" },
        { "gemm m=8 n=8 k=8 impl=tiled batch=", INT32_MAX, "2147483648 tiles are more than a launch has" },
        { "transpose cols=32 impl=sm80 rows=", INT32_MAX, "is beyond 32-bit numbers" },
        { "transpose rows=32 impl=sm80 cols=", INT32_MAX, "is beyond 32-bit numbers" },
        { "conv h=8 w=8 c=8 k=8 r=3 s=3 pad=1 impl=sm80 n=", INT32_MAX / 64, "more tiles than a launch has" },
        { "conv n=1 w=1 c=8 k=8 r=1 s=1 direction=weight impl=sm90_weight h=", INT32_MAX / 4, "beyond 32-bit" },
        { "conv n=1 h=1 c=8 k=8 r=1 s=1 direction=weight impl=sm90_weight w=", INT32_MAX / 4, "beyond 32-bit" },
        { "conv n=1 w=16 c=8 k=8 groups=8 r=3 s=3 direction=weight impl=halo_weight h=", INT32_MAX / 4, "32-bit" },
        { "conv n=1 h=16 c=8 k=8 groups=8 r=3 s=3 direction=weight impl=halo_weight w=", INT32_MAX / 4, "32-bit" },
    };
    for (int i = 0; i < COUNT_OF(limits); i++)
        for (int beyond = 0; beyond < 2; beyond++) {
            text line = { 0 };
            text_printf(&line, "%s%" PRId64, limits[i].line, limits[i].last + beyond);
            expect(text_data(&line), beyond ? CKL_UNSUPPORTED : CKL_OK, beyond ? limits[i].words : "");
            text_free(&line);
        }
}

/* Said before anything is allocated. */
TEST(out_of_memory)
{
    test_case c;
    assert_ok(case_parse("add n=2^40", &c));
    assert_fails(run(&c), CKL_NO_MEMORY, "add: the operands want 5.28e+04 GB of host memory");
    case_clear(&c);
}

static text current;

static void too_long(int number)
{
    fprintf(stderr, "takes too long: %s\n", text_data(&current));
    abort();
}

TEST(random_lines)
{
    const int lines = getenv("CKL_TEST_FULL") ? 5000 : 400;
    int counts[CKL_INTERNAL + 1] = { 0 }, runs = 0, operators_count = 0;
    while (operator_tests[operators_count])
        operators_count++;
    for (int i = 0; i < lines; i++) {
        bool ran = false;
        current.length = 0;
        random_state = (uint64_t)i * 0x9e3779b97f4a7c15;
        append_line(operator_tests[i % operators_count], &current);
        status_clear();
        alarm(SECONDS_MAX);
        ckl_status status = try_line(text_data(&current), &ran);
        counts[status]++;
        runs += ran;
        if (status == CKL_INTERNAL || status == CKL_DEVICE_FAULT || (status && !*ckl_error()))
            fail_msg("%s: %s", text_data(&current), ckl_error());
    }
    alarm(0);
    print_message("%d lines: %d ran, %d invalid, %d unsupported, %d without memory\n", lines, runs, counts[CKL_INVALID],
                  counts[CKL_UNSUPPORTED], counts[CKL_NO_MEMORY]);
    assert_true(runs > lines / 20 && counts[CKL_NO_MEMORY] > 0);
    text_free(&current);
}

int main(void)
{
    signal(SIGALRM, too_long);
    return run_enlisted(open_device, close_device);
}
