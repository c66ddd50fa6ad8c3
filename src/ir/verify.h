/* verify.h - the parts of the verifier. Each returns the first fault it finds as a CKL_INTERNAL sentence. */
#pragma once

#include "ir/ir.h"

enum { BLOCKS_MAX = 256 }; // IFs and LOOPs inside of each other: verify.c refuses more

/* Writes "kernel NAME: FILE:LINE: OP: ..."; returns CKL_INTERNAL. */
ckl_status verify_fail(const ir_kernel *kernel, const ir_inst *inst, const char *format, ...) CKL_PRINTF(3, 4);

#define FAULT(kernel, inst, ...) return verify_fail((kernel), (inst), __VA_ARGS__)

/* Operands and attributes of one instruction. */
ckl_status verify_inst(const ir_kernel *kernel, const ir_inst *inst);

/* Registers along the control flow: read before written, touched while a WGMMA uses them. The nesting must be right. */
ckl_status verify_registers(const ir_kernel *kernel);

/* Converged instructions under predicates at which their threads diverge. The nesting must be right. */
ckl_status verify_convergence(const ir_kernel *kernel);
