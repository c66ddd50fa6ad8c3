/* build_core.h - what the files of the builder share. */
#ifndef CKL_IR_BUILD_CORE_H
#define CKL_IR_BUILD_CORE_H

#include "ir/build.h"

/* Appends an instruction with one result of its own, or with none. */
val build_value(ir_inst inst, ir_type type, int in_count, const val *in);
void build_effect(ir_inst inst, int in_count, const val *in);

/* Appends an integer division or remainder as cheaper instructions (divide.c); false: there are none. */
bool build_division(ir_op op, val x, val y, val *out);

#endif
