/* params.c - declaring parameters, one or a list, and dropping those that a kernel does not use. */
#include "ir/params.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "ir/build_core.h"

/* Declaring one */

static int find_param(const char *name, bool tensor_map, ir_type type)
{
    ir_kernel *k = build.kernel;
    for (int i = 0; i < k->param_count; i++)
        if (strcmp(k->params[i].name, name) == 0)
            return i;
    if (k->param_count == IR_PARAMS_MAX)
        ir_fail("parameter %s is one more than the %d a kernel may have", name, IR_PARAMS_MAX);
    k->params = build_grow(k->params, k->param_count, &k->param_capacity, sizeof *k->params);
    k->params[k->param_count] =
        (ir_param){ .name = arena_text(&k->memory, name), .tensor_map = tensor_map, .type = type };
    return k->param_count++;
}

val ir_scalar_param(ir_type type, const char *name)
{
    int index = find_param(name, false, type);
    return build_value((ir_inst){ .op = IR_PARAM, .type = type, .n = index }, type, 0, NULL);
}

val ir_tensor_map_param(const char *name)
{
    int index = find_param(name, true, IR_U64);
    return build_value((ir_inst){ .op = IR_PARAM, .type = IR_U64, .n = index }, IR_U64, 0, NULL);
}

/* The parameter that a register holds, or NULL. */
static ir_param *param_of(val x)
{
    ir_kernel *k = build.kernel;
    for (int i = 0; i < k->inst_count; i++)
        if (k->insts[i].op == IR_PARAM && k->insts[i].out[0].reg == x.reg)
            return &k->params[k->insts[i].n];
    return NULL;
}

void ir_tensor_map_set(val map, ir_tensor_map wanted)
{
    ir_param *param = param_of(map);
    if (ir_failed())
        return;
    if (!param || !param->tensor_map)
        ir_fail("this value is no tensor map parameter");
    else if (param->map.rank && memcmp(&param->map, &wanted, sizeof wanted) != 0)
        ir_fail("tensor map %s: two boxes, of which only one can be encoded", param->name);
    else
        param->map = wanted;
}

/* Declaring a list */

static const struct {
    ir_type type;
    size_t bytes;
} kinds[] = {
    [PARAM_pointer] = { IR_U64, sizeof(param_pointer) }, [PARAM_i64] = { CKL_I64, sizeof(param_i64) },
    [PARAM_i32] = { CKL_I32, sizeof(param_i32) },        [PARAM_u32] = { IR_U32, sizeof(param_u32) },
    [PARAM_f32] = { CKL_F32, sizeof(param_f32) },        [PARAM_tensor] = { IR_U64, sizeof(param_tensor) },
};

ir_type param_type(param_kind kind)
{
    return kinds[kind].type;
}

size_t param_bytes(param_kind kind)
{
    return kinds[kind].bytes;
}

void param_name(const param_row *row, int index, char *name, size_t size)
{
    if (row->count == 1)
        snprintf(name, size, "%s", row->name);
    else
        snprintf(name, size, "%s_%d", row->name, index);
}

val *ir_declare_params(const param_list *list)
{
    int total = 0;
    for (int i = 0; i < list->count; i++)
        total += list->rows[i].count;
    val *values = ir_alloc((size_t)total, sizeof *values), *next = values;
    for (int i = 0; i < list->count; i++)
        for (int j = 0; j < list->rows[i].count; j++) {
            char name[64];
            param_name(&list->rows[i], j, name, sizeof name);
            *next++ = list->rows[i].kind == PARAM_tensor ? ir_tensor_map_param(name)
                                                         : ir_scalar_param(param_type(list->rows[i].kind), name);
        }
    return values;
}

/* Dropping */

/* used[r]: an instruction reads register r. */
static void find_reads(const ir_kernel *kernel, bool *used)
{
    for (int i = 0; i < kernel->inst_count; i++)
        for (int j = 0; j < kernel->insts[i].in_count; j++)
            if (!ir_is_constant(kernel->insts[i].in[j]))
                used[kernel->insts[i].in[j].reg] = true;
}

/* Removes reads of parameters whose register nobody reads; kept[p]: parameter p is still read. */
static void drop_reads(ir_kernel *kernel, const bool *used, bool *kept)
{
    int *moved = arena_alloc(&kernel->memory, (size_t)kernel->inst_count + 1, sizeof *moved), count = 0;
    for (int i = 0; i < kernel->inst_count; i++) {
        ir_inst inst = kernel->insts[i];
        moved[i] = count;
        if (inst.op == IR_PARAM && !used[inst.out[0].reg])
            continue;
        if (inst.op == IR_PARAM)
            kept[inst.n] = true;
        kernel->insts[count++] = inst;
    }
    kernel->inst_count = count;
    for (int i = 0; i < count; i++)
        kernel->insts[i].match = moved[kernel->insts[i].match];
}

void ir_drop_unused_params(ir_kernel *kernel)
{
    bool *used = arena_alloc(&kernel->memory, (size_t)kernel->reg_count + 1, sizeof *used);
    bool *kept = arena_alloc(&kernel->memory, (size_t)kernel->param_count + 1, sizeof *kept);
    int *moved = arena_alloc(&kernel->memory, (size_t)kernel->param_count + 1, sizeof *moved), count = 0;
    find_reads(kernel, used);
    drop_reads(kernel, used, kept);
    for (int i = 0; i < kernel->param_count; i++) {
        moved[i] = count;
        if (kept[i])
            kernel->params[count++] = kernel->params[i];
    }
    kernel->param_count = count;
    for (int i = 0; i < kernel->inst_count; i++)
        if (kernel->insts[i].op == IR_PARAM)
            kernel->insts[i].n = moved[kernel->insts[i].n];
}
