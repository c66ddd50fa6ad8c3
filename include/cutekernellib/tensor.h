/* tensor.h - element types. Memory itself is passed as plain device pointers. */
#pragma once

#include "base.h"

CKL_BEGIN_DECLS

/* Element types of memory. 0 in an optional field of a desc means its default, which the desc states. */
typedef enum ckl_dtype {
    CKL_DTYPE_DEFAULT,
    CKL_F64,
    CKL_F32,
    CKL_F16,
    CKL_BF16,
    CKL_E4M3,
    CKL_E5M2,
    CKL_I64,
    CKL_I32,
    CKL_I16,
    CKL_I8,
    CKL_U8,
    CKL_BOOL,
    CKL_DTYPE_COUNT
} ckl_dtype;

/* Order of the axes of a batch of images, outermost first. */
typedef enum ckl_image_layout { CKL_IMAGE_NCHW, CKL_IMAGE_NHWC } ckl_image_layout;

/* The name used in problem lines, e.g. "bf16"; "default" for CKL_DTYPE_DEFAULT. Never NULL. */
CKL_API const char *ckl_dtype_name(ckl_dtype dtype);

/* Bytes of one element; 0 for CKL_DTYPE_DEFAULT. */
CKL_API size_t ckl_dtype_bytes(ckl_dtype dtype);

CKL_END_DECLS
