/* number.h - numbers as problem lines write them: "12", "2^20+3", "2^31-1", "0.5", "2^-30". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Reads a sum of powers and moves *at past it. False, *at unchanged: there is none, or it needs more than 64 bits. */
bool number_integer(const char **at, int64_t *value);

/* The same for a float or a power; "inf" and "nan" are numbers, 1e400 is not. */
bool number_float(const char **at, float *value);
