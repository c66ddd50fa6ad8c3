/*
 * unit_rejects.c - what every operator must refuse, whatever it computes: outputs that overlap other tensors partly, and
 * pointers that are not aligned to their elements. Nothing is launched then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lab/check.h"
#include "emulated_device.h"

enum { SHIFT = 8 }; // bytes: aligned to any element

static const char *const lines[] = {
    "add n=1000",
    "crossentropy rows=8 cols=64",
    "crossentropy rows=8 cols=64 direction=backward",
    "elementwise expr=a*b+c shape=1000",
    "groupnorm n=2 c=32 h=4 w=4 groups=4",
    "layernorm rows=8 cols=64 residual=1",
    "layernorm rows=8 cols=64 direction=backward residual=1",
    "permute shape=16x32x8",
    "reduce op=sum shape=64x64 axes=1",
    "rmsnorm rows=8 cols=64",
    "rmsnorm rows=8 cols=64 direction=backward",
    "softmax shape=8x64 mask=add",
    "softmax shape=8x64 direction=backward",
    "transpose rows=32 cols=48",
};

static int64_t writes(void)
{
    device_counter counters[64];
    int count = device->ops->counters(device, counters, COUNT_OF(counters));
    for (int i = 0; i < count; i++)
        if (strcmp(counters[i].name, "global write sectors") == 0)
            return counters[i].value;
    return 0;
}

/* Runs the case with one pointer changed. */
static void assert_refused(check *k, int which, void *pointer, const char *words)
{
    void *before = k->set.pointer[which];
    k->set.pointer[which] = pointer;
    device->ops->counters_reset(device);
    ckl_status status = check_enqueue(k);
    if (status != CKL_INVALID || !strstr(ckl_error(), words) || writes())
        fail_msg("%s: %s: status %d, \"%s\"", k->c->test->op->name, k->images.each[which].info.name, (int)status,
                 status ? ckl_error() : "");
    k->set.pointer[which] = before;
}

static bool is_there(const check *k, int i)
{
    return k->set.pointer[i] != NULL;
}

static void check_overlaps(check *k)
{
    for (int out = 0; out < k->images.count; out++)
        for (int other = 0; other < k->images.count; other++) {
            bool written = k->images.each[out].info.role != OPERAND_IN;
            if (out == other || !written || !is_there(k, out) || !is_there(k, other))
                continue;
            if (k->images.each[other].bytes > SHIFT)
                assert_refused(k, out, (unsigned char *)k->set.pointer[other] + SHIFT, "overlaps");
        }
}

static void check_alignment(check *k)
{
    for (int i = 0; i < k->images.count; i++)
        if (is_there(k, i) && ckl_dtype_bytes(k->images.each[i].info.dtype) > 1)
            assert_refused(k, i, (unsigned char *)k->set.pointer[i] + 1, "is not aligned to");
}

static void for_all(void (*refuses)(check *k))
{
    for (int i = 0; i < COUNT_OF(lines); i++) {
        test_case c;
        check k;
        assert_int_equal(case_parse(lines[i], &c), CKL_OK);
        assert_int_equal(check_open(&c, device, NULL, &k), CKL_OK);
        refuses(&k);
        check_close(&k);
        case_clear(&c);
    }
}

static void test_partial_overlap(void **state)
{
    (void)state;
    for_all(check_overlaps);
}

static void test_misaligned(void **state)
{
    (void)state;
    for_all(check_alignment);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partial_overlap),
        cmocka_unit_test(test_misaligned),
    };
    return cmocka_run_group_tests_name("rejects", tests, open_device, close_device);
}
