/* reduce_folds.h - the folds known by name: the library's own, and those that the process added. */
#pragma once

#include "base/status.h"
#include "cutekernellib/operators/reduce_fold.h"

extern const ckl_reduce_fold reduce_maxabs, reduce_rms;

/* The fold of that name; NULL: there is none. */
const ckl_reduce_fold *reduce_fold_find(const char *name);
