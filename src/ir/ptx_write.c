/* ptx_write.c - what the letters of a template stand for, and how constants, registers and types look in PTX. */
#include "ir/ptx_write.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/ptx_rows.h"

enum { NUMBER_BYTES = 32 };

const ptx_kind_info ptx_kinds[PTX_KIND_COUNT] = {
    [PTX_KIND_PRED] = { "p", "pred" }, [PTX_KIND_16] = { "h", "b16" },  [PTX_KIND_32] = { "r", "b32" },
    [PTX_KIND_64] = { "d", "b64" },    [PTX_KIND_F32] = { "f", "f32" },
};

static const struct {
    const char *arithmetic, *memory;
    ptx_kind kind;
} types[IR_TYPE_COUNT] = {
    [CKL_DTYPE_DEFAULT] = { "none", "none", PTX_KIND_32 },
    [CKL_F32] = { "f32", "b32", PTX_KIND_F32 },
    [CKL_F16] = { "f16", "b16", PTX_KIND_16 },
    [CKL_BF16] = { "bf16", "b16", PTX_KIND_16 },
    [CKL_E4M3] = { "e4m3", "u8", PTX_KIND_16 },
    [CKL_E5M2] = { "e5m2", "u8", PTX_KIND_16 },
    [CKL_I64] = { "s64", "b64", PTX_KIND_64 },
    [CKL_I32] = { "s32", "b32", PTX_KIND_32 },
    [CKL_I16] = { "s16", "b16", PTX_KIND_16 },
    [CKL_I8] = { "s8", "s8", PTX_KIND_16 },
    [CKL_U8] = { "u8", "u8", PTX_KIND_16 },
    [CKL_BOOL] = { "u8", "u8", PTX_KIND_16 },
    [IR_PRED] = { "pred", "pred", PTX_KIND_PRED },
    [IR_U16] = { "u16", "b16", PTX_KIND_16 },
    [IR_U32] = { "u32", "b32", PTX_KIND_32 },
    [IR_U64] = { "u64", "b64", PTX_KIND_64 },
    [IR_F16X2] = { "f16x2", "b32", PTX_KIND_32 },
    [IR_BF16X2] = { "bf16x2", "b32", PTX_KIND_32 },
};

static const char *const spaces[] = { "global", "shared::cta", "shared::cluster" };
static const char *const scopes[] = { "cta", "cluster", "gpu", "sys" };

/* Text */

static void put(ptx_writer *w, const char *string)
{
    text_append(&w->body, string, strlen(string));
}

static void put_number(ptx_writer *w, int64_t number)
{
    char digits[NUMBER_BYTES];
    snprintf(digits, sizeof digits, "%" PRId64, number);
    put(w, digits);
}

static void put_register(ptx_writer *w, val v)
{
    put(w, "%");
    put(w, ptx_kinds[types[v.type].kind].letter);
    put_number(w, v.reg);
}

/* A constant as PTX writes it: floats by their bits, integers cut to their width. */
static void format_constant(val v, char literal[NUMBER_BYTES])
{
    float narrow = (float)v.f;
    uint32_t bits32;
    memcpy(&bits32, &narrow, sizeof bits32);
    if (v.type == CKL_F32)
        snprintf(literal, NUMBER_BYTES, "0f%08" PRIx32, bits32);
    else if (v.type == CKL_F16)
        snprintf(literal, NUMBER_BYTES, "0x%04x", f16_from_f32(narrow));
    else if (v.type == CKL_BF16)
        snprintf(literal, NUMBER_BYTES, "0x%04x", bf16_from_f32(narrow));
    else if (ir_type_is_pair(v.type))
        snprintf(literal, NUMBER_BYTES, "0x%08" PRIx32, (uint32_t)v.i);
    else if (v.type == IR_U64 || v.i == INT64_MIN)
        snprintf(literal, NUMBER_BYTES, "0x%" PRIx64, (uint64_t)v.i);
    else
        snprintf(literal, NUMBER_BYTES, "%" PRId64, v.type == IR_U32 ? (int64_t)(uint32_t)v.i : v.i);
}

/* A constant moved into a register of its own, ahead of the instruction. */
static void put_constant_register(ptx_writer *w, val v)
{
    char literal[NUMBER_BYTES], name[NUMBER_BYTES];
    ptx_kind kind = types[v.type].kind;
    format_constant(v, literal);
    snprintf(name, sizeof name, "%%c%s%d", ptx_kinds[kind].letter, w->constants[kind]++);
    text_printf(w->out, "\tmov.%s %s, %s;\n", ptx_kinds[kind].type, name, literal);
    put(w, name);
}

static void put_in_register(ptx_writer *w, val v)
{
    if (ir_is_constant(v))
        put_constant_register(w, v);
    else
        put_register(w, v);
}

