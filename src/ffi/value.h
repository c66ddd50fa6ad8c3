/* value.h - arguments and results of the exported functions. Sentences name the function and the argument. */
#pragma once

#include "base/text.h"
#include "cutekernellib/tensor.h"
#include "ffi/abi.h"

/* Characters, or bytes, that an argument holds; not terminated. False if it holds none. */
bool value_text(const TVMFFIAny *value, TVMFFIByteArray *out);
bool value_bytes(const TVMFFIAny *value, TVMFFIByteArray *out);

/* The tensor of an argument; NULL if it is none. */
const DLTensor *value_tensor(const TVMFFIAny *value);

/* A number of any kind; false if it is none. */
bool value_number(const TVMFFIAny *value, double *out);

/* The element type; CKL_DTYPE_DEFAULT if the library has none of that kind. */
ckl_dtype value_dtype(DLDataType type);

/* Bytes from the first to past the last element; -1 if strides are negative, INT64_MAX where 64 bits do not suffice. */
int64_t value_span(const DLTensor *tensor);

/* A result: the caller's copy. */
ckl_status value_give_text(const text *from, TVMFFIAny *result);
ckl_status value_give_bytes(const void *bytes, size_t size, TVMFFIAny *result);

/* What an exported function returns: 0, or -1 after the sentence has become an error of a fitting Python type. */
int value_status(ckl_status status);
