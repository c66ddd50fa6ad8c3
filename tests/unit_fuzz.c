/* unit_fuzz.c - random programs: complete, repeatable, alike in every order; a planted fault is found and cut short. */
#include "unit_emulator.h"

#include "cli/fuzz_workers.h"
#include "fake_cuda.h"
#include "ir/rules.h"

enum { PROGRAMS = 8 * FUZZ_BATCH * FUZZ_KIND_COUNT }; // of each kind six batches for sm_90, two for sm_80

static ckl_device *devices[3];

static int open_devices(void **state)
{
    devices[0] = test_open("threads=1 budget=100000");
    devices[1] = test_open("threads=1 budget=100000 schedule=random completion=random");
    devices[2] = test_open("threads=1 budget=100000 completion=eager");
    return 0;
}

static int close_devices(void **state)
{
    for (int i = 0; i < COUNT_OF(devices); i++)
        devices[i]->ops->close(devices[i]);
    return 0;
}

static fuzz_set all_kinds(uint64_t seed)
{
    return (fuzz_set){ seed, FUZZ_KINDS_ALL };
}

/* The first finding, and how many came. */
typedef struct findings {
    int count, length;
    int64_t program;
    char what[256], ir[1 << 14];
} findings;

static void take(void *user, const fuzz_finding *finding)
{
    findings *f = user;
    if (f->count++)
        return;
    f->length = finding->length;
    f->program = finding->program;
    snprintf(f->what, sizeof f->what, "%s", text_data(&finding->what));
    snprintf(f->ir, sizeof f->ir, "%s", text_data(&finding->ir));
}

/* Making a program short takes long. */
static bool is_first(void *user)
{
    return ((const findings *)user)->count == 0;
}

static bool never(void *user)
{
    return false;
}

TEST(same_under_all_schedules)
{
    findings f = { 0 };
    fuzz_listener listener = { take, is_first, &f };
    for (int first = 0; first < PROGRAMS; first += FUZZ_BATCH)
        assert_int_equal(
            fuzz_check((fuzz_devices){ devices, COUNT_OF(devices) }, all_kinds(3), first, FUZZ_BATCH, &listener), 0);
    assert_int_equal(f.count, 0);
}

static unsigned char *memory_after(const fuzz_batch *batch)
{
    unsigned char *memory = malloc((size_t)(batch->slice_bytes * batch->count));
    fuzz_fill(batch, memory);
    assert_ok(fuzz_execute(devices[0], batch, batch->kernel, memory));
    return memory;
}

/* A program of a batch leaves the same memory as alone: so what a batch shows can be repeated. */
TEST(alone_as_in_its_batch)
{
    for (int first = 0; first < FUZZ_KIND_COUNT * FUZZ_BATCH; first += FUZZ_BATCH) {
        fuzz_batch batch, alone;
        assert_ok(fuzz_describe(all_kinds(4), first, FUZZ_BATCH, &batch));
        unsigned char *together = memory_after(&batch);
        for (int i = 0; i < FUZZ_BATCH; i += 5) {
            assert_ok(fuzz_describe(all_kinds(4), first + i, 1, &alone));
            unsigned char *single = memory_after(&alone);
            assert_memory_equal(single, together + i * batch.slice_bytes, (size_t)alone.slice_bytes);
            fuzz_batch_free(&alone);
            free(single);
        }
        fuzz_batch_free(&batch);
        free(together);
    }
}

/* Coverage: the ops, and the types of arithmetic, that programs contain. */

static bool seen[IR_OP_COUNT], seen_types[IR_OP_COUNT][IR_TYPE_COUNT][IR_TYPE_COUNT];

