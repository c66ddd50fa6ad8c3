/*
 * unit_ptx_predicates.c - a few simple instructions of an IF take its predicate in PTX, or none if nothing else writes
 * their result; others are jumped over.
 */
#include "unit.h"
#include "base/math.h"
#include "ir/build.h"
#include "lab/assemble.h"

static int stores; // of store_some
static val memory, guard, stored;

static void store_some(void)
{
    for (int i = 0; i < stores; i++)
        ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, memory, 16 * i, &stored);
}

static void store_else(void)
{
    store_some();
    ir_else();
    store_some();
}

static void store_behind_guard(void)
{
    ir_assign(guard, ir_compare(IR_LT, stored, ir_u32(7)));
    store_some();
}

static void store_inside_if(void)
{
    ir_if(ir_compare(IR_LT, stored, ir_u32(7)));
    store_some();
    ir_end_if();
}

static void store_with_lanes(void)
{
    ir_plain(IR_WARP_SYNC, 0, 0);
    store_some();
}

static void store_sum(void)
{
    stored = ir_binary(IR_ADD, stored, ir_u32(7)); // needs no predicate
    store_some();
}

static void change_sum(void)
{
    ir_assign(stored, ir_u32(7));
    store_some();
}

static void wait_in_a_loop(void)
{
    ir_mbarrier_wait(ir_smem_address(ir_smem_alloc("bar", 8, 8)), 0, ir_u32(0));
}

static val word(int64_t offset)
{
    val v = ir_reg(IR_U32);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, memory, offset, &v);
    return v;
}

static void check_assembled(const ir_kernel *kernel)
{
    assembled result;
    assert_ok(assemble_kernel(kernel, &result));
    if (!result.good)
        fail_msg("%s", result.complaint);
}

static int count_of(const char *words, const char *word)
{
    int count = 0;
    for (; (words = strstr(words, word)); words++)
        count++;
    return count;
}

TEST(predicates)
{
    static const struct {
        void (*inside)(void);
        int stores, guards; // 0: a jump
    } cases[] = {
        { store_some, 1, 1 },      { store_some, 6, 6 },       { store_some, 7, 0 },         { store_else, 1, 0 },
        { store_inside_if, 1, 0 }, { store_with_lanes, 1, 0 }, { store_behind_guard, 1, 0 }, { wait_in_a_loop, 0, 0 },
        { store_sum, 2, 2 },       { change_sum, 2, 3 },
    };
    if (!assemble_tool())
        print_message("skipped: nothing is assembled, ptxas is not installed\n");
    for (int i = 0; i < COUNT_OF(cases); i++) {
        ir_kernel *kernel = NULL;
        text ptx = { 0 };
        ir_describe_begin("predicates", IR_SM90A);
        ir_at(__FILE__, __LINE__);
        memory = ir_scalar_param(IR_U64, "memory");
        stores = cases[i].stores;
        stored = word(0);
        guard = ir_reg(IR_PRED);
        ir_assign(guard, ir_compare(IR_NE, word(16), ir_u32(0)));
        ir_if(guard);
        cases[i].inside();
        ir_end_if();
        if (ir_describe_end(&kernel) != CKL_OK || ir_print_ptx(kernel, &ptx) != CKL_OK)
            fail_msg("case %d: %s", i, ckl_error());
        assert_int_equal(strstr(text_data(&ptx), "\t@!%p") != NULL, !cases[i].guards);
        if (cases[i].guards)
            assert_int_equal(count_of(text_data(&ptx), "\t@%p"), cases[i].guards);
        if (assemble_tool())
            check_assembled(kernel);
        text_free(&ptx);
        ir_kernel_free(kernel);
    }
}

RUN_TESTS(NULL, NULL)
