/*
 * unit_order.c - what orders a kernel's accesses is needed, and is seen to be missing. In kernels of the library each
 * barrier, arrival, wait and fence is left out in turn, each acquire and release made relaxed, each wait for groups
 * made to leave one more pending. Every time the verifier refuses the kernel, or its launch ends with a report; what
 * passes stands here with its reason.
 *
 * The GPU is an H200 of few SMs, on which two clusters run at once: they take many tiles each, and their rings wrap.
 * `build/unit_order 'LINE'` shows what becomes of each change of a problem's kernels.
 */
#include "unit.h"
#include "base/math.h"
#include "device/device.h"
#include "ir/build.h"
#include "lab/check.h"
#include "plan/kernel_cache.h"
#include "emulated_device.h"

enum { SMS_FEW = 4, CLUSTERS_RESIDENT = 2, KERNELS_MAX = 8, CHANGES_MAX = 128, SPARED_MAX = 8, AGAIN_THREADS = 1024 };

enum { LEFT_OUT, RELAXED, ONE_MORE_PENDING, KINDS };

/* Of all instructions that one place of the source describes: unrolled loops make several. */
typedef struct change {
    int kind, kernel; // kernel: of the plan's, in the order in which they are loaded
    ir_op op;
    const char *file;
    int line;
} change;

static const char *const kinds[] = { "left out", "relaxed", "one more pending" };

/* What nobody notices of a problem, and why. */
typedef struct spared {
    const char *file;
    ir_op op;
    const char *why;
} spared;

typedef struct problem {
    const char *line;
    bool full; // left to CKL_TEST_FULL
    int sms;   // 0: SMS_FEW
    spared spared[SPARED_MAX];
} problem;

#define OF_GRADIENTS                                                                                               \
    { "attention_backward_queries.c", IR_FENCE_PROXY_ASYNC, "sums of dQ are atomics: their order is no race" },    \
        { "attention_backward_queries.c", IR_WGMMA_FENCE, "no register is used between it and the fence before" }, \
        { "attention_sm90_backward.c", IR_WGMMA_FENCE, "no register is used between it and the fence before" },    \
        { "attention_sm90_backward.c", IR_WGMMA_WAIT, "with dQ, each step has waited for its own products" },      \
    {                                                                                                              \
        "attention_sm90_backward.c", IR_WARP_SYNC, "with dQ, the barrier of the slopes is between"                 \
    }

