/*
 * score.c - attention with a score of one's own: a function in C, called while the kernel is described, so there is
 * nothing to compile with. Here a query sees the keys near it alone; blocks of keys that are far from all queries of a
 * tile are skipped.
 */
#include <cutekernellib/cutekernellib.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 512, HEAD = 64, NEAR = 20 };

static ckl_val near_keys(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    (void)batch, (void)head, (void)user;
    ckl_val distance = ckl_val_abs(ckl_val_sub(i, j));
    return ckl_val_select(ckl_val_le(distance, ckl_val_i32(NEAR)), s, ckl_val_f32(-1.0 / 0.0));
}

static ckl_val near_blocks(const ckl_attention_block *b, void *user)
{
    (void)user;
    ckl_val before = ckl_val_lt(ckl_val_add(b->j_last, ckl_val_i32(NEAR)), b->i_first);
    ckl_val behind = ckl_val_lt(ckl_val_add(b->i_last, ckl_val_i32(NEAR)), b->j_first);
    return ckl_val_select(ckl_val_or(before, behind), ckl_val_i32(CKL_ATTENTION_SKIP),
                          ckl_val_i32(CKL_ATTENTION_SCORE));
}

static const ckl_attention_score score = {
    .name = "near", .score = near_keys, .slope = ckl_attention_slope_one, .block = near_blocks
};

static ckl_status attend(ckl_device *device, const uint16_t *qkv, uint16_t *o)
{
    ckl_attention_desc desc = { .dtype = CKL_F16, .batch = 1, .heads = 1, .q = TOKENS, .kv = TOKENS, .d = HEAD };
    void *memory;
    desc.score = score.name;
    ckl_status status = ckl_malloc(device, 4 * TOKENS * HEAD * sizeof *o, &memory);
    uint16_t *q = memory, *k = q + TOKENS * HEAD, *v = k + TOKENS * HEAD, *out = v + TOKENS * HEAD;
    if (!status)
        status = ckl_copy_in(device, memory, qkv, 3 * TOKENS * HEAD * sizeof *qkv, NULL);
    if (!status)
        status = ckl_attention(device, &desc, &(ckl_attention_args){ .q = q, .k = k, .v = v, .o = out }, NULL);
    if (!status)
        status = ckl_copy_out(device, o, out, TOKENS * HEAD * sizeof *o, NULL);
    ckl_free(device, memory);
    return status;
}

/* All scores are 0, and the values of token i are 1 where i is even, else 0: o is the share of even tokens it sees. */
int main(void)
{
    static uint16_t qkv[3 * TOKENS * HEAD], o[TOKENS * HEAD];
    for (int i = 0; i < TOKENS * HEAD; i++)
        qkv[2 * TOKENS * HEAD + i] = i / HEAD % 2 ? 0 : 0x3c00; // f16's 1
    ckl_device *device;
    if (ckl_attention_score_add(&score) || ckl_device_open(NULL, &device) || attend(device, qkv, o)) {
        fprintf(stderr, "%s\n", ckl_error());
        return 1;
    }
    int wrong = abs(o[0] - 0x3831) > 1;                // 11 of the 21 keys that it sees are even
    wrong += abs(o[100 * HEAD] - 0x3819) > 1;          // 21 of 41
    wrong += abs(o[(TOKENS - 1) * HEAD] - 0x379e) > 1; // 10 of 21
    printf("%s: %s\n", ckl_device_properties(device)->name, wrong ? "wrong" : "every query sees the keys near it");
    ckl_device_close(device);
    return wrong != 0;
}
