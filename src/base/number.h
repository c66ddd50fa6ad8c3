/* number.h - numbers as problem lines write them: "12", "2^20+3", "2^31-1", "0.5", "2^-30". */
#ifndef CKL_BASE_NUMBER_H
#define CKL_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a sum of powers at *at, which moves past it. False, and *at as it was, where there is none or it leaves 64 bits. */
bool number_integer(const char **at, int64_t *value);

/* The same of a float, or a power of one; "inf" and "nan" are numbers, 1e400 is none. */
bool number_float(const char **at, float *value);

#endif