/* What ptxas 13.0 makes something else of. */
static bool is_miscompiled(const ir_inst *inst)
{
    bool shift = inst->op == IR_SHL || inst->op == IR_SHR, narrow = inst->type == CKL_I16 || inst->type == IR_U16;
    bool wide = inst->type == CKL_I64 || inst->type == IR_U64;
    if (shift && (narrow || wide))
        return ir_is_constant(inst->in[1]) && inst->in[1].i > (wide ? 63 : UINT16_MAX);
    if (inst->op == IR_SELECT && ir_type_is_float(inst->type))
        return ir_is_constant(inst->in[1]) && ir_is_constant(inst->in[2]);
    if (inst->op == IR_MOV && inst->type == IR_PRED)
        return ir_is_constant(inst->in[0]);
    bool halves = inst->op == IR_PACK && ir_type_is_pair(inst->type);
    return halves && (ir_is_constant(inst->in[0]) || ir_is_constant(inst->in[1]));
}

static int uses_of(const ir_kernel *kernel, int reg, ir_op op)
{
    int uses = 0;
    for (int i = 0; i < kernel->inst_count; i++)
        for (int j = 0; j < kernel->insts[i].in_count; j++)
            uses += kernel->insts[i].in[j].reg == reg && (op == IR_OP_COUNT || kernel->insts[i].op == op);
    return uses;
}

/* Do the accumulators of wgmma begin with values that nothing else uses? What else ptxas takes for the sums. */
static void check_accumulators(const ir_kernel *kernel)
{
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        bool first = inst->op == IR_MOV && strcmp(inst->file, "wgmma") == 0 && !ir_is_constant(inst->in[0]);
        if (first)
            assert_int_equal(uses_of(kernel, inst->in[0].reg, IR_MOV), uses_of(kernel, inst->in[0].reg, IR_OP_COUNT));
    }
}

static void see(fuzz_set set, int programs)
{
    for (int first = 0; first < programs; first += FUZZ_BATCH) {
        fuzz_batch batch;
        assert_ok(fuzz_describe(set, first, FUZZ_BATCH, &batch));
        for (int i = 0; i < batch.kernel->inst_count; i++) {
            const ir_inst *inst = &batch.kernel->insts[i];
            assert_false(is_miscompiled(inst));
            seen[inst->op] = seen_types[inst->op][inst->type][inst->from] = true;
        }
        check_accumulators(batch.kernel);
        fuzz_batch_free(&batch);
    }
}

static bool is_absent(ir_op op)
{
    for (const fuzz_absence *a = fuzz_absent; a->reason; a++)
        if (a->op == op)
            return true;
    return false;
}

TEST(every_op_is_there)
{
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (seen[op] == is_absent((ir_op)op))
            fail_msg("%s is %s", ir_op_text((ir_op)op), seen[op] ? "there, and said to be absent" : "in no program");
}

TEST(every_type_is_there)
{
    for (int op = IR_MOV; op <= IR_SQRT; op++)
        for (int type = 0; type < IR_TYPE_COUNT; type++)
            for (int from = 0; from < IR_TYPE_COUNT; from++)
                if (fuzz_has_arithmetic((ir_op)op, (ir_type)type, (ir_type)from, IR_SM90A) !=
                    seen_types[op][type][from])
                    fail_msg("%s of %s from %s is %s", ir_op_text((ir_op)op), ir_type_text((ir_type)type),
                             ir_type_text((ir_type)from), seen_types[op][type][from] ? "there" : "in no program");
}

/* Planted faults: a device that executes another kernel than it was given. */

static const device_ops *honest;
static void (*tamper)(ir_inst *inst);

static ckl_status load_tampered(ckl_device *device, const ir_kernel *kernel, device_kernel **loaded)
{
    ir_kernel other = *kernel;
    other.insts = malloc((size_t)kernel->inst_count * sizeof *other.insts);
    memcpy(other.insts, kernel->insts, (size_t)kernel->inst_count * sizeof *other.insts);
    for (int i = 0; i < kernel->inst_count; i++)
        tamper(&other.insts[i]);
    ckl_status status = honest->load(device, &other, loaded);
    free(other.insts);
    return status;
}