static const problem problems[] = {
    { .line = "layernorm rows=30 cols=1283 dtype=f16 direction=backward ldx=1347 ldy=1291 impl=backward "
              "config='persistent_ctas=1 threads=96 row_threads=96 steps=1 stages=6 residence=registers chunks=2'",
      .spared = { { "norm_columns.c", IR_WARP_SYNC, "lanes of a warp share a clock" } } },
    { .line = "softmax shape=8x33333 dtype=bf16 impl=pipeline config='cluster=2 stages=6 residence=ring'",
      .spared = { { "row_pipeline.c", IR_CLUSTER_WAIT, "each CTA has waited for all that peers send to it" } } },
    { .line = "groupnorm n=2 c=160 h=24 w=24 groups=4 direction=backward impl=backward config='cluster=4 parts=1 "
              "threads=480 column_threads=12 steps=3 kept=0'", // channels of two warps
      .full = true },
    { .line = "gemm m=256 n=192 k=128 a=bf16 impl=sm90 config='tile_m=64 tile_n=32 stages=2 consumers=2 pingpong=1 "
              "cluster_m=2 cluster_n=1 buffers=2'" },
    { .line = "gemm m=192 n=192 k=192 a=bf16 beta=1 impl=sm90 config='tile_m=64 tile_n=32 stages=2 consumers=1 "
              "pingpong=0 cluster_m=1 cluster_n=2 buffers=3'",
      .spared = { { "gemm_sm90_ahead.c", IR_BULK_WAIT, "runs where beta is 0" },
                  { "gemm_sm90_ahead.c", IR_BAR_SYNC, "runs where beta is 0" } } },
    { .line = "gemm m=256 n=96 k=192 a=bf16 impl=sm90 config='tile_m=64 tile_n=32 stages=2 consumers=1 pingpong=0 "
              "cluster_m=2 cluster_n=1 buffers=2'",
      .full = true },
    { .line = "gemm m=128 n=128 k=160 a=f16 impl=tiled",
      .full = true,
      .spared = { { "stage_loop.c", IR_CP_ASYNC_WAIT, "at the end: nothing else uses the stages' memory" } } },
    { .line = "conv n=2 c=64 h=16 w=12 k=64 pad=1 dtype=bf16 impl=sm90 config='tall=0 held=0 stages=4'", .full = true },
    { .line = "conv n=8 c=64 h=16 w=12 k=64 pad=1 stride=2 direction=data impl=sm90 config='stages=2'" },
    { .line = "conv n=6 c=64 h=16 w=16 k=64 pad=1 bias=1 residual=1 impl=sm90 config='tall=1 held=3 im2col=0 "
              "box_w=8 box_h=8 box_n=1 consumers=1 tile_n=64 stages=2'",
      .full = true },
    { .line = "conv n=8 c=32 h=14 w=30 k=32 groups=32 pad=1 impl=halo config='wide=2 images=1 "
              "high=8 stages=2 ctas=1'" },
    { .line = "conv n=4 c=64 h=16 w=16 k=64 pad=1 dtype=bf16 direction=weight impl=sm90_weight config='stages=2'",
      .full = true },
    { .line = "attention heads=2 q=200 kv=200 d=64 causal=1 impl=sm90 config='consumers=1 tile_n=64 slots=4 old=0'",
      .full = true,
      .spared = { { "attention_sm90.c", IR_WGMMA_FENCE, "no register is used between it and the fence before" } } },
    { .line = "attention heads=2 q=200 kv=150 d=64 direction=backward impl=sm90_backward",
      .full = true,
      .spared = { { "attention_backward_queries.c", IR_BULK_WAIT, "in order, each step has waited for its own sums" },
                  OF_GRADIENTS } },
    { .line = "attention heads=2 q=300 kv=500 d=64 direction=backward impl=sm90_backward_unordered",
      .full = true,
      .spared = { { "attention_backward_queries.c", IR_BULK_WAIT, "the end of the kernel waits for sums, too" },
                  OF_GRADIENTS } },
    { .line = "attention_decode batch=2 heads=8 kv_heads=2 kv=2000 d=128 impl=sm80 config='warps=4 keys=16 stages=3 "
              "split=512 run=1'",
      .full = true,
      .sms = 132,
      .spared = { { "attention_decode_sm80.c", IR_WARP_SYNC, "lanes of a warp share a clock" } } },
    { .line = "attention_decode latent=1 heads=6 kv_heads=2 kv=1000 d=136 dv=128 batch=3 shortest=300 lse=1 "
              "impl=latent_few config='split=64 run=16'",
      .full = true,
      .spared = { { "attention_decode_latent_few.c", IR_WARP_SYNC, "lanes of a warp share a clock" } } },
    { .line = "reduce op=sum shape=3000x300 axes=0 impl=columns config='threads=256 lanes=8 vec=4 split=24'",
      .full = true },
};

/* The device */

static const device_ops *emulated;
static device_ops small;      // loads kernels with a change
static const change *planted; // NULL: what there is to change is noted
static change changes[CHANGES_MAX];
static int change_count, loaded;
static const device_kernel *kernels[KERNELS_MAX];
static bool launched[KERNELS_MAX];

static bool orders_memory(ir_op op)
{
    switch (op) {
    case IR_MBARRIER_INIT: // makes a barrier
    case IR_MBARRIER_EXPECT:
    case IR_SETMAXNREG:
    case IR_LAUNCH_DEPENDENTS: // lets the next launch begin early
        return false;
    default:
        return ir_op_class(op) == IR_SYNC;
    }
}

/* A kernel without grid_wait begins when the launch before has ended. */
static bool waits_again(const ir_kernel *kernel)
{
    int waits = 0;
    for (int i = 0; i < kernel->inst_count; i++)
        waits += kernel->insts[i].op == IR_GRID_WAIT;
    return waits > 1;
}

