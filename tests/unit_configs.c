/*
 * unit_configs.c - absurd configs: every number of every implementation's config as 0, -1, 2^20 and 2^31-1, alone and
 * with another one, for some of the operator's cases that the implementation takes. Each is planned or refused with a
 * sentence, at once. Implementations that say so have instructions of tensor cores.
 *
 * `build/unit_configs OPERATOR` prints each line before it is planned, so that the last one is the one that crashed.
 */
#include "unit.h"
#include "base/math.h"
#include "base/random.h"
#include "lab/planned.h"

enum { PROBLEMS = 5 }; // of an implementation: so many of the operator's cases that it takes, far apart

static ckl_device *device;
static bool loud;
static int planned, refused;

/* The tensor cores' instructions of all launches: number IR_TENSOR of those by class behind "code". */
static int tensor_instructions(const char *launches)
{
    int all = 0, here = 0;
    while ((launches = strstr(launches, ", code "))) {
        launches += strlen(", code ");
        if (sscanf(launches, "%*d %*d %*d %*d %*d %d", &here) == 1)
            all += here;
    }
    return all;
}

/* *tensor grows by the problem's instructions of tensor cores. */
static bool is_taken(const test_case *c, int *tensor)
{
    ckl_plan *plan = NULL;
    text launches = { 0 };
    ckl_status status = planned_launches(device, c, &plan, &launches);
    bool taken = status == CKL_OK && launches.length > 0;
    if (taken)
        *tensor += tensor_instructions(text_data(&launches));
    ckl_plan_free(plan);
    text_free(&launches);
    return taken;
}

/*
 * The problem of a case with the config that the case forces, if it is one of this implementation; false if it does not
 * take it.
 */
static bool open_case(const operator_test *test, const char *line, const implementation *impl, test_case *out,
                      text *config, int *tensor)
{
    text whole = { 0 };
    test_case forced = { 0 };
    text_printf(&whole, "%s %.*s", test->op->name, (int)strcspn(line, "#"), line);
    text_printf(config, "%s", impl->name);
    bool taken = case_parse(text_data(&whole), out) == CKL_OK;
    if (taken && strcmp(out->keys.impl, impl->name) == 0)
        text_printf(config, " %s", out->keys.config);
    taken = taken && case_copy(out, text_data(config), &forced) == CKL_OK && is_taken(&forced, tensor);
    text_free(&whole);
    case_clear(&forced);
    if (!taken) {
        case_clear(out);
        text_clear(config);
    }
    return taken;
}

static void try(const test_case *c, const char *config)
{
    test_case forced;
    text line = { 0 }, launches = { 0 };
    assert_ok(case_copy(c, config, &forced));
    case_print(&forced, &line);
    if (loud)
        fprintf(stderr, "%s\n", text_data(&line));
    ckl_status status = planned_launches(device, &forced, NULL, &launches);
    if (status != CKL_OK && status != CKL_INVALID && status != CKL_UNSUPPORTED)
        fail_msg("%s: %s: %s", text_data(&line), ckl_status_name(status), ckl_error());
    *(status == CKL_OK ? &planned : &refused) += 1;
    text_free(&line);
    text_free(&launches);
    case_clear(&forced);
}

static bool is_number(const field *f)
{
    return f->kind == FIELD_int || f->kind == FIELD_int64_t;
}

/* Each number alone, and with another field that is absurd, or a flag that is set, too. */
static void try_fields(const test_case *c, const implementation *impl, const char *config)
{
    static const char *const values[] = { "0", "-1", "1048576", "2147483647" };
    static uint64_t random = 1;
    const field *rows = impl->config.rows;
    const int count = impl->config.count;
    for (int i = 0; i < COUNT_OF(values) * count; i++) {
        const field *f = &rows[i / COUNT_OF(values)], *other = &rows[random_below(&random, count)];
        text changed = { 0 };
        if (!is_number(f))
            continue;
        text_printf(&changed, "%s %s=%s", config, f->name, values[i % COUNT_OF(values)]);
        try(c, text_data(&changed));
        if (is_number(other) || other->kind == FIELD_bool) {
            const int64_t which = random_below(&random, COUNT_OF(values));
            text_printf(&changed, " %s=%s", other->name, other->kind == FIELD_bool ? "1" : values[which]);
            try(c, text_data(&changed));
        }
        text_free(&changed);
    }
}

/* Any two numbers as large as any may be: products of both are beyond 32 bits. */
static void try_pairs(const test_case *c, const implementation *impl, const char *config)
{
    const field *rows = impl->config.rows;
    for (int i = 0; i < impl->config.count; i++)
        for (int j = 0; j < i; j++) {
            text changed = { 0 };
            text_printf(&changed, "%s %s=1048576 %s=1048576", config, rows[i].name, rows[j].name);
            if (is_number(&rows[i]) && is_number(&rows[j]))
                try(c, text_data(&changed));
            text_free(&changed);
        }
}

/* What a summary says of tensor cores is so in the code: a name alone has been taken for them before. */
static void check_tensor_cores(const operator_test *test, const implementation *impl, int instructions)
{
    const char *says = impl->summary;
    if ((strstr(says, "wgmma") || strstr(says, "mma.sync")) && instructions == 0)
        fail_msg("%s %s: '%s', but its kernels have no instruction of tensor cores", test->op->name, impl->name, says);
    if ((strstr(says, "no tensor cores") || strstr(says, "without tensor cores")) && instructions > 0)
        fail_msg("%s %s: '%s', but its kernels use them", test->op->name, impl->name, says);
}

static void try_implementation(const operator_test *test, const implementation *impl)
{
    int count = 0, tried = 0, tensor = 0;
    while (test->cases[count])
        count++;
    for (int i = 0, step = 1 + count / PROBLEMS; i < count && tried < PROBLEMS; i += tried ? step : 1) {
        test_case c;
        text config = { 0 };
        while (i < count && !open_case(test, test->cases[i], impl, &c, &config, &tensor))
            i++;
        if (i < count) {
            try_fields(&c, impl, text_data(&config));
            if (tried == 0)
                try_pairs(&c, impl, text_data(&config));
            case_clear(&c);
            tried++;
        }
        text_free(&config);
    }
    if (tried == 0)
        fail_msg("%s %s takes no case", test->op->name, impl->name);
    check_tensor_cores(test, impl, tensor);
}

static void test_operator(void **state)
{
    const operator_test *test = *state;
    for (const implementation *const *impl = test->op->implementations; *impl; impl++)
        try_implementation(test, *impl);
}

int main(int argc, char **argv)
{
    ckl_device *emulator;
    setenv("CKL_TUNED", "off", 1);
    loud = argc > 1;
    for (const operator_test *const *test = operator_tests; *test; test++)
        if (!loud || strcmp((*test)->op->name, argv[1]) == 0)
            enlist((*test)->op->name, test_operator, NULL, NULL, *test);
    if (ckl_device_open("emulator:h200", &emulator) != CKL_OK ||
        planned_open(ckl_device_properties(emulator), &device) != CKL_OK)
        return 1;
    int failed = run_enlisted(NULL, NULL);
    print_message("%d planned, %d refused\n", planned, refused);
    planned_close(device);
    ckl_device_close(emulator);
    return failed;
}