static void round_up_bytes(ir_inst *inst) // permutes bytes as if the last selector were 0
{
    static const val zero = { .type = IR_U32, .reg = IR_CONSTANT };
    static val in[3];
    if (inst->op != IR_PRMT)
        return;
    in[0] = inst->in[0], in[1] = inst->in[1], in[2] = zero;
    inst->in = in;
}

static void swap_shifts(ir_inst *inst)
{
    inst->op = inst->op == IR_SHR && inst->type == CKL_I32 ? IR_SHL : inst->op;
}

static void drop_barriers(ir_inst *inst)
{
    if (inst->op == IR_BAR_SYNC)
        *inst = (ir_inst){ .op = IR_WARP_SYNC, .file = inst->file, .line = inst->line };
}

/* Checks programs until one differs; what was found. */
static findings find_planted(void (*fault)(ir_inst *inst), int kind, bool (*may_shorten)(void *user))
{
    findings f = { 0 };
    fuzz_listener listener = { take, may_shorten, &f };
    device_ops ops = *devices[1]->ops;
    honest = devices[1]->ops;
    tamper = fault;
    ops.load = load_tampered;
    devices[1]->ops = &ops;
    for (int first = 0; first < 64 * FUZZ_BATCH && !f.count; first += FUZZ_BATCH)
        fuzz_check((fuzz_devices){ devices, 2 }, (fuzz_set){ 5, kind }, first, FUZZ_BATCH, &listener);
    devices[1]->ops = honest;
    return f;
}

TEST(finds_a_wrong_instruction)
{
    static void (*const faults[])(ir_inst *) = { round_up_bytes, swap_shifts };
    static const char *const words[] = { "prmt", "shr.i32" };
    for (int i = 0; i < COUNT_OF(faults); i++) {
        findings f = find_planted(faults[i], FUZZ_ARITHMETIC, is_first);
        findings whole = find_planted(faults[i], FUZZ_ARITHMETIC, never);
        assert_true(f.count > 0);
        assert_says(f.ir, words[i]);
        assert_says(f.what, "of its memory is 0x");
        assert_string_equal(f.what, whole.what); // the short program does what the long one did
        assert_true(whole.length > 2 * f.length);
        if (f.length > 12)
            fail_msg("%d instructions are left:\n%s", f.length, f.ir);
    }
}

TEST(reports_a_device_that_fails)
{
    findings f = find_planted(drop_barriers, FUZZ_SHARED, is_first);
    assert_true(f.count > 0);
    assert_says(f.what, "shared memory");
    if (f.length > 16)
        fail_msg("%d instructions are left:\n%s", f.length, f.ir);
}

static void transpose_b(ir_inst *inst) // of a wgmma, whose result is then another sum
{
    bool halves = inst->from == CKL_F16 || inst->from == CKL_BF16;
    inst->mode ^= inst->op == IR_WGMMA && inst->n == 8 && halves ? 2 : 0;
}

