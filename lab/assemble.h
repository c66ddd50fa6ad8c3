/* assemble.h - NVIDIA's ptxas, where it is installed, checks the PTX that we print. */
#pragma once

#include "base/text.h"
#include "ir/ir.h"

typedef struct assembled {
    bool good;       // assembled without spills, stack frame and warnings of serialised wgmma
    bool spills;     // and nothing else is wrong
    bool serialised; // wgmma, and nothing else is known
    int registers;   // of a thread
    int spill_bytes; // stores and loads
    int stack_bytes;
    char complaint[512]; // why not
} assembled;

/* The path of ptxas: on PATH or in the CUDA toolkit's usual place; NULL if there is none. */
const char *assemble_tool(void);

/* The line by which releases of ptxas differ; "" if there is none. */
enum { ASSEMBLE_RELEASE_BYTES = 128 };
void assemble_release(char release[ASSEMBLE_RELEASE_BYTES]);

/* Assembles PTX for an architecture, "sm_90a". CKL_OK with result->good false where ptxas finds fault. */
ckl_status assemble_ptx(const text *ptx, const char *arch, assembled *result);

/* The same of a kernel, which it prints. */
ckl_status assemble_kernel(const ir_kernel *kernel, assembled *result);
