/* unit_attention.c - attention beside the values of single calls: its gradients, custom scores, costs. */
#include <string.h>

#include "accuracy.h"
#include "cutekernellib/operators/attention.h"
#include "lab/check.h"
#include "operators/operators.h"

/* Gradients: of the sum of weights[i] * o[i], by differences in double. */

enum { QUERIES = 5, KEYS = 9, HEAD = 32 };

typedef struct small_problem {
    tensor_of_test q, k, v, o, lse, dout, dq, dk, dv;
    const char *score;
} small_problem;

/* A custom score with a slope of its own: a soft cap, and a bias by the key. */

static float cap = 1.5f;

static ckl_val capped(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    ckl_val most = ckl_val_f32((double)*(const float *)user);
    return ckl_val_fma(ckl_val_to_f32(j), ckl_val_f32(-0.25), ckl_val_mul(ckl_val_tanh(ckl_val_div(s, most)), most));
}

static ckl_val capped_slope(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    ckl_val t = ckl_val_tanh(ckl_val_div(s, ckl_val_f32((double)*(const float *)user)));
    return ckl_val_fma(ckl_val_neg(t), t, ckl_val_f32(1));
}

static const ckl_attention_score capped_score = {
    .name = "capped", .score = capped, .slope = capped_slope, .user = &cap
};

static double score_of(const small_problem *p, double s, int j)
{
    const double most = (double)cap;
    return p->score ? most * tanh(s / most) - 0.25 * j : s;
}

static double loss(const small_problem *p)
{
    double sum = 0;
    for (int i = 0; i < QUERIES; i++) {
        double weight[KEYS], total = 0;
        for (int j = 0; j <= i + KEYS - QUERIES; j++) { // causal
            double score = 0;
            for (int l = 0; l < HEAD; l++)
                score += p->q.value[i * HEAD + l] * p->k.value[j * HEAD + l];
            total += weight[j] = exp(score_of(p, score / sqrt(HEAD), j));
        }
        for (int j = 0; j <= i + KEYS - QUERIES; j++)
            for (int l = 0; l < HEAD; l++)
                sum += weight[j] / total * p->v.value[j * HEAD + l] * p->dout.value[i * HEAD + l];
    }
    return sum;
}

static void assert_slopes(small_problem *p, tensor_of_test *x, tensor_of_test *dx)
{
    const double h = 1e-5;
    read_tensor(dx);
    for (int64_t i = 0; i < x->count; i++) {
        const double at = x->value[i];
        x->value[i] = at + h;
        double above = loss(p);
        x->value[i] = at - h;
        double below = loss(p);
        x->value[i] = at;
        assert_near("gradient", CKL_F16, dx->value[i], (above - below) / (2 * h), 4e-3);
    }
}

static void check_gradients(const char *score)
{
    const int64_t of_q = QUERIES * HEAD, of_k = KEYS * HEAD;
    small_problem p = { make_random(CKL_F16, of_q, 1, 0, 1), make_random(CKL_F16, of_k, 2, 0, 1),
                        make_random(CKL_F16, of_k, 3, 0, 1), make_tensor(CKL_F16, of_q),
                        make_tensor(CKL_F32, QUERIES),       make_random(CKL_F16, of_q, 4, 0, 1),
                        make_tensor(CKL_F16, of_q),          make_tensor(CKL_F16, of_k),
                        make_tensor(CKL_F16, of_k),          score };
    ckl_attention_desc desc = {
        .dtype = CKL_F16, .batch = 1, .heads = 1, .q = QUERIES, .kv = KEYS, .d = HEAD, .lse = true
    };
    desc.causal = true;
    desc.score = score;
    ckl_attention_args args = {
        .q = p.q.memory, .k = p.k.memory, .v = p.v.memory, .o = p.o.memory, .lse = p.lse.memory
    };
    assert_ok(ckl_attention(device, &desc, &args, stream));
    desc.direction = CKL_DIRECTION_BACKWARD;
    desc.lse = false;
    args.dout = p.dout.memory;
    args.dq = p.dq.memory;
    args.dk = p.dk.memory;
    args.dv = p.dv.memory;
    assert_ok(ckl_attention(device, &desc, &args, stream));
    assert_slopes(&p, &p.q, &p.dq);
    assert_slopes(&p, &p.k, &p.dk);
    assert_slopes(&p, &p.v, &p.dv);
    free_tensors();
}

