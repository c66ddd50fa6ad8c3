/* values.h - facts about values that the public functions (values.c) make use of. */
#pragma once

#include "ir/build.h"

/*
 * v is base + c, i32: differences with other numbers and conversions to f32 are then those of base, which many values
 * may share, plus a constant. As floats they are exact up to 2^24, else within 2^-23. Of this thread, until
 * values_forget().
 */
void values_know(val v, val base, int c);

void values_forget(void);