static bool can_change(const ir_inst *inst, int kind)
{
    const ir_op op = inst->op;
    return kind == LEFT_OUT  ? orders_memory(op)
           : kind == RELAXED ? inst->order > IR_ORDER_RELAXED
                             : op == IR_BULK_WAIT || op == IR_WGMMA_WAIT || op == IR_CP_ASYNC_WAIT;
}

static bool is_at(const change *c, const ir_inst *inst)
{
    return c->op == inst->op && c->line == inst->line && strcmp(c->file, inst->file) == 0;
}

static void note(const ir_inst *inst, int kind)
{
    if (!can_change(inst, kind))
        return;
    for (const change *c = changes; c < changes + change_count; c++)
        if (c->kind == kind && c->kernel == loaded && is_at(c, inst))
            return;
    assert_true(change_count < CHANGES_MAX);
    changes[change_count++] = (change){ kind, loaded, inst->op, inst->file, inst->line };
}

static void leave_out(ir_kernel *kernel, int i)
{
    kernel->inst_count--;
    memmove(&kernel->insts[i], &kernel->insts[i + 1], (size_t)(kernel->inst_count - i) * sizeof *kernel->insts);
    for (int j = 0; j < kernel->inst_count; j++)
        kernel->insts[j].match -= kernel->insts[j].match > i;
}

static void plant(ir_kernel *kernel)
{
    for (int i = kernel->inst_count - 1; i >= 0; i--) {
        ir_inst *inst = &kernel->insts[i];
        if (!is_at(planted, inst))
            continue;
        if (planted->kind == LEFT_OUT)
            leave_out(kernel, i);
        else if (planted->kind == RELAXED)
            inst->order = IR_ORDER_RELAXED;
        else
            inst->n++;
    }
}

static ckl_status load(ckl_device *d, const ir_kernel *kernel, device_kernel **result)
{
    assert_true(loaded < KERNELS_MAX);
    for (int i = 0; i < kernel->inst_count && !planted; i++)
        for (int kind = 0; kind < KINDS && (kernel->insts[i].op != IR_GRID_WAIT || waits_again(kernel)); kind++)
            note(&kernel->insts[i], kind);
    if (planted && planted->kernel == loaded)
        plant((ir_kernel *)(uintptr_t)kernel);
    TRY(ir_verify(kernel));
    TRY(emulated->load(d, kernel, result));
    kernels[loaded++] = *result;
    return CKL_OK;
}

static ckl_status launch(ckl_device *d, const device_kernel *kernel, const device_launch *l, ckl_stream s)
{
    for (int i = 0; i < loaded; i++)
        launched[i] |= kernels[i] == kernel;
    return emulated->launch(d, kernel, l, s);
}

static ckl_status count_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    *count = CLUSTERS_RESIDENT;
    return CKL_OK;
}

static int open_small_device(void **state)
{
    if (open_device(state))
        return 1;
    emulated = device->ops;
    small = *emulated;
    small.load = load;
    small.launch = launch;
    device->ops = &small;
    return 0;
}

/* The launches before, which store each byte of an operand again. None waits for another until its end. */

static void store_again(void)
{
    const val memory = ir_scalar_param(IR_U64, "memory"), bytes = ir_scalar_param(IR_U32, "bytes");
    const val at = ir_fma(ir_sreg(IR_CTA_X), ir_u32(AGAIN_THREADS), ir_sreg(IR_TID_X));
    const val address = ir_binary(IR_ADD, memory, ir_convert(IR_U64, at));
    val x = ir_reg(CKL_U8);
    ir_plain(IR_LAUNCH_DEPENDENTS, 0, 0);
    ir_if(ir_compare(IR_EQ, bytes, ir_u32(0)));
    ir_plain(IR_GRID_WAIT, 0, 0); // never; so the verifier takes what follows
    ir_end_if();
    ir_if(ir_compare(IR_LT, at, bytes));
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_U8, 1, address, 0, &x);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_U8, 1, address, 0, &x);
    ir_end_if();
    ir_plain(IR_GRID_WAIT, 0, 0);
}

