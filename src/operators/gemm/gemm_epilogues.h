/* gemm_epilogues.h - the custom epilogues known by name: the library's own, and those that the process added. */
#ifndef CKL_GEMM_EPILOGUES_H
#define CKL_GEMM_EPILOGUES_H

#include "cutekernellib/operators/gemm_epilogue.h"

extern const ckl_gemm_epilogue gemm_relu2, gemm_tril;

/* The epilogue of that name; NULL: there is none. */
const ckl_gemm_epilogue *gemm_epilogue_find(const char *name);

#endif
