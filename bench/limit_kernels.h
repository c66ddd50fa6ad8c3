/* limit_kernels.h - kernels that do one thing only, for limits.c to time: read, write, or nothing. */
#pragma once

#include "ir/ir.h"

enum { LIMIT_READ_BYTES = 32 << 10, LIMIT_WRITE_BYTES = 16 << 10 }; // of memory, by a CTA

typedef enum limit_kernel { LIMIT_READ, LIMIT_WRITE, LIMIT_EMPTY } limit_kernel;

/* Their only parameter is the memory. The caller frees the kernel. */
ckl_status limit_kernel_describe(limit_kernel which, ir_target target, ir_kernel **kernel);
