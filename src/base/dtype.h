/* dtype.h - element types on the host: names, sizes, and conversion of the 16-bit and 8-bit floats. */
#ifndef CKL_BASE_DTYPE_H
#define CKL_BASE_DTYPE_H

#include "base/status.h"
#include "cutekernellib/tensor.h"

/* Integers of any width and bool are false. */
bool dtype_is_float(ckl_dtype dtype);

/* The dtype of that name; false if there is none. */
bool dtype_find(const char *name, ckl_dtype *dtype);

/* Round to nearest even; overflow gives infinity, and a NaN stays one. */
uint16_t f16_from_f32(float x);
uint16_t bf16_from_f32(float x);
float f32_from_f16(uint16_t bits);
float f32_from_bf16(uint16_t bits);

/* Reads or writes element index of an array of a dtype, or reads `count` from `first` on. Writing rounds once, to nearest even, and integers saturate. */
double dtype_read(ckl_dtype dtype, const void *array, int64_t index);
void dtype_read_run(ckl_dtype dtype, const void *array, int64_t first, int64_t count, double *out);
void dtype_write(ckl_dtype dtype, void *array, int64_t index, double value);

/* The distance between 1 and the next larger number; 0 for integers. */
double dtype_epsilon(ckl_dtype dtype);

/* The largest number of a type. */
double dtype_max(ckl_dtype dtype);

/* The smallest positive subnormal number; 0 for integers. */
double dtype_tiny(ckl_dtype dtype);

#endif
