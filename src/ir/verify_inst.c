/* verify_inst.c - one instruction by itself: the operands that rules.c asks for, and the attributes of its op. */
#include "ir/rules.h"
#include "ir/verify.h"

#define SET TYPE_SET

/* Operands */

/* The registers that hold a value of a type: 8-bit ones live in 16-bit integers, or in one named after them. */
static uint32_t registers_of(ir_type type)
{
    uint32_t small = SET(CKL_I8) | SET(CKL_U8) | SET(CKL_BOOL) | SET(CKL_E4M3) | SET(CKL_E5M2);
    return SET(type) & small ? SET(type) | SET(CKL_I16) | SET(IR_U16) : SET(type);
}

/* The types that a letter of ir_rule.operands allows. */
static uint32_t letter_types(const ir_inst *inst, char letter)
{
    const uint32_t index32 = SET(IR_U32) | SET(CKL_I32), index64 = SET(IR_U64) | SET(CKL_I64);
    switch (letter) {
    case 't':
    case 'c':
        return registers_of(inst->type);
    case 'f':
        return registers_of(inst->from);
    case 'p':
        return SET(IR_PRED);
    case 'u':
        return index32;
    case 'l':
        return index64;
    default: // 'a'
        return inst->space == IR_GLOBAL ? index64 : index32;
    }
}

/* How many operands the text after a letter asks for; steps over it. */
static int letter_count(const ir_inst *inst, const char **at)
{
    char count = **at;
    if (count != '*' && count != 'h' && (count < '1' || count > '9'))
        return 1;
    ++*at;
    if (count == '*' && inst->op == IR_TMA_LOAD && inst->mode == 1)
        return 2 * inst->n - 2; // offsets, too
    return count == '*' ? inst->n : count == 'h' ? inst->n / 2 : count - '0';
}

static ckl_status check_operand(const ir_kernel *kernel, const ir_inst *inst, val v, bool is_result, uint32_t allowed)
{
    const char *role = is_result ? "result" : "operand";
    if (ir_is_constant(v) && is_result)
        FAULT(kernel, inst, "a result is a constant");
    if (!ir_is_constant(v) && (v.reg < 0 || v.reg >= kernel->reg_count))
        FAULT(kernel, inst, "register %d does not exist", v.reg);
    if (!ir_is_constant(v) && kernel->reg_types[v.reg] != v.type)
        FAULT(kernel, inst, "register %d is %s, used as %s", v.reg, ir_type_text(kernel->reg_types[v.reg]),
              ir_type_text(v.type));
    if ((unsigned)v.type >= IR_TYPE_COUNT || !(allowed & SET(v.type)))
        FAULT(kernel, inst, "%s of type %s does not fit", role, ir_type_text(v.type));
    return CKL_OK;
}

/* Checks the results or the sources against their half of the rule; *at ends behind it. */
static ckl_status check_half(const ir_kernel *kernel, const ir_inst *inst, const char **at, bool results)
{
    const val *values = results ? inst->out : inst->in;
    int given = results ? inst->out_count : inst->in_count, used = 0;
    while (**at && **at != ':') {
        char letter = *(*at)++;
        int count = letter_count(inst, at);
        for (int i = 0; i < count; i++, used++) {
            if (used >= given)
                FAULT(kernel, inst, "%s operand %d is missing", results ? "result" : "source", used);
            TRY(check_operand(kernel, inst, values[used], results, letter_types(inst, letter)));
            if (letter == 'c' && !ir_is_constant(values[used]))
                FAULT(kernel, inst, "operand %d is no constant", used);
        }
    }
    if (used != given)
        FAULT(kernel, inst, "has %d %s, %d belong to it", given, results ? "results" : "sources", used);
    return CKL_OK;
}

static ckl_status check_operands(const ir_kernel *kernel, const ir_inst *inst, const ir_rule *rule)
{
    const char *at = rule->operands;
    if (rule->types && ((unsigned)inst->type >= IR_TYPE_COUNT || !(rule->types & SET(inst->type))))
        FAULT(kernel, inst, "does not exist for %s", ir_type_text(inst->type));
    if (rule->from && ((unsigned)inst->from >= IR_TYPE_COUNT || !(rule->from & SET(inst->from))))
        FAULT(kernel, inst, "does not exist from %s", ir_type_text(inst->from));
    if (inst->mode < 0 || inst->mode > rule->last_mode)
        FAULT(kernel, inst, "mode=%d is not in 0..%d", inst->mode, rule->last_mode);
    if (inst->n && !rule->counted)
        FAULT(kernel, inst, "n=%d, but it counts nothing", inst->n);
    if (rule->sm90 && kernel->target == IR_SM80)
        FAULT(kernel, inst, "needs sm_90, the kernel is for sm_80");
    if (rule->sm90a && kernel->target != IR_SM90A)
        FAULT(kernel, inst, "needs sm_90a, the kernel is for %s", ir_target_text(kernel->target));
    TRY(check_half(kernel, inst, &at, true));
    at++; // the colon
    return check_half(kernel, inst, &at, false);
}

