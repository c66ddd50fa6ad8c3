/*
 * attention_score.h - scores of attention by a function of one's own, in C: biases by distance, documents, prefixes,
 * anything.
 *
 * Kernels are described while a plan is made, and there the library calls these functions, with values of the kernel
 * (values.h): no compiler is asked, a plan takes milliseconds as any other. A score has a name, by which descs, problem
 * lines and plans know it.
 *
 *     static ckl_val shifted(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
 *     {
 *         return ckl_val_sub(s, ckl_val_mul(ckl_val_to_f32(ckl_val_sub(i, j)), ckl_val_f32(*(float *)user)));
 *     }
 *     static float slope = 0.1f;
 *     ckl_attention_score score = {
 *         .name = "shifted", .score = shifted, .slope = ckl_attention_slope_one, .user = &slope
 *     };
 *     ckl_attention_score_add(&score);
 *     ckl_attention_desc desc = { ..., .score = "shifted" };
 *
 * The library has three by itself: "alibi", "documents" and "prefix", written with this header alone in
 * attention_examples.c, and documented at its end.
 */
#pragma once

#include "../values.h"

CKL_BEGIN_DECLS

enum { CKL_ATTENTION_INPUTS = 2 };

/*
 * What becomes of the score s of query i and key j, f32: scale * q . k, after a soft cap and a mask. -inf hides the
 * key. batch, head, i and j are i32; tokens count from the start of their sequence. Called for tokens past the last
 * ones, too: what it gives there is not used.
 */
typedef ckl_val (*ckl_attention_function)(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user);

/* A block of scores: queries i_first to i_last and keys j_first to j_last, i32. */
typedef struct ckl_attention_block {
    ckl_val batch, head, i_first, i_last, j_first, j_last;
} ckl_attention_block;

/* What a kernel does with a block: i32 values that ckl_attention_score.block gives. */
enum {
    CKL_ATTENTION_SKIP,  // score would give -inf everywhere: nothing is loaded or computed
    CKL_ATTENTION_SCORE, // score is called
    CKL_ATTENTION_PLAIN, // score would give s everywhere: it is not called
};

/* Numbers in device memory, [batch, columns], that every call passes. */
typedef struct ckl_attention_input {
    ckl_dtype dtype; // CKL_I32 or CKL_F32; 0: there is none
    enum { CKL_ATTENTION_ONE, CKL_ATTENTION_HEADS, CKL_ATTENTION_QUERIES, CKL_ATTENTION_KEYS } columns; // of a batch
} ckl_attention_input;

typedef struct ckl_attention_score {
    const char *name; // of letters, digits and _; not "none"
    ckl_attention_function score;
    ckl_attention_function slope;                                   // the derivative of score by s; NULL: no gradients
    ckl_val (*block)(const ckl_attention_block *block, void *user); // NULL: score is called everywhere
    void *user;                                                     // what the functions get
    ckl_attention_input inputs[CKL_ATTENTION_INPUTS];               // their pointers are attention's args.inputs
} ckl_attention_score;

/*
 * Makes a score known to the process. What it points to must stay, and stay as it is, as long as plans are made:
 * kernels are kept by the name. The same again is CKL_OK; another one of a known name is CKL_INVALID. Any thread may
 * call it.
 */
CKL_MUST_USE CKL_API ckl_status ckl_attention_score_add(const ckl_attention_score *score);

/* The slope of scores that add to s, or hide keys: 1. Kernels know it and multiply nothing. */
CKL_API ckl_val ckl_attention_slope_one(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user);

/*
 * For score, slope and block: the number of input `which` of a batch in a column; columns past the last one are that.
 * Ragged problems have no inputs of queries or keys.
 */
CKL_API ckl_val ckl_attention_read(int which, ckl_val batch, ckl_val column);

/* The number of heads of q, i32. */
CKL_API ckl_val ckl_attention_heads(void);

/*
 * The library's own:
 *     alibi      s + slope * (j - i) with the slope 2^(-8 (h+1) / heads) of head h: Press et al., arXiv:2108.12409
 *     documents  keys of other documents are hidden: inputs[0] has the document of every query, inputs[1] of every key,
 *                i32, not falling; blocks of several documents without a common one are skipped
 *     prefix     all queries see the first inputs[0] keys of their batch, i32, and of the others those up to j <= i
 */

CKL_END_DECLS
