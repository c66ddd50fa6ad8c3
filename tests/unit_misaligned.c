/*
 * unit_misaligned.c - operands that begin at any element. The small cases of every operator, all with CKL_TEST_FULL,
 * are run displaced, in a quick run each in one of two ways: a case is right, or it is refused before anything reads;
 * no kernel meets an address that it does not take.
 */
#include "unit.h"
#include "base/text.h"
#include "lab/adapter.h"
#include "lab/check.h"
#include "emulated_device.h"

static const double FLOPS_MOST = 2e5; // of a case in a quick run

typedef struct outcomes {
    int right, refused;
} outcomes;

static void run_displaced(test_case *c, const char *line, int misalign, int stagger, outcomes *found)
{
    check k;
    c->keys.misalign = misalign;
    c->keys.stagger = stagger;
    check_result result = { 0 };
    ckl_status status = check_open(c, device, NULL, &k);
    if (status == CKL_OK)
        status = check_run(&k, &result);
    const bool refused = status == CKL_INVALID && strstr(ckl_error(), "is not aligned to");
    if (!refused && (status != CKL_OK || !result.passed))
        fail_msg("%s misalign=%d stagger=%d: %s", line, (int)c->keys.misalign, (int)c->keys.stagger,
                 *result.fault ? result.fault : ckl_error());
    found->refused += refused;
    found->right += !refused;
    check_close(&k);
}

static void test_displaced(void **state)
{
    const operator_test *test = *state;
    outcomes found = { 0 };
    for (const char *const *line = test->cases; *line; line++) {
        test_case c;
        text whole = { 0 };
        text_printf(&whole, "%s %s", test->op->name, *line);
        assert_ok(case_parse(text_data(&whole), &c));
        const bool displaced = c.keys.misalign || c.keys.stagger, full = getenv("CKL_TEST_FULL") != NULL;
        if (!displaced && (full || adapter_flops(c.test, c.problem) <= FLOPS_MOST)) {
            const bool odd = (line - test->cases) % 2;
            if (full || !odd)
                run_displaced(&c, text_data(&whole), 3, 0, &found);
            if (full || odd)
                run_displaced(&c, text_data(&whole), 0, 1, &found);
        }
        case_clear(&c);
        text_free(&whole);
    }
    print_message("%-16s %d right, %d refused\n", test->op->name, found.right, found.refused);
    assert_true(found.right > 0);
}

int main(void)
{
    for (const operator_test *const *test = operator_tests; *test; test++)
        enlist((*test)->op->name, test_displaced, NULL, NULL, *test);
    return run_enlisted(open_device, close_device);
}