static ckl_status launches_before(const check *k)
{
    ir_kernel *kernel;
    device_kernel *again;
    ir_describe_begin("store_again", IR_SM90A);
    ir_current()->threads = AGAIN_THREADS;
    store_again();
    TRY(ir_describe_end(&kernel));
    ckl_status status = emulated->load(device, kernel, &again);
    ir_kernel_free(kernel);
    for (int i = 0; i < k->images.count && status == CKL_OK; i++) {
        const uint32_t bytes = (uint32_t)k->images.each[i].bytes;
        const device_launch l = { .grid = { ceil_div(bytes, AGAIN_THREADS), 1, 1 },
                                  .params = (void *[]){ (void *)(uintptr_t)&k->set.allocation[i],
                                                        (void *)(uintptr_t)&bytes } };
        if (k->set.allocation[i])
            status = emulated->launch(device, again, &l, k->stream);
    }
    emulated->unload(device, again);
    return status;
}

/* Problems */

static ckl_status run(const test_case *c)
{
    check k;
    kernel_cache_forget(device);
    loaded = 0;
    ckl_status status = check_open(c, device, NULL, &k);
    if (status == CKL_OK)
        status = operand_set_write(device, &k.images, &k.set, OPERANDS_ALL, k.stream);
    if (status == CKL_OK)
        status = launches_before(&k);
    for (int i = 0; i < 2 && status == CKL_OK; i++) // each begins before the launch before has ended
        status = check_enqueue(&k);
    if (status == CKL_OK)
        status = ckl_stream_synchronize(device, k.stream);
    check_close(&k);
    return status;
}

static const spared *find_spared(const problem *p, const change *c)
{
    const char *slash = strrchr(c->file, '/'), *file = slash ? slash + 1 : c->file;
    for (const spared *s = p->spared; s < p->spared + SPARED_MAX && s->file; s++)
        if (s->op == c->op && strcmp(s->file, file) == 0)
            return s;
    return NULL;
}

/* Runs the problem with one change; says what came of it. False: nobody noticed, and no reason is known. */
static bool run_changed(const problem *p, const test_case *c, bool *used, text *said)
{
    const bool noticed = run(c) != CKL_OK;
    const spared *s = find_spared(p, planted);
    text_printf(said, "%s: %s of %s:%d %s: %s", p->line, ir_op_text(planted->op), planted->file, planted->line,
                kinds[planted->kind],
                noticed ? ckl_error()
                : s     ? s->why
                        : "nobody notices");
    if (s && !noticed)
        used[s - p->spared] = true;
    return noticed || s;
}

static void check_problem(const problem *p, bool show)
{
    test_case c;
    bool used[SPARED_MAX] = { 0 };
    change_count = 0;
    planted = NULL;
    memset(launched, 0, sizeof launched);
    device->info.sm_count = p->sms ? p->sms : SMS_FEW;
    small.clusters_resident = p->sms ? emulated->clusters_resident : count_resident;
    if (case_parse(p->line, &c) != CKL_OK || run(&c) != CKL_OK)
        fail_msg("%s: %s", p->line, ckl_error());
    for (planted = changes; planted < changes + change_count; planted++) {
        if (!launched[planted->kernel])
            continue;
        text said = { 0 };
        const bool known = run_changed(p, &c, used, &said);
        if (show)
            print_message("%s\n", text_data(&said));
        else if (!known)
            fail_msg("%s", text_data(&said));
        text_free(&said);
    }
    for (const spared *s = p->spared; s < p->spared + SPARED_MAX && s->file; s++)
        if (!used[s - p->spared])
            fail_msg("%s: each change of %s in %s is noticed", p->line, ir_op_text(s->op), s->file);
    planted = NULL;
    assert_ok(run(&c)); // what was noticed were the changes
    case_clear(&c);
}

static const char *shown; // the line of which all is shown, alone

TEST(changes)
{
    if (shown)
        check_problem(&(problem){ .line = shown }, true);
    for (const problem *p = problems; !shown && p < problems + COUNT_OF(problems); p++)
        if (!p->full || getenv("CKL_TEST_FULL"))
            check_problem(p, false);
}

int main(int argc, char **argv)
{
    shown = argc > 1 ? argv[1] : NULL;
    return run_enlisted(open_small_device, close_device);
}