/* Attributes */

static bool is_1_2_4(int n)
{
    return n == 1 || n == 2 || n == 4;
}

/* The offset, and the address too if it is a constant, must be a multiple of what is accessed. */
static ckl_status check_alignment(const ir_kernel *kernel, const ir_inst *inst, val address, int64_t bytes)
{
    if (inst->offset != (int32_t)inst->offset)
        FAULT(kernel, inst, "offset=%" PRId64 " does not fit the 32 bits of an address offset", inst->offset);
    int64_t known = (int64_t)((uint64_t)inst->offset + (ir_is_constant(address) ? (uint64_t)address.i : 0));
    if (known % bytes)
        FAULT(kernel, inst, "%s %" PRId64 " is not a multiple of the %" PRId64 " bytes accessed",
              ir_is_constant(address) ? "address" : "offset", known, bytes);
    return CKL_OK;
}

static ckl_status check_space(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->space == IR_SHARED_CLUSTER && kernel->target == IR_SM80)
        FAULT(kernel, inst, "shared memory of a cluster needs sm_90");
    if (inst->scope == IR_SCOPE_CLUSTER && kernel->target == IR_SM80)
        FAULT(kernel, inst, "cluster scope needs sm_90");
    return CKL_OK;
}

/* Which orders an instruction has; strong accesses are to global memory, and to one element. */
static ckl_status check_order(const ir_kernel *kernel, const ir_inst *inst)
{
    enum { EITHER = 1 << IR_ORDER_DEFAULT | 1 << IR_ORDER_RELAXED };
    static const unsigned allowed[IR_OP_COUNT] = {
        [IR_LD] = EITHER | 1 << IR_ORDER_ACQUIRE,
        [IR_ST] = EITHER | 1 << IR_ORDER_RELEASE,
        [IR_RED] = EITHER | 1 << IR_ORDER_RELEASE,
        [IR_ATOM] = EITHER | 1 << IR_ORDER_ACQUIRE | 1 << IR_ORDER_RELEASE | 1 << IR_ORDER_ACQ_REL,
    };
    if (!(allowed[inst->op] >> inst->order & 1))
        FAULT(kernel, inst, "order=%d does not exist for %s", (int)inst->order, ir_op_text(inst->op));
    if (inst->order && (inst->space != IR_GLOBAL || inst->cache || inst->n > 1))
        FAULT(kernel, inst, "an access with an order is to one element of global memory, without a cache hint");
    return CKL_OK;
}

static ckl_status check_access(const ir_kernel *kernel, const ir_inst *inst)
{
    int64_t bytes = inst->n * ir_memory_bytes(inst->type);
    if (!is_1_2_4(inst->n) || bytes > 16)
        FAULT(kernel, inst, "n=%d elements of %s are not 1, 2 or 4 in at most 16 bytes", inst->n,
              ir_type_text(inst->type));
    TRY(check_space(kernel, inst));
    TRY(check_order(kernel, inst));
    return check_alignment(kernel, inst, inst->in[0], bytes);
}

static ckl_status check_atomic(const ir_kernel *kernel, const ir_inst *inst)
{
    const uint32_t words = SET(CKL_I32) | SET(IR_U32) | SET(CKL_I64) | SET(IR_U64);
    const uint32_t allowed[] = {
        [IR_RED_ADD] = words | SET(CKL_F32),
        [IR_RED_MIN] = words,
        [IR_RED_MAX] = words,
        [IR_RED_AND] = words,
        [IR_RED_OR] = words,
        [IR_RED_EXCH] = words | SET(CKL_F32),
    };
    if (!(allowed[inst->mode] & SET(inst->type)))
        FAULT(kernel, inst, "mode=%d does not exist for %s", inst->mode, ir_type_text(inst->type));
    TRY(check_space(kernel, inst));
    TRY(check_order(kernel, inst));
    return check_alignment(kernel, inst, inst->in[0], ir_memory_bytes(inst->type));
}

static ckl_status check_store_async(const ir_kernel *kernel, const ir_inst *inst)
{
    return check_alignment(kernel, inst, inst->in[0], ir_type_bytes(inst->type));
}

static ckl_status check_cp_async(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->n != 4 && inst->n != 8 && inst->n != 16)
        FAULT(kernel, inst, "n=%d bytes is none of 4, 8, 16", inst->n);
    if (inst->mode && inst->n != 16)
        FAULT(kernel, inst, "mode=%d is for 16 bytes alone", inst->mode);
    return check_alignment(kernel, inst, inst->in[0], inst->n);
}

