/* names.c - what ops and types are called and what they are. */
#include "ir/ir.h"

typedef struct type_row {
    const char *text;
    int bytes; // of a register
    bool is_float, is_signed, is_pair;
} type_row;

static const type_row types[IR_TYPE_COUNT] = {
    [CKL_DTYPE_DEFAULT] = { .text = "no type" },
    [CKL_F64] = { "f64", 8, .is_float = true },
    [CKL_F32] = { "f32", 4, .is_float = true },
    [CKL_F16] = { "f16", 2, .is_float = true },
    [CKL_BF16] = { "bf16", 2, .is_float = true },
    [CKL_E4M3] = { "e4m3", 2, .is_float = true },
    [CKL_E5M2] = { "e5m2", 2, .is_float = true },
    [CKL_I64] = { "i64", 8, .is_signed = true },
    [CKL_I32] = { "i32", 4, .is_signed = true },
    [CKL_I16] = { "i16", 2, .is_signed = true },
    [CKL_I8] = { "i8", 2, .is_signed = true },
    [CKL_U8] = { "u8", 2 },
    [CKL_BOOL] = { "bool", 2 },
    [IR_PRED] = { "pred", 1 },
    [IR_U16] = { "u16", 2 },
    [IR_U32] = { "u32", 4 },
    [IR_U64] = { "u64", 8 },
    [IR_F16X2] = { "f16x2", 4, .is_float = true, .is_pair = true },
    [IR_BF16X2] = { "bf16x2", 4, .is_float = true, .is_pair = true },
};

typedef struct op_row {
    const char *text;
    ir_class class;
} op_row;

static const op_row ops[IR_OP_COUNT] = {
#define X(name, text, class) [IR_##name] = { text, IR_##class },
    IR_OPS(X)
#undef X
};

static const type_row *type_of(ir_type type)
{
    return &types[(unsigned)type < IR_TYPE_COUNT ? type : CKL_DTYPE_DEFAULT];
}

const char *ir_type_text(ir_type type)
{
    return type_of(type)->text;
}

int ir_type_bytes(ir_type type)
{
    return type_of(type)->bytes;
}

int ir_memory_bytes(ir_type type)
{
    return type < CKL_DTYPE_COUNT ? (int)ckl_dtype_bytes(type) : ir_type_bytes(type);
}

bool ir_type_is_float(ir_type type)
{
    return type_of(type)->is_float;
}

bool ir_type_is_signed(ir_type type)
{
    return type_of(type)->is_signed;
}

bool ir_type_is_pair(ir_type type)
{
    return type_of(type)->is_pair;
}

const char *ir_target_text(ir_target target)
{
    static const char *const names[] = { [IR_SM80] = "sm_80", [IR_SM90] = "sm_90", [IR_SM90A] = "sm_90a" };
    return names[target];
}

const char *ir_op_text(ir_op op)
{
    return (unsigned)op < IR_OP_COUNT ? ops[op].text : "no op";
}

ir_class ir_op_class(ir_op op)
{
    return (unsigned)op < IR_OP_COUNT ? ops[op].class : IR_CONTROL;
}

const char *ir_class_text(ir_class class)
{
    static const char *const texts[IR_CLASS_COUNT] = {
        [IR_ALU] = "alu", [IR_SFU] = "sfu",       [IR_MEMORY] = "memory",   [IR_SYNC] = "sync",
        [IR_TMA] = "tma", [IR_TENSOR] = "tensor", [IR_CONTROL] = "control",
    };
    return (unsigned)class < IR_CLASS_COUNT ? texts[class] : "no class";
}