static void put_operand(ptx_writer *w, val v)
{
    char literal[NUMBER_BYTES];
    if (!ir_is_constant(v)) {
        put_register(w, v);
        return;
    }
    format_constant(v, literal);
    put(w, literal);
}

/* Values separated by commas, in braces if there is more than one; matrices are vectors even of one. */
static void put_vector(ptx_writer *w, const val *values, int count)
{
    bool braces = count > 1 || w->inst->op == IR_LDMATRIX || w->inst->op == IR_STMATRIX;
    put(w, braces ? "{" : "");
    for (int i = 0; i < count; i++) {
        put(w, i ? ", " : "");
        put_in_register(w, values[i]);
    }
    put(w, braces ? "}" : "");
}

static void put_address(ptx_writer *w, val address)
{
    put_in_register(w, address);
    if (w->inst->offset == 0)
        return;
    put(w, "+"); // before negative offsets too
    put_number(w, w->inst->offset);
}

/* What the letters of a template stand for; ptx_rows.h has the list. */

static int operand_index(char letter)
{
    static const char lower[] = "xyzuvw", upper[] = "XYZUVW";
    const char *at = strchr(lower, letter);
    return (int)(at ? at - lower : strchr(upper, letter) - upper);
}

static void put_source(ptx_writer *w, char letter)
{
    put_operand(w, w->inst->in[operand_index(letter)]);
}

static void put_source_register(ptx_writer *w, char letter)
{
    put_in_register(w, w->inst->in[operand_index(letter)]);
}

static void put_source_address(ptx_writer *w, char letter)
{
    put_address(w, w->inst->in[letter - 'a']);
}

static void put_result(ptx_writer *w, char letter)
{
    put_register(w, w->inst->out[letter - 'd']);
}

static void put_results(ptx_writer *w, char letter)
{
    (void)letter;
    put_vector(w, w->inst->out, w->inst->out_count);
}

static void put_stored(ptx_writer *w, char letter)
{
    (void)letter;
    put_vector(w, w->inst->in + 1, w->inst->in_count - 1);
}

static void put_coordinates(ptx_writer *w, char letter)
{
    (void)letter;
    for (int i = w->inst->in_count - w->inst->n; i < w->inst->in_count; i++) {
        put_operand(w, w->inst->in[i]);
        if (i + 1 < w->inst->in_count)
            put(w, ", ");
    }
}

static void put_offsets(ptx_writer *w, char letter)
{
    (void)letter;
    for (int i = 0; i < w->inst->n - 2; i++) {
        val offset = w->inst->in[4 + i];
        if (ir_is_constant(offset))
            text_printf(w->out, "\tmov.b16 %%o%d, %d;\n", i, (int)offset.i);
        else
            text_printf(w->out, "\tcvt.u16.u32 %%o%d, %%r%d;\n", i, offset.reg);
        put(w, i ? ", %o" : "%o");
        put_number(w, i);
    }
}

static void put_multicast_mask(ptx_writer *w, char letter)
{
    (void)letter;
    val mask = w->inst->in[3];
    if (ir_is_constant(mask)) {
        put_number(w, mask.i);
        return;
    }
    text_printf(w->out, "\t%scvt.u16.u32 %%th0, %%r%d;\n", w->guard, mask.reg);
    put(w, "%th0");
}

/* "s32", "b64": as wide as the type. */
static void put_sized_type(ptx_writer *w, char letter)
{
    put(w, letter == 's' ? "s" : "b");
    put_number(w, ir_type_bytes(w->inst->type) * 8);
}

/* Is the last operand an L2 cache policy? Accesses to shared memory have none. */
static bool has_policy(const ir_inst *inst)
{
    bool by_thread = inst->op == IR_LD || inst->op == IR_ST;
    bool hinted = inst->cache == IR_CACHE_EVICT_FIRST || inst->cache == IR_CACHE_EVICT_LAST;
    return hinted && !(by_thread && inst->space != IR_GLOBAL);
}

/* TMA bypasses L1. */
static void put_cache(ptx_writer *w, char letter)
{
    (void)letter;
    const ir_inst *inst = w->inst;
    if (inst->op == IR_LD && inst->space == IR_GLOBAL && inst->cache == IR_CACHE_READONLY)
        put(w, ".nc.L1::no_allocate");
    if (!has_policy(inst))
        return;
    if (inst->op != IR_TMA_LOAD)
        put(w, inst->cache == IR_CACHE_EVICT_FIRST ? ".L1::evict_first" : ".L1::evict_last");
    put(w, ".L2::cache_hint");
}

