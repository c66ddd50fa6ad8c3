/* twins.h - wrong kernels, which the verifier must refuse, each with a right twin, which it must take. */
#ifndef CKL_TESTS_TWINS_H
#define CKL_TESTS_TWINS_H

#include "ir/build.h"

typedef struct twin {
    const char *name;
    void (*describe)(bool right);
    const char *sentence; // a part of it
} twin;

static ckl_status twin_verify(const twin *t, bool right)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin(t->name, IR_SM90A);
    ir_current()->threads = 256;
    ir_at("kernel.c", 7);
    t->describe(right);
    if (ir_describe_end(&kernel) != CKL_OK)
        fail_msg("%s: cannot be described: %s", t->name, ckl_error());
    ckl_status status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status;
}

static void twins_check(const twin *twins, int count)
{
    for (int i = 0; i < count; i++) {
        if (twin_verify(&twins[i], true) != CKL_OK)
            fail_msg("%s: the right kernel is refused: %s", twins[i].name, ckl_error());
        if (twin_verify(&twins[i], false) != CKL_INTERNAL)
            fail_msg("%s: the wrong kernel is taken", twins[i].name);
        if (!strstr(ckl_error(), twins[i].sentence) || !strstr(ckl_error(), twins[i].name))
            fail_msg("%s: the sentence is: %s", twins[i].name, ckl_error());
    }
}

#endif