static int occurrences(const char *words, const char *word)
{
    int count = 0;
    for (const char *at = words; (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

/* A short program has accumulators still, and whole descriptors; what was seen of the long one is seen of it. */
TEST(keeps_what_a_wgmma_needs)
{
    findings f = find_planted(transpose_b, FUZZ_MATRIX, is_first);
    assert_true(f.count > 0);
    assert_true(occurrences(f.ir, "= mov.f32") >= 4); // n=8: four accumulators of a thread
    assert_says(f.ir, "wgmma");
}

/* Minimising: control flow, and what must not be dropped. */

static bool multiplies(void *tries, const ir_kernel *kernel)
{
    bool found = false;
    ++*(int *)tries;
    if (ir_verify(kernel) != CKL_OK)
        return false;
    for (int i = 0; i < kernel->inst_count; i++)
        found |= kernel->insts[i].op == IR_MUL;
    return found;
}

TEST(minimises_through_blocks)
{
    ir_kernel *kernel = NULL;
    int tries = 0;
    ir_describe_begin("blocks", IR_SM80);
    val x = ir_sreg(IR_TID_X), y = ir_reg(IR_U32), small = ir_compare(IR_LT, x, ir_u32(7));
    ir_assign(y, x);
    ir_loop();
    ir_break(small);
    ir_if(ir_compare(IR_EQ, x, ir_u32(9)));
    ir_assign(y, ir_binary(IR_ADD, x, y));
    ir_else();
    ir_assign(y, ir_binary(IR_MUL, x, y));
    ir_end_if();
    ir_end_loop();
    assert_ok(ir_describe_end(&kernel));
    fuzz_minimise(kernel, multiplies, &tries);
    text words = { 0 };
    ir_print(kernel, &words);
    if (kernel->inst_count != 1)
        fail_msg("%s", words.data);
    text_free(&words);
    assert_int_equal(kernel->insts[0].op, IR_MUL);
    assert_true(tries < 200);
    ir_kernel_free(kernel);
}

/* Any kernel will do; none that is run on the way runs to its budget. */
static bool ends_at_all(void *user, const ir_kernel *kernel)
{
    const fuzz_batch *batch = user;
    if (ir_verify(kernel) != CKL_OK)
        return false;
    unsigned char *memory = malloc((size_t)batch->slice_bytes);
    fuzz_fill(batch, memory);
    if (fuzz_execute(devices[0], batch, kernel, memory) != CKL_OK && strstr(ckl_error(), "endless"))
        fail_msg("%s", ckl_error());
    free(memory);
    return kernel->inst_count > 40;
}

TEST(shorter_programs_end)
{
    for (int number = 0; number < 4; number++) {
        fuzz_batch batch;
        assert_ok(fuzz_describe((fuzz_set){ 1, FUZZ_CONTROL }, number, 1, &batch));
        fuzz_minimise(batch.kernel, ends_at_all, &batch);
        fuzz_batch_free(&batch);
    }
}

/* The processes of the command share the programs and say what they cannot open. */

TEST(workers_check_every_program_once)
{
    fuzz_sums sums = { 0 };
    fuzz_request request = { .set = all_kinds(6), .count = 5 * FUZZ_BATCH - 3, .workers = 2 };
    assert_ok(fuzz_run(&request, &sums));
    for (int kind = 0; kind < FUZZ_KIND_COUNT; kind++)
        assert_int_equal(sums.programs[kind], kind == FUZZ_ASYNC ? FUZZ_BATCH - 3 : FUZZ_BATCH);
    assert_int_equal(sums.differences, 0);
    assert_int_equal(sums.alone, 0);
    request.device = "emulator:l4"; // takes every fourth batch of a kind
    request.set.kind = FUZZ_MATRIX;
    assert_ok(fuzz_run(&request, &sums));
    assert_int_equal(sums.alone, 4 * FUZZ_BATCH - 3);
    request.device = "emulator:none";
    assert_int_not_equal(fuzz_run(&request, &sums), CKL_OK);
    assert_says(ckl_error(), "emulator:none is not known");
}

/* On a driver whose kernels do nothing every program differs; where each launch costs the device, each one fails. */
TEST(every_program_is_reported_once)
{
    const fake_cuda *fake = fake_cuda_load();
    assert_non_null(fake);
    fuzz_request request = { .set = { 7, FUZZ_ARITHMETIC }, .count = FUZZ_BATCH, .device = "cuda", .workers = 1 };
    for (int lost = 0; lost < 2; lost++) {
        fuzz_sums sums = { 0 };
        if (lost)
            fake->fail_named("cuLaunchKernelEx", FAKE_LAUNCH_FAILED);
        assert_ok(fuzz_run(&request, &sums));
        assert_int_equal(sums.programs[FUZZ_ARITHMETIC], FUZZ_BATCH);
        assert_int_equal(sums.differences, FUZZ_BATCH);
    }
    fake->reset();
}

int main(void)
{
    see(all_kinds(1), PROGRAMS);
    see((fuzz_set){ 2, FUZZ_ARITHMETIC }, 10 * PROGRAMS);
    return run_enlisted(open_devices, close_devices);
}
