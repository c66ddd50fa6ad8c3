/* unit_verify.h - kernels for tests of the verifier: a right one, and the same one with a single thing spoiled. */
#pragma once

#include "unit.h"
#include "base/math.h"
#include "ir_blocks.h"

static inline val u32(int64_t i)
{
    return ir_int(IR_U32, i);
}

static inline val u64(int64_t i)
{
    return ir_int(IR_U64, i);
}

/* A value that nothing is known of, the same for all threads. */
static inline val unknown(ir_type type)
{
    return ir_scalar_param(type, ir_type_text(type));
}

static inline val is_zero(val x)
{
    return ir_compare(IR_EQ, x, ir_int(x.type, 0));
}

/* Predicates of CTAs, different ones. */
static inline val p_of(int number)
{
    return ir_compare(IR_EQ, unknown(IR_U32), u32(number));
}

/* A kernel of a call that is `right` or not. */
#define DESCRIBES(name, call)    \
    static void name(bool right) \
    {                            \
        call;                    \
    }

/* An instruction that is right, and what makes it wrong: `i` is the last one described, `k` the kernel. */
#define SPOILED(name, right, wrong)                     \
    static void name(bool is_right)                     \
    {                                                   \
        right;                                          \
        ir_kernel *k = ir_current();                    \
        ir_inst *i = k->inst_count ? last_of(k) : NULL; \
        (void)i;                                        \
        if (!is_right) {                                \
            wrong;                                      \
        }                                               \
    }

static inline ir_inst *last_of(ir_kernel *k)
{
    return &k->insts[k->inst_count - 1];
}

/* A rule: how the kernel is described, and a part of the sentence that refuses the wrong one. */
typedef struct verify_case {
    const char *name;
    void (*describe)(bool right);
    const char *sentence;
} verify_case;

#define WANTED(f) #f, f

static inline ckl_status verify_one(const verify_case *c, bool right)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin(c->name, IR_SM90A);
    ir_current()->threads = 256;
    ir_at("kernel.c", 7);
    c->describe(right);
    if (ir_describe_end(&kernel) != CKL_OK)
        fail_msg("%s: cannot be described: %s", c->name, ckl_error());
    ckl_status status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status;
}

static inline void verify_all(const verify_case *cases, int count)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        if (verify_one(&cases[i], true) != CKL_OK) {
            print_error("%s: the right kernel is refused: %s\n", cases[i].name, ckl_error());
            wrong++;
        }
        bool refused = verify_one(&cases[i], false) == CKL_INTERNAL;
        if (!refused || !strstr(ckl_error(), cases[i].sentence)) {
            print_error("%s: %s\n", cases[i].name, refused ? ckl_error() : "the wrong kernel is taken");
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}
