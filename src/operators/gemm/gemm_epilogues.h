/* gemm_epilogues.h - the custom epilogues known by name: the library's own, and those that the process added. */
#pragma once

#include "base/status.h"
#include "cutekernellib/operators/gemm_epilogue.h"

extern const ckl_gemm_epilogue gemm_relu2, gemm_tril;

/* The epilogue of that name; NULL: there is none. */
const ckl_gemm_epilogue *gemm_epilogue_find(const char *name);

/*
 * *name becomes the epilogue's own text, which stays, or NULL for none. An unknown one is CKL_INVALID, said of operator
 * `op`.
 */
ckl_status gemm_epilogue_check(const char *op, const char **name);
