/* reduce_folds.c - folds by their names. */
#include "operators/reduce/reduce_folds.h"

#include "plan/named.h"

static ckl_reduce_fold added[NAMED_MAX];
static const void *const own[] = { &reduce_maxabs, &reduce_rms, NULL };
static named_list folds = { "reduce_fold_add", "fold", sizeof(ckl_reduce_fold), own, added, 0 };

const ckl_reduce_fold *reduce_fold_find(const char *name)
{
    return named_find(&folds, name);
}

ckl_status ckl_reduce_fold_add(const ckl_reduce_fold *fold)
{
    if (!fold || !fold->name || !fold->combine)
        FAIL(CKL_INVALID, "reduce_fold_add: a fold wants a name and a function that combines");
    return named_add(&folds, fold);
}
