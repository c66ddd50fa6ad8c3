/* attention_decode_e4m3.h - e4m3 from and to f32 by integer arithmetic, for GPUs without such instructions. */
#ifndef CKL_ATTENTION_DECODE_E4M3_H
#define CKL_ATTENTION_DECODE_E4M3_H

#include "ir/ir.h"

/* byte: u8. A NaN gives 480. */
val attention_f32_of_e4m3(val byte);

/* The code, u32: rounded to nearest even, saturated at 448; NaN stays NaN. */
val attention_e4m3_of_f32(val x);

#endif
