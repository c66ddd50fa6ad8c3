/*
 * unit_plans.c - what the problems of tests/data/plans.txt get on the devices of the tables: which kernel with which config, its
 * launches, and what its kernels are made of. It pins the choices that make kernels fast, which no wrong result betrays.
 *
 * The file has a problem a line, indented below it what was planned on the H200, and on the L4 if that differs. Two digests
 * stand there: of a kernel's PTX without its comments, and of the values that a launch passes. After an intended change, or
 * with a new problem line in the file, `build/unit_plans --update` writes it anew: the diff shows what changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/math.h"
#include "device/device.h"
#include "golden.h"
#include "lab/case.h"
#include "plan/plan.h"

#define PLANS_FILE TESTDATA "/plans.txt"

/* A loaded kernel: the emulator's, and what is known of its parameters. */
typedef struct noted_kernel {
    device_kernel *emulated;
    char name[128], made_of[256];
    int param_count;
    size_t param_bytes[IR_PARAMS_MAX];
} noted_kernel;

/* A device that plans and does not run: the emulator loads, counts resident clusters and encodes tensor maps. */
typedef struct noting_device {
    ckl_device base;
    ckl_device *emulator;
} noting_device;

static noting_device devices[] = { { .base.info.id = "emulator:h200" }, { .base.info.id = "emulator:l4" } };
static text launches; // of the plan at hand, one line each

static uint64_t digest(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3; // FNV-1a
    return hash;
}

static const uint64_t DIGEST_START = 0xcbf29ce484222325;

/* Of the code alone: comments, .file and .loc name configs and lines of C. */
static uint64_t digest_of_code(const char *ptx)
{
    uint64_t hash = DIGEST_START;
    for (const char *line = ptx; *line;) {
        size_t length = strcspn(line, "\n");
        const char *comment = strstr(line, "//"), *word = line + strspn(line, " \t");
        size_t code = comment && comment < line + length ? (size_t)(comment - line) : length;
        if (strncmp(word, ".file", 5) != 0 && strncmp(word, ".loc ", 5) != 0)
            hash = digest(hash, line, code);
        line += length + (line[length] == '\n');
    }
    return hash;
}

static void note_contents(const ir_kernel *kernel, noted_kernel *noted)
{
    int counts[IR_CLASS_COUNT] = { 0 };
    for (int i = 0; i < kernel->inst_count; i++)
        counts[ir_op_class(kernel->insts[i].op)]++;
    text ptx = { 0 };
    assert_int_equal(ir_print_ptx(kernel, &ptx), CKL_OK);
    int length =
        snprintf(noted->made_of, sizeof noted->made_of, "%d threads, cluster %d, %d per sm, smem %" PRId64 ", code",
                 kernel->threads, kernel->cluster, kernel->ctas_per_sm, kernel->smem_bytes);
    for (int i = 0; i < IR_CLASS_COUNT; i++)
        length += snprintf(noted->made_of + length, sizeof noted->made_of - (size_t)length, " %d", counts[i]);
    snprintf(noted->made_of + length, sizeof noted->made_of - (size_t)length, " #%08x",
             (unsigned)digest_of_code(text_data(&ptx)));
    text_free(&ptx);
}

static ckl_device *emulator_of(const ckl_device *d)
{
    return ((const noting_device *)d)->emulator;
}

static ckl_status load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    noted_kernel *noted = calloc(1, sizeof *noted);
    assert_non_null(noted);
    snprintf(noted->name, sizeof noted->name, "%s", kernel->name);
    note_contents(kernel, noted);
    noted->param_count = kernel->param_count;
    for (int i = 0; i < kernel->param_count; i++)
        noted->param_bytes[i] =
            kernel->params[i].tensor_map ? sizeof(tensor_map) : (size_t)ir_type_bytes(kernel->params[i].type);
    *loaded = (device_kernel *)noted;
    return emulator_of(d)->ops->load(emulator_of(d), kernel, &noted->emulated);
}

static void unload(ckl_device *d, device_kernel *kernel)
{
    emulator_of(d)->ops->unload(emulator_of(d), ((noted_kernel *)kernel)->emulated);
    free(kernel);
}

static ckl_status clusters_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    return emulator_of(d)->ops->clusters_resident(emulator_of(d), ((const noted_kernel *)kernel)->emulated, count);
}

static ckl_status encode_tensor_map(const ckl_device *d, const tensor_map_desc *desc, tensor_map *map)
{
    return emulator_of(d)->ops->encode_tensor_map(emulator_of(d), desc, map);
}

static ckl_status launch(ckl_device *d, const device_kernel *kernel, const device_launch *l, ckl_stream s)
{
    (void)d;
    (void)s;
    const noted_kernel *noted = (const noted_kernel *)kernel;
    uint64_t hash = DIGEST_START;
    for (int i = 0; i < noted->param_count; i++)
        hash = digest(hash, l->params[i], noted->param_bytes[i]);
    text_printf(&launches, "    %s: grid %" PRId64 "x%" PRId64 "x%" PRId64 ", %s, values #%08x\n", noted->name,
                l->grid[0], l->grid[1], l->grid[2], noted->made_of, (unsigned)hash);
    return CKL_OK;
}

