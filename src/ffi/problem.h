/* problem.h - a problem as a caller through the FFI gives it: its line, or the bytes of the desc that it became. */
#pragma once

#include "ffi/value.h"
#include "plan/plan.h"

/* A desc of any operator. */
typedef union ffi_desc {
    max_align_t align;
    unsigned char bytes[PLAN_DESC_BYTES_MAX];
} ffi_desc;

/*
 * Bytes: op->desc_bytes of them. Text: a problem line without the operator's name, "outer=4 n=128"; then the desc is
 * checked, and impl= and config= are CKL_INVALID.
 */
CKL_MUST_USE ckl_status ffi_problem(const operator_info *op, const TVMFFIAny *value, ffi_desc *desc);
