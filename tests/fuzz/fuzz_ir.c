/*
 * fuzz_ir.c - any text as a kernel: each line is an instruction, "op type from attributes operands". It is refused with
 * a sentence, or it prints, as IR and as PTX, and runs on the emulator to its end or to a report.
 *
 * A letter before a number is an attribute: n, mode (m), offset (o), space (s), cache (c), order (r), scope (p).
 * Numbers alone are operands in order: constants, or with % the last register but so many of the type that is wanted.
 */
#include <ctype.h>

#include "device/emulator/emulator.h"
#include "fuzz_text.h"
#include "ir/build.h"
#include "ir/rules.h"

enum { OPERANDS_MAX = 300, MEMORY_BYTES = 4096, SMEM_BYTES = 4096, BUDGET = 2000 };

/* What a line says. */
typedef struct words {
    ir_op op;
    ir_type types[3];
    int64_t attribute[128]; // by letter
    int64_t number[OPERANDS_MAX];
    bool is_register[OPERANDS_MAX];
    int types_given, numbers;
} words;

static int index_of(const char *word, size_t length, int count, const char *name(int))
{
    for (int i = 0; i < count; i++)
        if (strlen(name(i)) == length && memcmp(name(i), word, length) == 0)
            return i;
    return -1;
}

static const char *op_name(int i)
{
    return ir_op_text((ir_op)i);
}

static const char *type_name(int i)
{
    return ir_type_text((ir_type)i);
}

static void read_word(const char *word, size_t length, words *w)
{
    int op = index_of(word, length, IR_OP_COUNT, op_name), type = index_of(word, length, IR_TYPE_COUNT, type_name);
    bool percent = *word == '%';
    if (op >= 0)
        w->op = (ir_op)op;
    else if (type >= 0)
        w->types[w->types_given++ % 3] = (ir_type)type;
    else if (isalpha((unsigned char)*word) && length > 1)
        w->attribute[(int)*word & 127] = strtoll(word + 1, NULL, 0);
    else if (w->numbers < OPERANDS_MAX) {
        w->is_register[w->numbers] = percent;
        w->number[w->numbers++] = strtoll(word + percent, NULL, 0);
    }
}

static words read_line(const char *line, size_t length)
{
    words w = { .op = IR_OP_COUNT };
    for (const char *at = line, *end; at < line + length; at = end) {
        for (end = at; end < line + length && !isspace((unsigned char)*end); end++)
            ;
        if (end > at)
            read_word(at, (size_t)(end - at), &w);
        else
            end++;
    }
    return w;
}

/* The register of that type which is so many before the last one; a constant if there is none. */
static val recent(ir_type type, int64_t back)
{
    const ir_kernel *k = ir_current();
    for (int i = k->reg_count - 1; i >= 0; i--)
        if (k->reg_types[i] == type && back-- <= 0)
            return (val){ .type = type, .reg = i };
    return ir_type_is_float(type) && !ir_type_is_pair(type) ? ir_float(type, (double)back) : ir_int(type, back);
}

static val operand_of(const words *w, int i, ir_type type)
{
    int64_t number = i < w->numbers ? w->number[i] : i;
    if (i < w->numbers && w->is_register[i])
        return recent(type, number);
    return ir_type_is_float(type) && !ir_type_is_pair(type) ? ir_float(type, (double)number) : ir_int(type, number);
}

/* A register holds 8-bit integers and bools as u16. */
static ir_type register_type(ir_type type)
{
    return type == CKL_I8 || type == CKL_U8 || type == CKL_BOOL ? IR_U16 : type;
}

static ir_type letter_type(char letter, const ir_inst *inst)
{
    switch (letter) {
    case 't':
        return register_type(inst->type);
    case 'f':
        return register_type(inst->from);
    case 'p':
        return IR_PRED;
    case 'l':
        return IR_U64;
    case 'a':
        return inst->space == IR_GLOBAL ? IR_U64 : IR_U32;
    default:
        return IR_U32;
    }
}

/* The operands that the op's rule asks for, results or sources; *at ends behind them. */
static int fill_operands(const words *w, const ir_inst *inst, const char **at, bool results, val *out)
{
    int count = 0;
    for (; **at && **at != ':'; ++*at) {
        char letter = **at, many = (*at)[1];
        bool listed = many == '*' || many == 'h' || isdigit((unsigned char)many);
        int n = many == '*' ? inst->n : many == 'h' ? inst->n / 2 : isdigit((unsigned char)many) ? many - '0' : 1;
        for (int i = 0; i < n && count < OPERANDS_MAX; i++, count++)
            out[count] = results ? ir_reg(letter_type(letter, inst)) : operand_of(w, count, letter_type(letter, inst));
        *at += listed;
    }
    return count;
}

