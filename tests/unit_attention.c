/*
 * unit_attention.c - what attention_decode promises beside its values: the result of a sequence does not depend on the batch, to
 * the bit.
 */
#include "accuracy.h"
#include "cutekernellib/operators/attention_decode.h"

enum { BATCH = 3, HEADS = 8, KV_HEADS = 2, KV = 400, D = 64, PAGE = 16, PAGES = KV / PAGE };

static const int lengths[BATCH] = { KV, 1, 333 };

/* The pages of sequence b are those of number PAGES * b and after, from the last to the first. */
static double page_of(int64_t i)
{
    return (double)(i / PAGES * PAGES + PAGES - 1 - i % PAGES);
}

static double length_of(int64_t b)
{
    return lengths[b];
}

static tensor_of_test make_integers(int64_t count, double (*of)(int64_t i))
{
    tensor_of_test t = make_tensor(CKL_I32, count);
    for (int64_t i = 0; i < count; i++)
        t.value[i] = of(i);
    write_tensor(&t);
    return t;
}

static void decode(int64_t batch, int first, const tensor_of_test *in, tensor_of_test *o)
{
    const int64_t of_q = HEADS * D * 2;
    ckl_attention_decode_desc desc = { .dtype = CKL_BF16, .batch = batch, .heads = HEADS, .kv_heads = KV_HEADS };
    desc.q = 1;
    desc.kv = KV;
    desc.d = D;
    desc.page = PAGE;
    desc.pages = BATCH * PAGES;
    ckl_attention_decode_args args = { .q = (char *)in[0].memory + first * of_q, .k = in[1].memory, .v = in[2].memory };
    args.lengths = (int32_t *)in[3].memory + first;
    args.table = (int32_t *)in[4].memory + first * PAGES;
    args.o = o->memory;
    assert_int_equal(ckl_attention_decode(device, &desc, &args, stream), CKL_OK);
    read_tensor(o);
}

static void test_batch_invariance(void **state)
{
    const int64_t of_q = HEADS * D, of_cache = (int64_t)BATCH * PAGES * KV_HEADS * PAGE * D;
    tensor_of_test in[] = { make_random(CKL_BF16, BATCH * of_q, 1, 0, 1), make_random(CKL_BF16, of_cache, 2, 0, 1),
                            make_random(CKL_BF16, of_cache, 3, 0, 1), make_integers(BATCH, length_of),
                            make_integers(BATCH * PAGES, page_of) };
    tensor_of_test together = make_tensor(CKL_BF16, BATCH * of_q), alone = make_tensor(CKL_BF16, of_q);
    (void)state;
    decode(BATCH, 0, in, &together);
    for (int b = 0; b < BATCH; b++) {
        decode(1, b, in, &alone);
        for (int64_t i = 0; i < of_q; i++)
            assert_true(alone.value[i] == together.value[b * of_q + i]);
    }
    for (int i = 0; i < COUNT_OF(in); i++)
        free_tensor(&in[i]);
    free_tensor(&together);
    free_tensor(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_batch_invariance) };
    return cmocka_run_group_tests_name("attention", tests, open_device, close_device);
}
