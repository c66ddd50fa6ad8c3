/* ptx_write.h - fills in the templates of ptx_rows.h for one instruction at a time. */
#pragma once

#include "ir/ir.h"

/* Kinds of PTX registers. Register number i of the IR is "%" letter i; constants pass through "%c" letter 0, 1, ... */
typedef enum ptx_kind { PTX_KIND_PRED, PTX_KIND_16, PTX_KIND_32, PTX_KIND_64, PTX_KIND_F32, PTX_KIND_COUNT } ptx_kind;

typedef struct ptx_kind_info {
    const char *letter, *type; // "h", "b16"
} ptx_kind_info;

extern const ptx_kind_info ptx_kinds[PTX_KIND_COUNT];

enum { PTX_CONSTANTS_MAX = 16, PTX_SCRATCH = 2 }; // registers of a kind for one instruction: %c and %t

typedef struct ptx_writer {
    const ir_kernel *kernel;
    text *out;
    const ir_inst *inst;
    int index;                     // of inst
    const char *guard;             // "@%p3 " before every statement, or ""
    int constants[PTX_KIND_COUNT]; // %c registers in use
    text body;                     // the statements so far; the moves of constants go ahead of them
} ptx_writer;

/* Writes the instruction through a template, a statement a line. */
void ptx_write(ptx_writer *w, const char *template);

/* The type of an element in memory: "b32", "s8". */
const char *ptx_memory_type(ir_type type);