static ckl_status check_bulk(const ir_kernel *kernel, const ir_inst *inst)
{
    bool prefetch = inst->op == IR_BULK_PREFETCH;
    val bytes = inst->in[prefetch ? 1 : 2];
    if (ir_is_constant(bytes) && (bytes.i <= 0 || bytes.i % 16))
        FAULT(kernel, inst, "%" PRId64 " bytes is not a multiple of 16 above 0", bytes.i);
    return prefetch ? CKL_OK : check_alignment(kernel, inst, inst->in[inst->op == IR_BULK_STORE], 16);
}

static ckl_status check_tma(const ir_kernel *kernel, const ir_inst *inst)
{
    enum { RANK_MAX = 5, ALIGNMENT = 128 };
    if (inst->n < 1 || inst->n > RANK_MAX)
        FAULT(kernel, inst, "n=%d coordinates are not in 1..%d", inst->n, RANK_MAX);
    if (inst->op == IR_TMA_LOAD && inst->mode == 1 && inst->n < 3)
        FAULT(kernel, inst, "n=%d modes have no pixels", inst->n);
    if (inst->op == IR_TMA_LOAD && kernel->cluster == 1 && !(ir_is_constant(inst->in[3]) && inst->in[3].i == 0))
        FAULT(kernel, inst, "multicast in a kernel without clusters");
    return check_alignment(kernel, inst, inst->in[inst->op == IR_TMA_STORE], ALIGNMENT);
}

static ckl_status check_mbarrier(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->op == IR_MBARRIER_ARRIVE && inst->space == IR_GLOBAL)
        FAULT(kernel, inst, "an mbarrier is in shared memory");
    TRY(check_space(kernel, inst));
    return check_alignment(kernel, inst, inst->in[0], 8);
}

static ckl_status check_barrier(const ir_kernel *kernel, const ir_inst *inst)
{
    val id = inst->in[0];
    if (ir_is_constant(id) && (id.i < 0 || id.i > 15))
        FAULT(kernel, inst, "id=%" PRId64 " is not in 0..15", id.i);
    if (inst->n < 32 || inst->n > kernel->threads || inst->n % 32)
        FAULT(kernel, inst, "n=%d threads is not a multiple of 32 in 32..%d", inst->n, kernel->threads);
    return CKL_OK;
}

static ckl_status check_setmaxnreg(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->n < 24 || inst->n > 256 || inst->n % 8)
        FAULT(kernel, inst, "n=%d registers is not a multiple of 8 in 24..256", inst->n);
    if (kernel->threads % 128)
        FAULT(kernel, inst, "threads=%d of the kernel are not whole warpgroups", kernel->threads);
    return CKL_OK;
}

/* Which types may be multiplied with each other, and what they are summed in. */
static ckl_status check_mma(const ir_kernel *kernel, const ir_inst *inst)
{
    const uint32_t f8 = SET(CKL_E4M3) | SET(CKL_E5M2), bytes = SET(CKL_I8) | SET(CKL_U8);
    uint32_t a = SET(inst->from), partners = a & f8 ? f8 : a;
    if ((unsigned)inst->from_b >= IR_TYPE_COUNT || !(partners & SET(inst->from_b)))
        FAULT(kernel, inst, "%s is not multiplied with %s", ir_type_text(inst->from), ir_type_text(inst->from_b));
    if (inst->type != (a & bytes ? CKL_I32 : CKL_F32))
        FAULT(kernel, inst, "products of %s are not summed in %s", ir_type_text(inst->from), ir_type_text(inst->type));
    return CKL_OK;
}

static ckl_status check_wgmma(const ir_kernel *kernel, const ir_inst *inst)
{
    TRY(check_mma(kernel, inst));
    if (inst->n < 8 || inst->n > 256 || inst->n % 8)
        FAULT(kernel, inst, "n=%d is not a multiple of 8 in 8..256", inst->n);
    if (inst->type == CKL_I32 && inst->n > 24 && inst->n % 16)
        FAULT(kernel, inst, "n=%d of integers is neither 24 nor a multiple of 16", inst->n);
    if (inst->mode && inst->from != CKL_F16 && inst->from != CKL_BF16)
        FAULT(kernel, inst, "operands of %s are K-major", ir_type_text(inst->from));
    if (kernel->threads % 128)
        FAULT(kernel, inst, "threads=%d of the kernel are not whole warpgroups", kernel->threads);
    for (int i = 0; i < inst->out_count; i++)
        if (inst->out[i].reg != inst->in[inst->in_count - inst->out_count + i].reg)
            FAULT(kernel, inst, "accumulator %d is not updated in place", i);
    return CKL_OK;
}

