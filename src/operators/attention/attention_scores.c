/* attention_scores.c - custom scores by their names. */
#include "operators/attention/attention_scores.h"

#include <ctype.h>
#include <pthread.h>
#include <string.h>

#include "base/math.h"
#include "base/status.h"

enum { SCORES_MAX = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ckl_attention_score known[SCORES_MAX];
static int count;

/* The library's own, or one that was added. Holds the lock. */
static const ckl_attention_score *find(const char *name)
{
    static const ckl_attention_score *const own[] = { &attention_alibi, &attention_documents, &attention_prefix };
    for (int i = 0; i < COUNT_OF(own); i++)
        if (strcmp(own[i]->name, name) == 0)
            return own[i];
    for (int i = 0; i < count; i++)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

const ckl_attention_score *attention_score_find(const char *name)
{
    pthread_mutex_lock(&lock);
    const ckl_attention_score *score = find(name);
    pthread_mutex_unlock(&lock);
    return score;
}

static bool is_same(const ckl_attention_score *a, const ckl_attention_score *b)
{
    bool same = a->score == b->score && a->slope == b->slope && a->block == b->block && a->user == b->user;
    for (int i = 0; i < CKL_ATTENTION_INPUTS; i++)
        same = same && a->inputs[i].dtype == b->inputs[i].dtype && a->inputs[i].columns == b->inputs[i].columns;
    return same;
}

static ckl_status check(const ckl_attention_score *score)
{
    if (!score || !score->name || !score->score)
        FAIL(CKL_INVALID, "attention_score_add: a score wants a name and a function");
    bool is_word = *score->name && strcmp(score->name, "none") != 0;
    for (const char *c = score->name; *c; c++)
        is_word = is_word && (isalnum((unsigned char)*c) || *c == '_');
    if (!is_word)
        FAIL(CKL_INVALID, "attention_score_add: the name '%s' is none, or not of letters, digits and _", score->name);
    for (int i = 0; i < CKL_ATTENTION_INPUTS; i++)
        if (score->inputs[i].dtype && score->inputs[i].dtype != CKL_I32 && score->inputs[i].dtype != CKL_F32)
            FAIL(CKL_INVALID, "attention_score_add: inputs[%d] of '%s' are %s, not i32 or f32", i, score->name,
                 ckl_dtype_name(score->inputs[i].dtype));
    return CKL_OK;
}

ckl_status ckl_attention_score_add(const ckl_attention_score *score)
{
    TRY(check(score));
    pthread_mutex_lock(&lock);
    const ckl_attention_score *there = find(score->name);
    const bool is_full = !there && count == SCORES_MAX;
    if (!there && !is_full)
        known[count++] = *score;
    pthread_mutex_unlock(&lock);
    if (is_full)
        FAIL(CKL_UNSUPPORTED, "attention_score_add: there are %d scores already", SCORES_MAX);
    if (there && !is_same(there, score))
        FAIL(CKL_INVALID, "attention_score_add: there is another score '%s'", score->name);
    return CKL_OK;
}

bool attention_score_bends(const char *name)
{
    const ckl_attention_score *score = name ? attention_score_find(name) : NULL;
    return score && score->slope != ckl_attention_slope_one;
}

bool attention_score_has_blocks(const char *name)
{
    const ckl_attention_score *score = name ? attention_score_find(name) : NULL;
    return score && score->block;
}
