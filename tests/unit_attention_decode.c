/*
 * unit_attention_decode.c - a sequence that is decoded gives the same bits in every batch, and what attention gives;
 * what a call appends is there for the next one.
 */
#include <string.h>

#include "accuracy.h"
#include "cutekernellib/operators/attention.h"
#include "cutekernellib/operators/attention_decode.h"
#include "lab/check.h"
#include "operators/operators.h"

enum { BATCH = 3, HEADS = 8, KV_HEADS = 2, KV = 1200, D = 64, PAGE = 16, PAGES = KV / PAGE };

static const int lengths[BATCH] = { KV, 1, 777 };

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
    assert_ok(ckl_attention_decode(device, &desc, &args, stream));
    read_tensor(o);
}

TEST(batch_invariance)
{
    const int64_t of_q = HEADS * D, of_cache = (int64_t)BATCH * PAGES * KV_HEADS * PAGE * D;
    tensor_of_test in[] = { make_random(CKL_BF16, BATCH * of_q, 1, 0, 1), make_random(CKL_BF16, of_cache, 2, 0, 1),
                            make_random(CKL_BF16, of_cache, 3, 0, 1), make_integers(BATCH, length_of),
                            make_integers(BATCH * PAGES, page_of) };
    tensor_of_test together = make_tensor(CKL_BF16, BATCH * of_q), alone = make_tensor(CKL_BF16, of_q);
    decode(BATCH, 0, in, &together);
    for (int b = 0; b < BATCH; b++) {
        decode(1, b, in, &alone);
        for (int64_t i = 0; i < of_q; i++)
            assert_true(alone.value[i] == together.value[b * of_q + i]);
    }
    free_tensors();
}

static uint64_t digest_of(const char *line)
{
    test_case c;
    check k = { 0 };
    check_result result = { 0 };
    assert_ok(case_parse(line, &c));
    assert_ok(check_open(&c, device, stream, &k));
    assert_ok(check_run(&k, &result));
    assert_true(result.passed);
    uint64_t digest = operand_images_digest(&k.images);
    check_close(&k);
    return digest;
}

/* How many splits a CTA takes, and whether CTAs add as a cluster, follows from the batch: no part in the result. */
TEST(runs_of_splits)
{
    static const char sm80[] = "attention_decode heads=6 kv_heads=2 kv=1450 d=64 batch=2 shortest=300 sinks=1 lse=1 "
                               "impl=sm80 config='split=64 ";
    static const char longer[] =
        "attention_decode heads=3 kv_heads=1 kv=3600 d=64 batch=2 shortest=2500 page=16 impl=sm80 "
        "config='split=64 cluster=1 ";
    static const char few[] = "attention_decode latent=1 heads=6 kv_heads=2 kv=1000 d=136 dv=128 batch=3 shortest=300 "
                              "lse=1 impl=latent_few config='split=64 ";
    static const char *const configs[][8] = {
        { sm80, "run=1 cluster=1", "run=2 cluster=1", "run=4 cluster=1", "run=4 cluster=8", "run=8 cluster=8",
          "run=16 cluster=1" },
        { longer, "run=1", "run=2", "run=4", "run=16" }, // two levels of sums, or one
        { few, "run=1", "run=2", "run=5", "run=8", "run=23", "run=96" },
    };
    for (int i = 0; i < COUNT_OF(configs); i++) {
        uint64_t one = 0;
        for (int j = 1; j < COUNT_OF(configs[i]) && configs[i][j]; j++) {
            char line[256];
            snprintf(line, sizeof line, "%s%s'", configs[i][0], configs[i][j]);
            const uint64_t digest = digest_of(line);
            if (j == 1)
                one = digest;
            assert_true(digest == one);
        }
    }
}

/* The last query of attention is what decoding gives. */
TEST(decode_is_attention)
{
    const int64_t of_q = HEADS * D, of_cache = (int64_t)KV_HEADS * KV * D;
    tensor_of_test q = make_random(CKL_BF16, of_q, 1, 0, 1), k = make_random(CKL_BF16, of_cache, 2, 0, 1),
                   v = make_random(CKL_BF16, of_cache, 3, 0, 1), length = make_integers(1, length_of),
                   decoded = make_tensor(CKL_BF16, of_q), o = make_tensor(CKL_BF16, of_q);
    ckl_attention_desc desc = {
        .dtype = CKL_BF16, .batch = 1, .heads = HEADS, .kv_heads = KV_HEADS, .q = 1, .kv = KV, .d = D
    };
    ckl_attention_decode_desc decode = { .dtype = CKL_BF16, .batch = 1, .heads = HEADS, .kv_heads = KV_HEADS, .q = 1 };
    const ckl_attention_args args = { .q = q.memory, .k = k.memory, .v = v.memory, .o = o.memory };
    const ckl_attention_decode_args decode_args = {
        .q = q.memory, .k = k.memory, .v = v.memory, .lengths = length.memory, .o = decoded.memory
    };
    decode.kv = KV;
    decode.d = D;
    assert_ok(ckl_attention(device, &desc, &args, stream));
    assert_ok(ckl_attention_decode(device, &decode, &decode_args, stream));
    read_tensor(&o);
    read_tensor(&decoded);
    for (int64_t i = 0; i < of_q; i++)
        assert_near("o", CKL_BF16, decoded.value[i], o.value[i], 4e-3);
    free_tensors();
}

