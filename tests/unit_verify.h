/* unit_verify.h - kernels for tests of the verifier: a right one, and the same one with a single thing spoiled. */
#pragma once

#include "unit.h"
#include "base/math.h"
#include "ir_blocks.h"

static inline val u64(int64_t i)
{
    return ir_int(IR_U64, i);
}

static inline val is_zero(val x)
{
    return ir_compare(IR_EQ, x, ir_int(x.type, 0));
}

enum { N = 16 }; // of a wgmma

static inline void accumulators(val d[N / 2])
{
    for (int i = 0; i < N / 2; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
}

/* Predicates of CTAs, different ones. */
static inline val p_of(int number)
{
    return ir_compare(IR_EQ, unknown(IR_U32), u32(number));
}

static inline ir_inst *last_of(ir_kernel *k)
{
    return &k->insts[k->inst_count - 1];
}

/* A rule: how a kernel is described, right or wrong, and a part of the sentence that refuses the wrong one. */
typedef struct verify_rule {
    const char *name;
    void (*describe)(bool right);
    const char *sentence;
} verify_rule;

static inline ckl_status verify_one(const verify_rule *rule, bool right)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin(rule->name, IR_SM90A);
    ir_current()->threads = 256;
    ir_at("kernel.c", 7);
    rule->describe(right);
    assert_ok(ir_describe_end(&kernel));
    ckl_status status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status;
}

static inline void test_rule(void **state)
{
    assert_ok(verify_one(*state, true));
    assert_fails(verify_one(*state, false), CKL_INTERNAL, ((const verify_rule *)*state)->sentence);
}

/* A test of a rule: RULE(name, words) { ... } describes its kernel, `right` or not. */
#define RULE(name, words)                                        \
    static void name(bool right);                                \
    __attribute__((constructor)) static void enlist_##name(void) \
    {                                                            \
        static const verify_rule rule = { #name, name, words };  \
        enlist(#name, test_rule, NULL, NULL, &rule);             \
    }                                                            \
    static void name(bool right)

/* A kernel of a call that is `right` or not. */
#define DESCRIBES(name, call, words) \
    RULE(name, words)                \
    {                                \
        call;                        \
    }

/* An instruction that is described, and what makes it wrong: `i` is the last one, `k` the kernel. */
#define SPOILED(name, described, spoiled, words)        \
    RULE(name, words)                                   \
    {                                                   \
        described;                                      \
        ir_kernel *k = ir_current();                    \
        ir_inst *i = k->inst_count ? last_of(k) : NULL; \
        (void)i;                                        \
        if (!right) {                                   \
            spoiled;                                    \
        }                                               \
    }
