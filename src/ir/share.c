/* share.c - common subexpressions, emitted once. */
#include <string.h>

#include "base/hash.h"
#include "ir/build_core.h"

enum { SLOTS = 1 << 12, PROBES = 8 };

/* A hash table of instructions by what they compute. Where all slots of one are taken, it takes the first. */
struct build_share {
    int known[SLOTS]; // number + 1
};

void ir_share_begin(void)
{
    build.share = ir_alloc(1, sizeof *build.share);
}

void ir_share_end(void)
{
    build.share = NULL;
}

void build_share_forget(void)
{
    if (build.share)
        memset(build.share, 0, sizeof *build.share);
}

/* From registers that never change, the result is the same anywhere. */
static bool is_pure(const ir_inst *inst, int in_count, const val *in)
{
    const ir_class class = ir_op_class(inst->op);
    if ((class != IR_ALU && class != IR_SFU) || (in_count == 0 && inst->op != IR_PARAM))
        return false;
    for (int i = 0; i < in_count; i++)
        if (in[i].reg != IR_CONSTANT && !build.maker[in[i].reg])
            return false;
    return true;
}

static bool is_same(const ir_inst *a, const ir_inst *b, int in_count, const val *in)
{
    bool same = a->op == b->op && a->type == b->type && a->from == b->from && a->mode == b->mode && a->n == b->n &&
                a->out_count == 1 && a->in_count == in_count;
    for (int i = 0; i < in_count && same; i++)
        same = a->in[i].type == in[i].type && a->in[i].reg == in[i].reg &&
               (in[i].reg != IR_CONSTANT || a->in[i].i == in[i].i);
    return same;
}

bool build_share_find(const ir_inst *inst, int in_count, const val *in, int **slot, val *out)
{
    *slot = NULL;
    if (!build.share || ir_failed() || !is_pure(inst, in_count, in))
        return false;
    const int fields[] = { (int)inst->op, (int)inst->type, (int)inst->from, inst->mode, inst->n };
    uint64_t hash = hash_bytes(HASH_START, fields, sizeof fields);
    for (int i = 0; i < in_count; i++) {
        const int64_t key[] = { in[i].reg, in[i].reg == IR_CONSTANT ? in[i].i : 0 };
        hash = hash_bytes(hash, key, sizeof key);
    }
    *slot = &build.share->known[hash % SLOTS];
    for (int probe = 0; probe < PROBES; probe++) {
        int *at = &build.share->known[(hash + (uint64_t)probe) % SLOTS];
        if (!*at) {
            *slot = at;
            return false;
        }
        const ir_inst *known = &build.kernel->insts[*at - 1];
        if (is_same(known, inst, in_count, in)) {
            *out = known->out[0];
            return true;
        }
    }
    return false;
}