TEST(gradients)
{
    check_gradients(NULL);
}

/* The mask comes between a soft cap and a score: its gradient wants the slope of the score alone. */
static void check_mask_under_cap(void)
{
    const ckl_attention_desc desc = { .direction = CKL_DIRECTION_BACKWARD,
                                      .dtype = CKL_F16,
                                      .batch = 1,
                                      .heads = 1,
                                      .q = QUERIES,
                                      .kv = KEYS,
                                      .d = HEAD,
                                      .softcap = 2,
                                      .mask = CKL_ATTENTION_MASK_ADD,
                                      .dmask = true,
                                      .score = "capped" };
    ckl_plan *plan = NULL;
    assert_fails(plan_build(device, &attention_operator, &desc, "sm90_backward", &plan), CKL_UNSUPPORTED,
                 "dmask=1 and softcap=2 go without score=capped, whose slope is not 1");
}

TEST(custom_score)
{
    assert_ok(ckl_attention_score_add(&capped_score));
    check_gradients("capped");
    check_mask_under_cap();
}

/* Lines along the keys whose slopes differ: those of odd keys rise. */
static ckl_val two_slopes(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    ckl_val odd = ckl_val_to_f32(ckl_val_rem(j, ckl_val_i32(2)));
    return ckl_val_fma(s, ckl_val_to_f32(ckl_attention_heads()), ckl_val_fma(odd, ckl_val_f32(3), ckl_val_to_f32(i)));
}

/* Queries are zeros, so the slopes alone weigh the values: of several blocks, whose maxima are those of the first. */
TEST(lines_that_are_not_parallel)
{
    enum { MANY = 600 };
    const ckl_attention_score score = { .name = "two_slopes", .score = two_slopes };
    tensor_of_test q = make_random(CKL_F16, QUERIES * HEAD, 1, 0, 0), k = make_random(CKL_F16, MANY * HEAD, 2, 0, 1),
                   v = make_random(CKL_F16, MANY * HEAD, 3, 0, 1), o = make_tensor(CKL_F16, QUERIES * HEAD);
    ckl_attention_desc desc = { .dtype = CKL_F16, .batch = 1, .heads = 1, .q = QUERIES, .kv = MANY, .d = HEAD };
    const ckl_attention_args args = { .q = q.memory, .k = k.memory, .v = v.memory, .o = o.memory };
    desc.score = score.name;
    assert_ok(ckl_attention_score_add(&score));
    assert_ok(ckl_attention(device, &desc, &args, stream));
    read_tensor(&o);
    for (int l = 0; l < HEAD; l++) {
        double sum = 0;
        for (int j = 0; j < MANY; j++)
            sum += (j % 2 ? exp(3) : 1) * v.value[j * HEAD + l];
        assert_near("o", CKL_F16, o.value[l], sum / (MANY / 2 * (exp(3) + 1)), 1e-3);
    }
    free_tensors();
}

/* Names are what kernels are kept by, so a name stands for one score. */
TEST(names_of_scores)
{
    ckl_attention_score other = capped_score;
    other.name = "other";
    other.slope = NULL;
    assert_ok(ckl_attention_score_add(&other));
    assert_ok(ckl_attention_score_add(&other));
    const ckl_attention_desc desc = { .direction = CKL_DIRECTION_BACKWARD,
                                      .dtype = CKL_F16,
                                      .batch = 1,
                                      .heads = 1,
                                      .q = 1,
                                      .kv = 1,
                                      .d = 32,
                                      .score = "other" };
    ckl_plan *plan;
    assert_fails(ckl_attention_plan(device, &desc, &plan), CKL_INVALID,
                 "attention: score=other has no slope, which its gradients want");
    other.user = NULL;
    assert_fails(ckl_attention_score_add(&other), CKL_INVALID, "attention_score_add: there is another score 'other'");
    other.name = "none";
    assert_int_equal(ckl_attention_score_add(&other), CKL_INVALID);
    other.name = "a b";
    assert_int_equal(ckl_attention_score_add(&other), CKL_INVALID);
    other.name = NULL;
    assert_int_equal(ckl_attention_score_add(&other), CKL_INVALID);
}