static ckl_status check_matrices(const ir_kernel *kernel, const ir_inst *inst)
{
    if (!is_1_2_4(inst->n))
        FAULT(kernel, inst, "n=%d matrices is none of 1, 2, 4", inst->n);
    return check_alignment(kernel, inst, inst->in[0], 16);
}

static ckl_status check_vote(const ir_kernel *kernel, const ir_inst *inst)
{
    bool ballot = inst->mode == IR_VOTE_BALLOT;
    if (ballot != (inst->type == IR_U32))
        FAULT(kernel, inst, "mode=%d does not give %s", inst->mode, ir_type_text(inst->type));
    return CKL_OK;
}

static ckl_status check_sreg(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->mode == IR_CLUSTER_RANK && kernel->target == IR_SM80)
        FAULT(kernel, inst, "the rank in a cluster needs sm_90");
    return CKL_OK;
}

static ckl_status check_param(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->n < 0 || inst->n >= kernel->param_count)
        FAULT(kernel, inst, "n=%d is not one of the %d parameters", inst->n, kernel->param_count);
    const ir_param *param = &kernel->params[inst->n];
    ir_type type = param->tensor_map ? IR_U64 : param->type;
    if (inst->type != type)
        FAULT(kernel, inst, "parameter %s is %s, read as %s", param->name, ir_type_text(type),
              ir_type_text(inst->type));
    return CKL_OK;
}

static ckl_status check_wait(const ir_kernel *kernel, const ir_inst *inst)
{
    if (inst->n < 0 || inst->n > 7)
        FAULT(kernel, inst, "n=%d groups is not in 0..7", inst->n);
    return CKL_OK;
}

static ckl_status check_bitcast(const ir_kernel *kernel, const ir_inst *inst)
{
    if (ir_type_bytes(inst->type) != ir_type_bytes(inst->from))
        FAULT(kernel, inst, "%s and %s differ in width", ir_type_text(inst->type), ir_type_text(inst->from));
    return CKL_OK;
}

/* PACK joins two values of half the width, or rounds two f32 to a pair; UNPACK splits, or widens a pair to two f32. */
static ckl_status check_halves(const ir_kernel *kernel, const ir_inst *inst)
{
    bool packs = inst->op == IR_PACK;
    ir_type packed = packs ? inst->type : inst->from, half = packs ? inst->from : inst->type;
    bool rounds = ir_type_is_pair(packed) && half == CKL_F32;
    if (!rounds && ir_type_bytes(packed) != 2 * ir_type_bytes(half))
        FAULT(kernel, inst, "two %s are not one %s", ir_type_text(half), ir_type_text(packed));
    return CKL_OK;
}

typedef ckl_status check(const ir_kernel *kernel, const ir_inst *inst);

static check *const checks[IR_OP_COUNT] = {
    [IR_BITCAST] = check_bitcast,
    [IR_PACK] = check_halves,
    [IR_UNPACK] = check_halves,
    [IR_SREG] = check_sreg,
    [IR_PARAM] = check_param,
    [IR_LD] = check_access,
    [IR_ST] = check_access,
    [IR_ATOM] = check_atomic,
    [IR_RED] = check_atomic,
    [IR_ST_ASYNC] = check_store_async,
    [IR_CP_ASYNC] = check_cp_async,
    [IR_CP_ASYNC_WAIT] = check_wait,
    [IR_FENCE] = check_space,
    [IR_BULK_LOAD] = check_bulk,
    [IR_BULK_STORE] = check_bulk,
    [IR_BULK_PREFETCH] = check_bulk,
    [IR_TMA_LOAD] = check_tma,
    [IR_TMA_STORE] = check_tma,
    [IR_BULK_WAIT] = check_wait,
    [IR_MBARRIER_INIT] = check_mbarrier,
    [IR_MBARRIER_ARRIVE] = check_mbarrier,
    [IR_MBARRIER_EXPECT] = check_mbarrier,
    [IR_MBARRIER_WAIT] = check_mbarrier,
    [IR_BAR_SYNC] = check_barrier,
    [IR_BAR_ARRIVE] = check_barrier,
    [IR_VOTE] = check_vote,
    [IR_LDMATRIX] = check_matrices,
    [IR_STMATRIX] = check_matrices,
    [IR_MMA] = check_mma,
    [IR_WGMMA] = check_wgmma,
    [IR_WGMMA_RS] = check_wgmma,
    [IR_WGMMA_WAIT] = check_wait,
    [IR_SETMAXNREG] = check_setmaxnreg,
};

ckl_status verify_inst(const ir_kernel *kernel, const ir_inst *inst)
{
    if ((unsigned)inst->op >= IR_OP_COUNT)
        FAULT(kernel, inst, "op %d does not exist", (int)inst->op);
    TRY(check_operands(kernel, inst, ir_rule_of(inst->op)));
    return checks[inst->op] ? checks[inst->op](kernel, inst) : CKL_OK;
}