/* Memory that nobody touches: each operand has 4 TiB of addresses. */
static void *address_of(int number)
{
    return (void *)((uintptr_t)(number + 1) << 42);
}

static ckl_status alloc(ckl_device *d, size_t bytes, void **memory)
{
    (void)d;
    (void)bytes;
    *memory = address_of(OPERANDS_MAX);
    return CKL_OK;
}

static void release(ckl_device *d, void *memory)
{
    (void)d;
    (void)memory;
}

static ckl_status fill(ckl_device *d, void *to, unsigned char byte, size_t bytes, ckl_stream s)
{
    (void)d;
    (void)to;
    (void)byte;
    (void)bytes;
    (void)s;
    return CKL_OK;
}

static ckl_status stream_create(ckl_device *d, ckl_stream *s)
{
    *s = d;
    return CKL_OK;
}

static void stream_destroy(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
}

static ckl_status synchronize(ckl_device *d, ckl_stream s)
{
    (void)d;
    (void)s;
    return CKL_OK;
}

static const device_ops ops = { .alloc = alloc,
                                .release = release,
                                .fill = fill,
                                .stream_create = stream_create,
                                .stream_destroy = stream_destroy,
                                .synchronize = synchronize,
                                .load = load,
                                .unload = unload,
                                .clusters_resident = clusters_resident,
                                .encode_tensor_map = encode_tensor_map,
                                .launch = launch };

static ckl_status run(const test_case *c, const ckl_plan *plan)
{
    operand infos[OPERANDS_MAX];
    void *pointers[OPERANDS_MAX] = { 0 };
    memset(infos, 0, sizeof infos);
    int count = adapter_operands(c->test, c->problem, infos);
    for (int i = 0; i < count; i++)
        if (infos[i].dtype != CKL_DTYPE_DEFAULT)
            pointers[i] = (char *)address_of(i) + (size_t)c->keys.misalign * ckl_dtype_bytes(infos[i].dtype);
    for (int i = 0; i < count; i++)
        adapter_pointer(&infos[i], i, pointers);
    return adapter_run(c->test, plan, pointers, NULL);
}

/* On one line, whatever the sentence has. */
static void print_sentence(ckl_status status, text *out)
{
    text_printf(out, "%s,", ckl_status_name(status));
    for (const char *at = ckl_error(); *at; at += strspn(at, "\n")) {
        size_t length = strcspn(at, "\n");
        text_printf(out, " %.*s", (int)length, at);
        at += length;
    }
    text_append(out, "\n", 1);
}

/* What a device makes of the line, "gemm sm90 ..." and its launches, or why none. */
static void plan_on(ckl_device *device, const char *line, text *out)
{
    test_case c;
    ckl_plan *plan = NULL;
    launches.length = 0;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = case_plan(&c, device, &plan);
    if (status == CKL_OK)
        status = run(&c, plan);
    if (status == CKL_OK)
        text_printf(out, "%s, workspace %" PRId64 "\n%s", plan->text, plan->workspace_bytes,
                    launches.length ? text_data(&launches) : "    nothing is launched\n");
    else
        print_sentence(status, out);
    ckl_plan_free(plan);
    case_clear(&c);
}

/* On every device; one that does as the one before is left out. Forced configs are for the first alone. */
static void plan_line(const char *line, text *out)
{
    text before = { 0 };
    int count = strstr(line, "config=") ? 1 : COUNT_OF(devices);
    for (int i = 0; i < count; i++) {
        text planned = { 0 };
        plan_on(&devices[i].base, line, &planned);
        if (strcmp(text_data(&planned), text_data(&before)) != 0)
            text_printf(out, "  %s: %s", strchr(devices[i].base.info.id, ':') + 1, text_data(&planned));
        text_free(&before);
        before = planned;
    }
    text_free(&before);
}

/* The file as it should be: problem lines and comments from the file itself, the rest as planned now. */
static void plan_all(text *now)
{
    text file = { 0 };
    assert_true(golden_read(PLANS_FILE, &file));
    for (char *line = file.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (*line == ' ')
            continue;
        text_printf(now, "%s\n", line);
        line[strcspn(line, "#")] = '\0';
        if (*line)
            plan_line(line, now);
    }
    text_free(&file);
}

static void test_plans(void **state)
{
    (void)state;
    text now = { 0 };
    plan_all(&now);
    golden_compare(PLANS_FILE, &now);
    text_free(&now);
}

static bool update(void)
{
    text now = { 0 };
    plan_all(&now);
    bool written = golden_write(PLANS_FILE, &now);
    text_free(&now);
    return written;
}

static int open_devices(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(devices); i++) {
        if (ckl_device_open(devices[i].base.info.id, &devices[i].emulator) != CKL_OK)
            return 1;
        devices[i].base = (ckl_device){ &ops, *ckl_device_properties(devices[i].emulator) };
    }
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT_OF(devices); i++) {
        plan_forget_device(&devices[i].base);
        ckl_device_close(devices[i].emulator);
    }
    text_free(&launches);
    return 0;
}

int main(int argc, char **argv)
{
    if (golden_update_wanted(argc, argv))
        return open_devices(NULL) || !update() || close_devices(NULL);
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_plans) };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