/* Ragged sequences number no queries and keys: a score whose first or last input has a row for each is refused. */
TEST(inputs_of_ragged_scores)
{
    static const char *const names[CKL_ATTENTION_INPUTS] = { "first_input", "last_input" };
    for (int i = 0; i < CKL_ATTENTION_INPUTS; i++) {
        ckl_attention_score score = { .name = names[i], .score = capped_score.score };
        score.inputs[i] = (ckl_attention_input){ .dtype = CKL_F32, .columns = CKL_ATTENTION_QUERIES };
        assert_ok(ckl_attention_score_add(&score));
        const ckl_attention_desc desc = { .dtype = CKL_F16,
                                          .batch = 2,
                                          .heads = 1,
                                          .q = 1,
                                          .kv = 1,
                                          .q_total = 2,
                                          .kv_total = 2,
                                          .d = 32,
                                          .ragged = true,
                                          .score = names[i] };
        ckl_plan *plan;
        assert_fails(ckl_attention_plan(device, &desc, &plan), CKL_INVALID,
                     "has inputs of queries or keys, ragged=1 is without");
    }
}

/* What a problem of so many tokens is believed to take: twice the keys twice the time, half of them seen half of it. */
static plan_cost cost_of(const ckl_attention_desc *desc)
{
    arena memory = { 0 };
    const void *checked;
    const implementation *impl;
    void *config;
    assert_ok(plan_desc(&attention_operator, desc, &memory, &checked));
    assert_ok(plan_choose(ckl_device_properties(device), &attention_operator, desc, NULL, &memory, &impl, &config));
    plan_cost cost = impl->cost(checked, ckl_device_properties(device), config);
    arena_clear(&memory);
    return cost;
}

TEST(costs)
{
    ckl_attention_desc desc = { .dtype = CKL_F16, .batch = 4, .heads = 16, .q = 4096, .kv = 4096, .d = 128 };
    const plan_cost full = cost_of(&desc);
    assert_string_equal(full.bound, "tensor cores");
    desc.kv = 8192;
    assert_in_range((int)(100 * cost_of(&desc).us / full.us), 190, 210);
    desc.kv = 4096;
    desc.causal = true;
    const double causal = cost_of(&desc).us;
    assert_in_range((int)(100 * causal / full.us), 45, 60);
    desc.left = 512;
    assert_true(cost_of(&desc).us < causal / 2);
    desc.left = 0;
    desc.direction = CKL_DIRECTION_BACKWARD;
    assert_in_range((int)(100 * cost_of(&desc).us / causal), 250, 400);
    desc = (ckl_attention_desc){ .dtype = CKL_F16, .batch = 4, .heads = 16, .q = 4096, .kv = 4096, .d = 64 };
    assert_string_equal(cost_of(&desc).bound, "exponentials");
    desc.q = 64;
    desc.d = 256;
    desc.heads = 132;
    desc.kv = 1 << 20;
    assert_string_equal(cost_of(&desc).bound, "memory");
}

static tensor_of_test make_constant(int64_t count, double x)
{
    tensor_of_test t = make_tensor(CKL_F16, count);
    for (int64_t i = 0; i < count; i++)
        t.value[i] = x;
    write_tensor(&t);
    return t;
}

/*
 * Scores of -512: a key past the last one, whose score is 0, would have a weight beyond f32. It must not reach dQ,
 * which is 0 where all keys are the same. Some of the last tile's 128 keys are none.
 */
TEST(keys_past_the_last_one)
{
    enum { TOKENS = 16, KEYS_OF_TWO_TILES = 130, WIDTH = 64 };
    const int64_t of_q = TOKENS * WIDTH, of_k = KEYS_OF_TWO_TILES * WIDTH;
    ckl_attention_desc desc = { .dtype = CKL_F16, .batch = 1, .heads = 1, .q = TOKENS, .kv = KEYS_OF_TWO_TILES };
    desc.d = WIDTH;
    desc.lse = true;
    tensor_of_test all[] = {
        make_constant(of_q, 8),     make_constant(of_k, -8),      make_random(CKL_F16, of_k, 3, 0, 1),
        make_tensor(CKL_F16, of_q), make_tensor(CKL_F32, TOKENS), make_random(CKL_F16, of_q, 4, 0, 1),
        make_tensor(CKL_F16, of_q), make_tensor(CKL_F16, of_k),   make_tensor(CKL_F16, of_k)
    };
    ckl_attention_args args = { .q = all[0].memory, .k = all[1].memory, .v = all[2].memory, .o = all[3].memory };
    args.lse = all[4].memory;
    assert_ok(ckl_attention(device, &desc, &args, stream));
    desc.direction = CKL_DIRECTION_BACKWARD;
    desc.lse = false;
    args.dout = all[5].memory;
    args.dq = all[6].memory;
    args.dk = all[7].memory;
    args.dv = all[8].memory;
    const operator_info *op = &attention_operator;
    ckl_plan *plan;
    assert_ok(plan_build(device, op, &desc, "sm90_backward consumers=2 block=32 stages=2", &plan));
    assert_ok(plan_run(plan, op, &args, stream));
    read_tensor(&all[6]);
    for (int64_t i = 0; i < of_q; i++)
        assert_true(fabs(all[6].value[i]) < 0.05);
    ckl_plan_free(plan);
    free_tensors();
}