/* Accumulators are results and sources; they begin as zeros. */
static void tie_accumulators(const ir_inst *inst, int outs, const val *out, int ins, val *in)
{
    if (ir_op_class(inst->op) != IR_TENSOR || ins < outs)
        return;
    for (int i = 0; i < outs; i++) {
        in[ins - outs + i] = out[i];
        ir_assign(out[i], inst->type == CKL_F32 ? ir_float(CKL_F32, 0) : ir_int(inst->type, 0));
    }
}

static void emit(const words *w)
{
    const int64_t *a = w->attribute;
    const ir_rule *rule = ir_rule_of(w->op);
    ir_inst inst = {
        .op = w->op, .type = w->types[0], .from = w->types[1], .from_b = w->types[w->types_given > 2 ? 2 : 1]
    };
    inst.n = rule->counted ? (int)(a['n'] % 257) : 0;
    inst.mode = (int)(a['m'] % (rule->last_mode + 2)); // one more than there are
    inst.offset = a['o'] % (1 << 20);
    inst.space = (ir_space)((uint64_t)a['s'] % 3);
    inst.cache = (ir_cache)(a['c'] & 3);
    inst.order = (ir_order)((uint64_t)a['r'] % 5);
    inst.scope = (ir_scope)(a['p'] & 3);
    val in[OPERANDS_MAX], out[OPERANDS_MAX];
    const char *at = rule->operands;
    int outs = fill_operands(w, &inst, &at, true, out);
    at += *at == ':';
    int ins = fill_operands(w, &inst, &at, false, in);
    tie_accumulators(&inst, outs, out, ins, in);
    ir_emit(inst, outs, out, ins, in);
}

static void emit_line(const words *w)
{
    if (w->op == IR_OP_COUNT || w->op == IR_PARAM)
        return;
    if (w->op == IR_IF)
        ir_if(operand_of(w, 0, IR_PRED));
    else if (w->op == IR_ELSE)
        ir_else();
    else if (w->op == IR_END_IF)
        ir_end_if();
    else if (w->op == IR_LOOP)
        ir_loop();
    else if (w->op == IR_BREAK)
        ir_break(operand_of(w, 0, IR_PRED));
    else if (w->op == IR_END_LOOP)
        ir_end_loop();
    else
        emit(w);
}

/*
 * Some registers to begin with. The first line may say how many warps (w), CTAs of a cluster (k), and that the target
 * is sm_80 (x).
 */
static void describe(const char *text)
{
    words frame = read_line(text, strcspn(text, "\n;"));
    ir_describe_begin("fuzzed", frame.attribute['x'] ? IR_SM80 : IR_SM90A);
    ir_current()->threads = 32 * (int)(1 + (frame.attribute['w'] & 7));
    ir_current()->cluster = 1 + (int)(frame.attribute['k'] & 3);
    ir_scalar_param(IR_U64, "memory");
    ir_smem_address(ir_smem_alloc("smem", SMEM_BYTES, 1024));
    val lane = ir_sreg(IR_TID_X);
    ir_convert(CKL_F32, lane);
    ir_convert(IR_U64, lane);
    ir_compare(IR_LT, lane, ir_u32(7));
    for (const char *at = text, *end; *at && !ir_failed(); at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n;");
        words w = read_line(at, (size_t)(end - at));
        ir_at("text", (int)(at - text));
        emit_line(&w);
    }
}

static ckl_status run(ckl_device *device, const ir_kernel *kernel, void *memory)
{
    uint64_t address = (uint64_t)(uintptr_t)memory;
    void *params[] = { &address };
    device_launch launch = { .grid = { kernel->cluster, 1, 1 }, .params = params };
    device_kernel *loaded = NULL;
    TRY(device->ops->load(device, kernel, &loaded));
    ckl_status status = device->ops->launch(device, loaded, &launch, NULL);
    device->ops->unload(device, loaded);
    return status;
}

static ckl_status emulate(const ir_kernel *kernel)
{
    emulator_options options = emulator_options_default();
    options.budget = BUDGET;
    options.threads = 1;
    ckl_device *device = NULL;
    void *memory = NULL;
    ckl_status status = emulator_open_with("h200", &options, &device);
    if (status == CKL_OK)
        status = ckl_malloc(device, MEMORY_BYTES, &memory);
    if (status == CKL_OK)
        status = device->ops->fill(device, memory, 1, MEMORY_BYTES, NULL);
    if (status == CKL_OK)
        status = run(device, kernel, memory);
    if (device)
        ckl_free(device, memory);
    ckl_device_close(device);
    return status;
}

void fuzz_one(const char *line)
{
    ir_kernel *kernel = NULL;
    text words = { 0 }, ptx = { 0 };
    describe(line);
    ckl_status status = ir_describe_end(&kernel);
    if (status == CKL_OK)
        status = ir_verify(kernel);
    if (status == CKL_OK) {
        ir_print(kernel, &words);
        status = ir_print_ptx(kernel, &ptx);
    }
    if (status == CKL_OK)
        status = emulate(kernel);
    fuzz_demand(status == CKL_OK || *ckl_error(), "a failure without a sentence");
    text_free(&words);
    text_free(&ptx);
    ir_kernel_free(kernel);
}
