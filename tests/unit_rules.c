/*
 * unit_rules.c - what the verifier takes of every instruction: types, numbers, modes, spaces, scopes, offsets, targets,
 * and the threads that must execute it together. Each is tried by a kernel with that one instruction, and the answers
 * stand in tests/data/rules.txt, which `build/unit_rules --update` writes anew: its diff is what changed.
 */
#include "unit.h"
#include "golden.h"
#include "ir/build.h"
#include "ir/rules.h"

#define RULES_FILE TESTDATA "/rules.txt"

enum { OPERANDS_MAX_TRIED = 300 };

typedef enum around { NOTHING, WARPS_PART, LANES_PART } around; // what the instruction stands in

typedef struct attempt {
    ir_inst inst;
    ir_target target;
    around around;
    int threads; // 0: 256
} attempt;

static val written(ir_type type)
{
    val reg = ir_reg(type);
    ir_emit((ir_inst){ .op = IR_MOV, .type = type }, 1, &reg, 1, &(val){ .type = type, .reg = IR_CONSTANT });
    return reg;
}

static ir_type type_of_letter(const attempt *a, char letter)
{
    switch (letter) {
    case 't':
    case 'c':
        return a->inst.type;
    case 'f':
        return a->inst.from;
    case 'p':
        return IR_PRED;
    case 'l':
        return IR_U64;
    case 'a':
        return a->inst.space == IR_GLOBAL ? IR_U64 : IR_U32;
    default:
        return IR_U32;
    }
}

/* Registers for the letters up to a colon or the end. */
static int operands_of(const attempt *a, const char **at, val *out)
{
    int count = 0;
    while (**at && **at != ':') {
        const char letter = *(*at)++;
        const ir_type type = type_of_letter(a, letter);
        const bool pixels = a->inst.op == IR_TMA_LOAD && a->inst.mode == 1; // has offsets, too
        int n = pixels ? 2 * a->inst.n - 2 : a->inst.n, repeat = **at == '*'                  ? n
                                                                 : **at == 'h'                ? n / 2
                                                                 : **at >= '1' && **at <= '9' ? **at - '0'
                                                                                              : -1;
        *at += repeat >= 0 || **at == '*' || **at == 'h';
        for (int i = 0; i < (repeat >= 0 ? repeat : **at == '*' ? 0 : 1) && count < OPERANDS_MAX_TRIED; i++)
            out[count++] = letter == 'c' ? ir_int(type, 5) : written(type);
    }
    return count;
}

static void describe(const attempt *a)
{
    static val out[OPERANDS_MAX_TRIED], in[OPERANDS_MAX_TRIED];
    const char *at = ir_rule_of(a->inst.op)->operands;
    bool in_place = a->inst.op == IR_WGMMA || a->inst.op == IR_WGMMA_RS;
    if (a->inst.op == IR_PARAM)
        ir_scalar_param(CKL_F32, "given");
    int outs = operands_of(a, &at, out);
    at++;
    int ins = operands_of(a, &at, in);
    if (in_place && ins >= outs)
        memcpy(in + ins - outs, out, (size_t)outs * sizeof *out); // accumulators
    if (in_place)
        ir_plain(IR_WGMMA_FENCE, 0, 0);
    if (a->around != NOTHING)
        ir_if(ir_compare(IR_EQ, ir_sreg(a->around == WARPS_PART ? IR_WARP : IR_LANE), ir_u32(1)));
    ir_emit(a->inst, outs, out, ins, in);
    if (a->around != NOTHING)
        ir_end_if();
}

static bool is_taken(const attempt *a)
{
    ir_kernel *kernel = NULL;
    ir_describe_begin("rule", a->target);
    ir_current()->threads = a->threads ? a->threads : 256;
    ir_current()->cluster = a->target == IR_SM80 ? 1 : 2;
    describe(a);
    ckl_status status = ir_describe_end(&kernel);
    if (status == CKL_OK)
        status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status == CKL_OK;
}

/* Numbers that an attribute may be: all small ones, and those where limits of the hardware lie. */
static const int numbers[] = { -8, -1, 0,  1,  2,  3,  4,  5,  6,   7,   8,   9,   10,  12,  15,  16,  17,  23,
                               24, 25, 31, 32, 33, 40, 64, 96, 100, 128, 224, 240, 248, 255, 256, 257, 264, 288 };

/* Appends " name=1,2,4" of those that are taken for a member; nothing if it must be 0. */
static void try_numbers(const attempt *base, size_t offset, const char *name, text *out)
{
    text taken = { 0 };
    int count = 0;
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        attempt a = *base;
        memcpy((char *)&a + offset, &numbers[i], sizeof(int));
        if (is_taken(&a))
            text_printf(&taken, "%s%d", count++ ? "," : "", numbers[i]);
    }
    if (count != 1 || strcmp(text_data(&taken), "0") != 0)
        text_printf(out, " %s=%s", name, text_data(&taken));
    text_free(&taken);
}

/* The same of the offset in bytes, as the alignment that it needs. */
static void try_offsets(const attempt *base, text *out)
{
    for (int64_t align = 256; align > 1; align /= 2) {
        attempt a = *base;
        a.inst.offset = align / 2;
        if (!is_taken(&a)) {
            text_printf(out, " aligned to %d", (int)align);
            return;
        }
    }
}

