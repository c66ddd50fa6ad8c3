/* cmd_explain.c - ckl explain: the choice of kernel and what the kernel is made of. */
#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "lab/assemble.h"
#include "lab/case.h"
#include "cli/cli.h"
#include "lab/clock.h"

enum { CANDIDATES_SHOWN = 5 };

static const char *device_id, *suite, *want_choice, *want_costs, *want_ptx, *want_ir;
static const cli_option options[] = {
    { "--device", "D", &device_id, "the device to choose for; the best present if not given" },
    { "--suite", "FILE", &suite, "problem lines to explain, instead of LINE; - reads them from standard input" },
    { "--choice", NULL, &want_choice,
      "print the implementation and config taken, or why there is none, and nothing else" },
    { "--costs", NULL, &want_costs,
      "print the time that the config taken is predicted, or why there is none, and nothing else" },
    { "--ptx", NULL, &want_ptx, "print the PTX of each kernel and nothing else" },
    { "--ir", NULL, &want_ir, "print the kernel IR and nothing else" },
};

/* What a problem gets on a device. */
typedef struct chosen {
    const operator_info *op;
    const implementation *impl;
    void *config;
} chosen;

static double milliseconds_since(double begin)
{
    return (clock_seconds() - begin) * 1e3;
}

static void print_config(const implementation *impl, const void *config)
{
    text brief = { 0 };
    fields_print_brief(impl->config, config, &brief);
    printf("%s\n", text_data(&brief));
    text_free(&brief);
}

/* One line per implementation: its config, or why it declines. */
static void print_choices(const ckl_device_info *info, const operator_info *op, const void *desc, arena *memory)
{
    printf("implementations of %s on %s, in order of preference\n", op->name, info->id);
    for (const implementation *const *each = op->implementations; *each; each++) {
        const implementation *impl;
        void *config;
        ckl_status status = plan_choose(info, op, desc, (*each)->name, memory, &impl, &config);
        printf("  %-15s %s\n  %-15s   %s ", (*each)->name, (*each)->summary, "",
               status == CKL_OK ? "takes it:" : "declines:");
        if (status != CKL_OK)
            printf("%s\n", ckl_error());
        else if (plan_kernels(op, impl, config) == 0)
            printf("%s\n", impl->summary);
        else
            print_config(impl, config);
    }
}

/* The file of the tuned entry that the choice comes from. */
static ckl_status print_origin(const chosen *taken, const ckl_device_info *info, const void *desc, arena *memory)
{
    text origin = { 0 };
    ckl_status status = plan_origin(info, taken->op, desc, memory, &origin);
    if (origin.length)
        printf("tuned: %s\n", text_data(&origin));
    text_free(&origin);
    return status;
}

/* Predicted times of the config taken and of the cheapest candidates of its implementation. */
static ckl_status print_costs(const chosen *taken, const ckl_device_info *info, const void *desc, arena *memory)
{
    plan_candidate best[CANDIDATES_SHOWN];
    if (!taken->impl->cost)
        return CKL_OK;
    TRY(plan_desc(taken->op, desc, memory, &desc));
    plan_cost cost = taken->impl->cost(desc, info, taken->config);
    printf("predicted: %.2f us, bound by %s\n", cost.us, cost.bound);
    void *config = arena_alloc(memory, 1, taken->impl->config_bytes);
    int count = taken->impl->candidate ? plan_rank(info, taken->impl, desc, config, CANDIDATES_SHOWN, best) : 0;
    if (count)
        printf("predicted, the cheapest of %s\n", taken->impl->name);
    for (int i = 0; i < count; i++) {
        plan_candidate_config(info, taken->impl, desc, best[i].number, config);
        printf("  %9.2f us, bound by %-13s ", best[i].cost.us, best[i].cost.bound);
        print_config(taken->impl, config);
    }
    return CKL_OK;
}

static void print_shared_memory(const ir_kernel *kernel)
{
    printf("  shared memory %" PRId64 " bytes\n", kernel->smem_bytes);
    for (int i = 0; i < kernel->smem_count; i++) {
        const ir_smem *smem = &kernel->smem[i];
        printf("    %8" PRId64 " .. %8" PRId64 "  %-16s %8" PRId64 " bytes, aligned to %" PRId64 "\n", smem->offset,
               smem->offset + smem->bytes, smem->name, smem->bytes, smem->align);
    }
}

static void print_instructions(const ir_kernel *kernel)
{
    int counts[IR_CLASS_COUNT] = { 0 };
    for (int i = 0; i < kernel->inst_count; i++)
        counts[ir_op_class(kernel->insts[i].op)]++;
    printf("  %d IR instructions:", kernel->inst_count);
    for (int i = 0; i < IR_CLASS_COUNT; i++)
        printf(" %s %d%s", ir_class_text((ir_class)i), counts[i], i + 1 < IR_CLASS_COUNT ? "," : "\n");
}