/* Decodes of a latent cache; t: q, k, lengths, o. */
static void decode_latent(int64_t batch, tensor_of_test *const t[4])
{
    ckl_attention_decode_desc desc = {
        .dtype = CKL_F16, .batch = batch, .heads = 4, .kv_heads = 1, .q = 1, .latent = true
    };
    ckl_attention_decode_args args = {
        .q = t[0]->memory, .k = t[1]->memory, .lengths = t[2]->memory, .o = t[3]->memory
    };
    desc.kv = 700; // two splits
    desc.d = 192;
    desc.dv = 128;
    assert_ok(ckl_attention_decode(device, &desc, &args, stream));
    read_tensor(t[3]);
}

static double latent_length(int64_t b)
{
    return b ? 70 : 600;
}

/* What lies behind a sequence's last key may be no number, and the batch has no part in a sequence's result. */
TEST(latent_keys_past_the_last_one)
{
    const int64_t kv = 700, d = 192, of_o = 4 * 128;
    tensor_of_test q = make_random(CKL_F16, 2 * 4 * d, 1, 0, 1), k = make_random(CKL_F16, 2 * kv * d, 2, 0, 1),
                   length = make_integers(2, latent_length), alone = make_tensor(CKL_F16, of_o),
                   together = make_tensor(CKL_F16, 2 * of_o);
    decode_latent(1, (tensor_of_test *[]){ &q, &k, &length, &alone });
    for (int64_t i = 0; i < 2 * kv * d; i++)
        if (i / d % kv >= latent_length(i / d / kv))
            k.value[i] = NAN;
    write_tensor(&k);
    decode_latent(2, (tensor_of_test *[]){ &q, &k, &length, &together });
    for (int64_t i = 0; i < 2 * of_o; i++)
        assert_true(i < of_o ? together.value[i] == alone.value[i] : isfinite(together.value[i]));
    free_tensors();
}

/* What is appended to a cache in its own memory is there for the next call, and all else stays. */
TEST(append_in_place)
{
    const int64_t of_q = HEADS * D, of_new = KV_HEADS * D, of_cache = (int64_t)KV_HEADS * KV * D;
    tensor_of_test q = make_random(CKL_BF16, of_q, 1, 0, 1), k = make_random(CKL_BF16, of_cache, 2, 0, 1),
                   v = make_random(CKL_BF16, of_cache, 3, 0, 1), k_new = make_random(CKL_BF16, of_new, 4, 0, 1),
                   v_new = make_random(CKL_BF16, of_new, 5, 0, 1), length = make_integers(1, length_of),
                   appended = make_tensor(CKL_BF16, of_q), o = make_tensor(CKL_BF16, of_q),
                   before = make_tensor(CKL_BF16, of_cache);
    ckl_attention_decode_desc desc = { .dtype = CKL_BF16, .batch = 1, .heads = HEADS, .kv_heads = KV_HEADS, .q = 1 };
    ckl_attention_decode_args args = { .q = q.memory, .k = k.memory, .v = v.memory, .lengths = length.memory };
    desc.kv = KV;
    desc.d = D;
    desc.append = true;
    args.k_new = k_new.memory;
    args.v_new = v_new.memory;
    args.k_into = k.memory;
    args.v_into = v.memory;
    args.o = appended.memory;
    memcpy(before.value, k.value, (size_t)of_cache * sizeof *before.value);
    assert_ok(ckl_attention_decode(device, &desc, &args, stream));
    desc.append = false;
    args.k_new = args.v_new = NULL;
    args.k_into = args.v_into = NULL;
    args.o = o.memory;
    assert_ok(ckl_attention_decode(device, &desc, &args, stream));
    read_tensor(&appended);
    read_tensor(&o);
    read_tensor(&k);
    for (int64_t i = 0; i < of_q; i++)
        assert_true(appended.value[i] == o.value[i]);
    for (int64_t i = 0; i < of_cache; i++) {
        const bool is_new = i / D % KV == lengths[0] - 1;
        assert_true(k.value[i] == (is_new ? k_new.value[i / D / KV * D + i % D] : before.value[i]));
    }
    free_tensors();
}

static double zero_of(int64_t i)
{
    return 0;
}

static double all_of(int64_t i)
{
    return 680;
}

/* CTAs count at the nodes of a tree of splits, and leave all counters at 0 for the next run. */
TEST(counters_of_latent_splits)
{
    enum { ROWS = 4, WIDTH = 136, VALUES = 128, ALL = 680, SPLIT = 64, COUNTERS = ALL / SPLIT + 2 };
    ckl_attention_decode_desc desc = { .dtype = CKL_F16, .batch = 1, .heads = ROWS, .kv_heads = 1, .q = 1, .kv = ALL };
    desc.d = WIDTH;
    desc.dv = VALUES;
    desc.latent = true;
    const operator_info *op = &attention_decode_operator;
    ckl_plan *plan;
    assert_ok(plan_build(device, op, &desc, "latent_few split=64", &plan));
    tensor_of_test all[] = { make_random(CKL_F16, ROWS * WIDTH, 1, 0, 1), make_random(CKL_F16, ALL * WIDTH, 2, 0, 1),
                             make_integers(1, all_of), make_tensor(CKL_F16, ROWS * VALUES),
                             make_integers(ckl_plan_workspace_bytes(plan) / 4, zero_of) };
    const ckl_attention_decode_args args = {
        .q = all[0].memory, .k = all[1].memory, .lengths = all[2].memory, .o = all[3].memory, .workspace = all[4].memory
    };
    assert_ok(plan_run(plan, op, &args, stream));
    read_tensor(&all[4]);
    for (int i = 0; i < COUNTERS; i++)
        assert_true(all[4].value[i] == 0);
    ckl_plan_free(plan);
    free_tensors();
}

RUN_TESTS(open_device, close_device)