/* Where spaces and scopes are taken: two digits each that is, of its number and of sm_80 or sm_90. */
static void try_places(const attempt *base, text *out)
{
    for (int target = IR_SM80; target <= IR_SM90A; target += IR_SM90A - IR_SM80) {
        text_printf(out, target == IR_SM80 ? " sm80:" : " sm90:");
        for (int space = IR_GLOBAL; space <= IR_SHARED_CLUSTER; space++)
            for (int scope = IR_SCOPE_CTA; scope <= IR_SCOPE_GPU; scope++) {
                attempt a = *base;
                a.target = (ir_target)target;
                a.inst.space = (ir_space)space;
                a.inst.scope = (ir_scope)scope;
                text_append(out, is_taken(&a) ? "+" : "-", 1);
            }
    }
}

/* What Hopper has alone. */
static void try_sm90(const attempt *base, text *out)
{
    attempt later = *base;
    later.target = IR_SM90;
    if (!is_taken(&later))
        text_printf(out, " sm_90a alone");
}

static void try_threads(const attempt *base, text *out)
{
    attempt warps = *base, lanes = *base, few = *base;
    warps.around = WARPS_PART;
    lanes.around = LANES_PART;
    few.threads = 96;
    text_printf(out, " %s%s",
                is_taken(&lanes)   ? "by threads"
                : is_taken(&warps) ? "by warps"
                                   : "by warpgroups",
                is_taken(&few) ? "" : ", whole ones");
}

/* Attributes with which an instruction of this type and [from] is taken; false if there are none. */
static bool find_base(attempt *a)
{
    static const int counts[] = { 0, 1, 4, 8, 32 };
    for (int n = 0; n < COUNT_OF(counts); n++)
        for (a->inst.mode = 0; a->inst.mode < 3; a->inst.mode++) {
            a->inst.n = counts[n];
            for (a->inst.space = IR_GLOBAL; a->inst.space <= IR_SHARED; a->inst.space++)
                if (is_taken(a))
                    return true;
        }
    return false;
}

static bool multiplies(ir_op op)
{
    return op == IR_MMA || op == IR_WGMMA || op == IR_WGMMA_RS;
}

/* The types that [from] is multiplied with; *first becomes the first attempt that is taken. */
static void try_factors(ir_op op, ir_type type, ir_type from, attempt *first, text *out)
{
    bool found = false;
    for (int by = 0; by < (multiplies(op) ? IR_TYPE_COUNT : 1); by++) {
        attempt a = { .inst = { .op = op, .type = type, .from = from, .from_b = (ir_type)by }, .target = IR_SM90A };
        if (!find_base(&a))
            continue;
        if (!found && from)
            text_printf(out, " from %s", ir_type_text(from));
        if (by && by != (int)from)
            text_printf(out, " by %s", ir_type_text((ir_type)by));
        found = true;
        if (first->inst.op == IR_OP_COUNT)
            *first = a;
    }
}

/* What is taken of an instruction of the type; nothing if it is not taken at all. */
static void try_type(ir_op op, ir_type type, text *out)
{
    const ir_rule *rule = ir_rule_of(op);
    attempt first = { .inst.op = IR_OP_COUNT };
    for (int from = 0; from < (rule->from ? IR_TYPE_COUNT : 1); from++)
        try_factors(op, type, (ir_type)from, &first, out);
    if (first.inst.op == IR_OP_COUNT)
        return;
    try_numbers(&first, offsetof(attempt, inst.n), "n", out);
    try_numbers(&first, offsetof(attempt, inst.mode), "mode", out);
    try_offsets(&first, out);
    try_places(&first, out);
    try_sm90(&first, out);
    try_threads(&first, out);
    text_append(out, "\n", 1);
}

/* Types of which the same is taken share a line. */
static void try_types(ir_op op, text *out)
{
    text before = { 0 };
    for (int type = 0; type < (ir_rule_of(op)->types ? IR_TYPE_COUNT : 1); type++) {
        text taken = { 0 };
        try_type(op, (ir_type)type, &taken);
        if (taken.length) {
            bool same = strcmp(text_data(&taken), text_data(&before)) == 0;
            if (!same)
                text_printf(out, "%s ", text_data(&before));
            text_printf(out, " %s", type ? ir_type_text((ir_type)type) : "any");
            text_clear(&before);
            text_append(&before, text_data(&taken), taken.length);
        }
        text_free(&taken);
    }
    text_printf(out, "%s", text_data(&before));
    text_free(&before);
}

/* What blocks are made of cannot stand alone. */
static bool stands_alone(ir_op op)
{
    return op < IR_IF || op > IR_END_LOOP;
}

static void try_all(text *out)
{
    text_printf(
        out, "# rules.txt - what the verifier takes of every instruction; build/unit_rules --update writes it.\n"
             "# Of each: operands (ir/rules.h), then types and what they come from, numbers and modes, alignment of\n"
             "# the offset, and for sm_80 and sm_90 a sign for each space and scope.\n");
    for (int op = 0; op < IR_OP_COUNT; op++) {
        text_printf(out, "%s %s\n", ir_op_text((ir_op)op), ir_rule_of((ir_op)op)->operands);
        if (stands_alone((ir_op)op))
            try_types((ir_op)op, out);
    }
}

GOLDEN_MAIN(RULES_FILE, try_all)