static void print_registers(const ir_kernel *kernel)
{
    assembled result;
    if (assemble_kernel(kernel, &result) != CKL_OK)
        printf("  registers     unknown: %s\n", ckl_error());
    else if (result.good)
        printf("  registers     %d per thread, no spills\n", result.registers);
    else
        printf("  registers     %d per thread; %s\n", result.registers, result.complaint);
}

static void print_launch(const ir_kernel *kernel)
{
    printf("kernel %s\n  %d threads, cluster of %d, %s\n", kernel->name, kernel->threads, kernel->cluster,
           kernel->target == IR_SM90A  ? "sm_90a"
           : kernel->target == IR_SM90 ? "sm_90 and later"
                                       : "sm_80 and later");
    print_shared_memory(kernel);
    print_instructions(kernel);
}

static ckl_status print_kernel(const chosen *taken, int which, ir_target target)
{
    double begin = clock_seconds();
    ir_kernel *kernel;
    TRY(plan_describe(taken->op, taken->impl, taken->config, which, target, &kernel));
    double described = milliseconds_since(begin);
    ckl_status status = CKL_OK;
    text listing = { 0 };
    begin = clock_seconds();
    if (want_ir)
        ir_print(kernel, &listing);
    else
        status = ir_print_ptx(kernel, &listing);
    double printed = milliseconds_since(begin);
    if (status == CKL_OK && (want_ir || want_ptx))
        fwrite(text_data(&listing), 1, listing.length, stdout);
    else if (status == CKL_OK) {
        print_launch(kernel);
        print_registers(kernel);
        printf("  described and verified in %.2f ms, printed as %zu bytes of PTX in %.2f ms\n", described,
               listing.length, printed);
    }
    text_free(&listing);
    ir_kernel_free(kernel);
    return status;
}

static ckl_status explain(const test_case *c, const ckl_device_info *info, arena *memory)
{
    chosen taken = { .op = c->test->op };
    void *desc = case_desc(c, memory);
    bool listing = want_ptx || want_ir;
    if (!listing)
        print_choices(info, taken.op, desc, memory);
    TRY(plan_choose(info, taken.op, desc, case_force(c, memory), memory, &taken.impl, &taken.config));
    if (!listing) {
        printf("taken: %s ", taken.impl->name);
        print_config(taken.impl, taken.config);
        if (!case_force(c, memory))
            TRY(print_origin(&taken, info, desc, memory));
        TRY(print_costs(&taken, info, desc, memory));
    }
    for (int which = 0; which < plan_kernels(taken.op, taken.impl, taken.config); which++)
        TRY(print_kernel(&taken, which, plan_target(info)));
    return CKL_OK;
}

/* One line: what is taken, or microseconds and what bounds them. */
static ckl_status print_taken(const test_case *c, const ckl_device_info *info, arena *memory)
{
    const operator_info *op = c->test->op;
    void *config;
    const void *checked;
    const implementation *impl;
    TRY(plan_desc(op, case_desc(c, memory), memory, &checked));
    TRY(case_choose(c, info, memory, &impl, &config));
    if (want_choice) {
        printf("%s ", impl->name);
        print_config(impl, config);
        return CKL_OK;
    }
    if (!impl->cost)
        FAIL(CKL_UNSUPPORTED, "%s %s says no costs", op->name, impl->name);
    const plan_cost cost = impl->cost(checked, info, config);
    printf("%.2f us, bound by %s\n", cost.us, cost.bound);
    return CKL_OK;
}

static ckl_status explain_line(const char *line, void *info)
{
    test_case c;
    arena memory = { 0 };
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = want_choice || want_costs ? print_taken(&c, info, &memory) : explain(&c, info, &memory);
    arena_clear(&memory);
    case_clear(&c);
    return status;
}

/* Choices and costs are asked of many lines, old configs among them: one that is refused does not end the list. */
static ckl_status taken_or_reason(const char *line, void *info)
{
    if (explain_line(line, info) != CKL_OK)
        printf("none: %.*s\n", (int)strcspn(ckl_error(), "\n"), ckl_error());
    return CKL_OK;
}

static ckl_status explain_titled(const char *line, void *info)
{
    printf("# %s\n", line);
    ckl_status status = explain_line(line, info);
    printf("\n");
    return status;
}

static int command(int argc, char **argv)
{
    ckl_device *device = NULL;
    ckl_status status = ckl_device_open(device_id, &device);
    if (status == CKL_OK) {
        ckl_device_info info = *ckl_device_properties(device);
        status = cli_lines(argc, argv, suite,
                           !suite                      ? explain_line
                           : want_choice || want_costs ? taken_or_reason
                                                       : explain_titled,
                           &info);
    }
    ckl_device_close(device);
    return cli_exit(status);
}

CLI_COMMAND(
    explain, "LINE | --suite FILE [options]",
    "which kernel a problem gets and why; its shared memory, instructions, PTX",
    "Says which implementation a problem gets and why the others decline, then describes its kernels: config,\n"
    "launch, shared-memory map, instructions by class, registers (where ptxas is installed). Fields of configs\n"
    "that are off are left out; `ckl run` prints all.");