/* PTX adds signed 64-bit integers as unsigned. */
static void put_reduction(ptx_writer *w, char letter)
{
    static const char *const names[] = {
        [IR_RED_ADD] = "add.", [IR_RED_MIN] = "min.", [IR_RED_MAX] = "max.",
        [IR_RED_AND] = "and.", [IR_RED_OR] = "or.",   [IR_RED_EXCH] = "exch.",
    };
    ir_type type = w->inst->type;
    put(w, names[w->inst->mode]);
    if (w->inst->mode >= IR_RED_AND)
        put_sized_type(w, letter);
    else
        put(w, w->inst->mode == IR_RED_ADD && type == CKL_I64 ? "u64" : types[type].arithmetic);
}

/* A word of the instruction; NULL: the letter stands for something else. */
static const char *word_of(const ptx_writer *w, char letter)
{
    static const char *const suffixes[] = { "", "", ".v2", "", ".v4" };
    static const char *const orders[] = {
        [IR_ORDER_DEFAULT] = ".relaxed", [IR_ORDER_RELAXED] = ".relaxed", [IR_ORDER_ACQUIRE] = ".acquire",
        [IR_ORDER_RELEASE] = ".release", [IR_ORDER_ACQ_REL] = ".acq_rel",
    };
    const ir_inst *inst = w->inst;
    switch (letter) {
    case 't':
        return types[inst->type].arithmetic;
    case 'f':
        return types[inst->from].arithmetic;
    case 'F':
        return types[inst->from_b].arithmetic;
    case 'E':
        return types[inst->type].memory;
    case 'm':
        return ptx_kinds[types[inst->type].kind].type;
    case 'N':
        return suffixes[inst->n];
    case 'P':
        return w->kernel->params[inst->n].name;
    case 'g':
        return spaces[inst->space];
    case 'k':
        return scopes[inst->scope];
    case 'l':
        return orders[inst->order];
    case 'i':
        return !has_policy(inst) ? "" : inst->cache == IR_CACHE_EVICT_FIRST ? ", %evict_first" : ", %evict_last";
    case 'o':
        return ptx_mode_text(inst->op, inst->mode);
    default:
        return NULL;
    }
}

static void put_instruction_number(ptx_writer *w, char letter)
{
    const ir_inst *inst = w->inst;
    put_number(w, letter == 'n'   ? inst->n
                  : letter == 'j' ? w->index
                  : letter == 'h' ? (inst->mode == IR_SHFL_UP ? 0 : 31)
                                  : inst->mode >> (letter - 'p') & 1);
}

typedef void put_letter(ptx_writer *w, char letter);

static put_letter *const letters[128] = {
    ['d'] = put_result,
    ['e'] = put_result,
    ['D'] = put_results,
    ['x'] = put_source,
    ['y'] = put_source,
    ['z'] = put_source,
    ['u'] = put_source,
    ['v'] = put_source,
    ['w'] = put_source,
    ['X'] = put_source_register,
    ['Y'] = put_source_register,
    ['Z'] = put_source_register,
    ['U'] = put_source_register,
    ['V'] = put_source_register,
    ['W'] = put_source_register,
    ['a'] = put_source_address,
    ['b'] = put_source_address,
    ['S'] = put_stored,
    ['C'] = put_coordinates,
    ['O'] = put_offsets,
    ['M'] = put_multicast_mask,
    ['s'] = put_sized_type,
    ['B'] = put_sized_type,
    ['n'] = put_instruction_number,
    ['p'] = put_instruction_number,
    ['q'] = put_instruction_number,
    ['c'] = put_cache,
    ['r'] = put_reduction,
    ['h'] = put_instruction_number,
    ['j'] = put_instruction_number,
};

/* Fills in what follows a $; returns the text after it. */
static const char *put_placeholder(ptx_writer *w, const char *at)
{
    if (*at >= '0' && *at <= '9') {
        put_vector(w, w->inst->in + (at[0] - '0'), at[1] - '0');
        return at + 2;
    }
    const char *word = word_of(w, *at);
    if (word)
        put(w, word);
    else
        letters[(unsigned char)*at & 127](w, *at);
    return at + 1;
}

static void fill_template(ptx_writer *w, const char *template)
{
    while (*template) {
        size_t plain = strcspn(template, "$");
        text_append(&w->body, template, plain);
        template += plain;
        if (*template)
            template = put_placeholder(w, template + 1);
    }
}

void ptx_write(ptx_writer *w, const char *template)
{
    memset(w->constants, 0, sizeof w->constants);
    fill_template(w, template);
    const char *at = text_data(&w->body);
    while (*at) {
        size_t length = strcspn(at, ";");
        text_printf(w->out, "\t%s", w->guard);
        text_append(w->out, at, length);
        text_append(w->out, ";\n", 2);
        at += length + strspn(at + length, "; ");
    }
    text_clear(&w->body);
}

const char *ptx_memory_type(ir_type type)
{
    return types[type].memory;
}
