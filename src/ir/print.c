/* print.c - the IR for people: one instruction a line, indented by its control flow, with the C line that wrote it. */
#include "ir/ir.h"

enum { COMMENT_COLUMN = 88 };

static void print_value(text *out, val v)
{
    if (!ir_is_constant(v))
        text_printf(out, "%%%d", v.reg);
    else if (ir_type_is_float(v.type) && !ir_type_is_pair(v.type))
        text_printf(out, "%.9g", v.f);
    else
        text_printf(out, "%" PRId64, v.i);
}

/* "%7:f32" for results, "%7" for sources; long lists of consecutive registers as "%0..%127". */
static void print_values(text *out, const val *values, int count, bool with_type)
{
    for (int i = 0; i < count; i++) {
        int last = i;
        while (last + 1 < count && !ir_is_constant(values[i]) && values[last + 1].reg == values[last].reg + 1)
            last++;
        text_printf(out, "%s", i ? ", " : "");
        print_value(out, values[i]);
        if (last > i + 1) {
            text_printf(out, "..");
            print_value(out, values[last]);
            i = last;
        }
        if (with_type)
            text_printf(out, ":%s", ir_type_text(values[i].type));
    }
}

/* The attributes that are not 0. */
static void print_attributes(text *out, const ir_inst *inst)
{
    static const char *const spaces[] = { "", ".shared", ".cluster" };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = { { "n", inst->n },
                    { "mode", inst->mode },
                    { "offset", inst->offset },
                    { "cache", (int64_t)inst->cache },
                    { "scope", (int64_t)inst->scope },
                    { "order", (int64_t)inst->order } };
    text_printf(out, "%s", spaces[inst->space]);
    if (inst->type != CKL_DTYPE_DEFAULT)
        text_printf(out, ".%s", ir_type_text(inst->type));
    if (inst->from != CKL_DTYPE_DEFAULT)
        text_printf(out, ".%s", ir_type_text(inst->from));
    if (inst->from_b != CKL_DTYPE_DEFAULT && inst->from_b != inst->from)
        text_printf(out, ".%s", ir_type_text(inst->from_b));
    for (int i = 0; i < COUNT_OF(numbers); i++)
        if (numbers[i].value)
            text_printf(out, " %s=%" PRId64, numbers[i].name, numbers[i].value);
}

static void print_inst(text *out, const ir_inst *inst, int indent)
{
    size_t start = out->length;
    text_printf(out, "%*s", indent * 4, "");
    print_values(out, inst->out, inst->out_count, true);
    text_printf(out, "%s%s", inst->out_count ? " = " : "", ir_op_text(inst->op));
    print_attributes(out, inst);
    text_printf(out, "%s", inst->in_count ? " " : "");
    print_values(out, inst->in, inst->in_count, false);
    if (inst->line) {
        int length = (int)(out->length - start);
        text_printf(out, "%*s  ; %s:%d", length < COMMENT_COLUMN ? COMMENT_COLUMN - length : 0, "", inst->file,
                    inst->line);
    }
    text_printf(out, "\n");
}

static void print_head(text *out, const ir_kernel *kernel)
{
    text_printf(out, "kernel %s for %s: %s\n", kernel->name, ir_target_text(kernel->target),
                kernel->note ? kernel->note : "");
    text_printf(out, "%d threads, clusters of %d, %" PRId64 " bytes of shared memory\n", kernel->threads,
                kernel->cluster, kernel->smem_bytes);
    for (int i = 0; i < kernel->param_count; i++)
        text_printf(out, "param %d %s: %s\n", i, kernel->params[i].name,
                    kernel->params[i].tensor_map ? "tensor map" : ir_type_text(kernel->params[i].type));
    for (int i = 0; i < kernel->smem_count; i++) {
        const ir_smem *smem = &kernel->smem[i];
        text_printf(out, "smem %" PRId64 " %s: %" PRId64 " bytes\n", smem->offset, smem->name, smem->bytes);
    }
}

void ir_print(const ir_kernel *kernel, text *out)
{
    int indent = 1;
    print_head(out, kernel);
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        bool closes = inst->op == IR_ELSE || inst->op == IR_END_IF || inst->op == IR_END_LOOP;
        bool opens = inst->op == IR_IF || inst->op == IR_ELSE || inst->op == IR_LOOP;
        indent -= closes;
        print_inst(out, inst, indent);
        indent += opens;
    }
}