/* Sums of dQ take as much room as there are tokens, and a block for each sequence, however long the longest is. */
TEST(workspace_of_sequences)
{
    enum { SEQUENCES = 16, LONGEST = 1024, ALL = 2048, HEADS_OF_Q = 2, WIDTH = 64, BLOCK = 96 };
    ckl_attention_desc desc = {
        .dtype = CKL_F16, .batch = SEQUENCES, .heads = HEADS_OF_Q, .q = LONGEST, .kv = LONGEST
    };
    desc.d = WIDTH;
    desc.direction = CKL_DIRECTION_BACKWARD;
    desc.ragged = true;
    desc.q_total = desc.kv_total = ALL;
    ckl_plan *plan;
    assert_ok(ckl_attention_plan(device, &desc, &plan));
    const int64_t sums = 4 * HEADS_OF_Q * WIDTH * (ALL + SEQUENCES * BLOCK);
    const int64_t stats = 8 * HEADS_OF_Q * SEQUENCES * (LONGEST + BLOCK);
    assert_in_range(ckl_plan_workspace_bytes(plan), 4 * HEADS_OF_Q * WIDTH * ALL, sums + stats + 4096);
    ckl_plan_free(plan);
}

/* Sequences whose tokens lie 2^33 elements apart are too far for maps of windows, and others take them. */
TEST(tokens_of_sequences_apart)
{
    static const int64_t ld[] = { ((int64_t)1 << 33) - 8, (int64_t)1 << 33 };
    for (int backward = 0; backward < 2; backward++)
        for (int far = 0; far < COUNT_OF(ld); far++) {
            ckl_attention_desc desc = { .dtype = CKL_F16, .batch = 2, .heads = 1, .q = 512, .kv = 512, .d = 64 };
            desc.direction = backward ? CKL_DIRECTION_BACKWARD : CKL_DIRECTION_FORWARD;
            desc.ragged = true;
            desc.ldk = ld[far];
            ckl_plan *plan;
            assert_ok(ckl_attention_plan(device, &desc, &plan));
            assert_int_equal(strncmp(ckl_plan_text(plan), "attention sm90", 14) == 0, !far);
            ckl_plan_free(plan);
        }
}

/* What a causal problem of one sequence computes, pair by pair. */
static double flops_of(int64_t q, int64_t kv, int64_t heads, int64_t d)
{
    double pairs = 0;
    for (int64_t i = 0; i < q; i++)
        for (int64_t j = 0; j < kv; j++)
            pairs += j <= i + kv - q;
    return pairs * (double)(4 * heads * d);
}

/* Those of a ragged batch are counted by the lengths that it has, not as if all were the longest. */
TEST(flops_of_sequences)
{
    enum { STARTS_Q = 5, STARTS_KV };
    test_case c;
    check k;
    assert_ok(case_parse("attention ragged=1 batch=3 q=100 q_total=190 kv=90 heads=2 d=32 causal=1", &c));
    assert_ok(check_open(&c, device, stream, &k));
    double sum = 0;
    for (int64_t b = 0; b < 3; b++) {
        const int32_t *q = (const int32_t *)k.images.host[STARTS_Q] + b,
                      *kv = (const int32_t *)k.images.host[STARTS_KV] + b;
        sum += flops_of(q[1] - q[0], kv[1] - kv[0], 2, 32);
    }
    assert_true(check_flops(&k) == sum && sum > 0 && sum < 3 * flops_of(100, 90, 2, 32));
    check_close(&k);
    case_clear(&c);
}

RUN_TESTS(open_device, close_device)
