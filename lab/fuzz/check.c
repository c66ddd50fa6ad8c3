/* check.c - a batch on all devices: the slices that differ, then their programs alone, then as short as they get. */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "lab/fuzz/fuzz.h"

/* A batch on the devices, with the memory that each of two leaves. */
typedef struct comparison {
    fuzz_devices devices;
    const fuzz_batch *batch;
    unsigned char *expected, *got;
    const char *device; // that was run last
    bool failed;        // as a whole
    char why[512];
} comparison;

static size_t memory_bytes(const fuzz_batch *batch)
{
    return (size_t)(batch->slice_bytes * batch->count);
}

static comparison begin(fuzz_devices devices, const fuzz_batch *batch)
{
    return (comparison){ .devices = devices,
                         .batch = batch,
                         .expected = heap_alloc(memory_bytes(batch), 1),
                         .got = heap_alloc(memory_bytes(batch), 1) };
}

static void end(comparison *c)
{
    heap_free(c->expected);
    heap_free(c->got);
}

static ckl_status run(comparison *c, int device, const ir_kernel *kernel, unsigned char *memory)
{
    c->device = c->devices.all[device]->info.id;
    fuzz_fill(c->batch, memory);
    return fuzz_execute(c->devices.all[device], c->batch, kernel, memory);
}

static bool slice_differs(const comparison *c, int number)
{
    size_t at = (size_t)(number * c->batch->slice_bytes);
    return memcmp(c->expected + at, c->got + at, (size_t)c->batch->slice_bytes) != 0;
}

/* One program */

/* The first word of memory that differs. */
typedef struct difference {
    int64_t at; // byte
    uint32_t expected, got;
} difference;

static uint32_t word_at(const unsigned char *memory, int64_t at)
{
    uint32_t word;
    memcpy(&word, memory + at, sizeof word);
    return word;
}

static difference difference_at(const comparison *c, int64_t at)
{
    return (difference){ at, word_at(c->expected, at), word_at(c->got, at) };
}

static difference first_difference(const comparison *c)
{
    int64_t at = 0;
    while (word_at(c->expected, at) == word_at(c->got, at))
        at += 4;
    return difference_at(c, at);
}

static void describe_difference(const comparison *c, difference d, text *what)
{
    text_printf(what, "byte %" PRId64 " of its memory is 0x%08" PRIx32 " on %s and 0x%08" PRIx32 " on %s", d.at,
                d.expected, c->devices.all[0]->info.id, d.got, c->device);
}

/* What is wrong with a program. */
typedef struct symptom {
    comparison *c;
    int device;
    bool fails;      // else it differs
    char why[48];    // how the sentence of the failure begins
    difference word; // of the whole program
} symptom;

/* The kind of a fault, without where it was. */
static void begin_of_sentence(char *why, size_t size)
{
    const char *kind = strstr(ckl_error(), " in fuzz");
    snprintf(why, size, "%.*s", kind ? (int)(kind - ckl_error()) : (int)size, ckl_error());
}

static bool same_failure(const symptom *s)
{
    return strncmp(ckl_error(), s->why, strlen(s->why)) == 0;
}

static bool is_written_before(const ir_kernel *kernel, int index, int reg)
{
    for (int i = 0; i < index; i++)
        for (int j = 0; j < kernel->insts[i].out_count; j++)
            if (kernel->insts[i].out[j].reg == reg)
                return true;
    return false;
}

/* A predicate may keep a wgmma from reading its accumulators, so ir_verify() lets them be; here they need values. */
static bool has_accumulators(const ir_kernel *kernel)
{
    for (int i = 0; i < kernel->inst_count; i++) {
        const ir_inst *inst = &kernel->insts[i];
        for (int j = 0; j < inst->out_count && (inst->op == IR_WGMMA || inst->op == IR_WGMMA_RS); j++)
            if (!is_written_before(kernel, i, inst->out[j].reg))
                return false;
    }
    return true;
}

/*
 * The same two values in the same place. A program that shows addresses or unspecified NaNs, because what hid them was
 * dropped, has others.
 */
static bool same_difference(const symptom *s)
{
    difference now = difference_at(s->c, s->word.at);
    return now.expected == s->word.expected && now.got == s->word.got;
}

/* Does the kernel show the same symptom on the device, while it is sound on the first one? */
static bool still_there(void *user, const ir_kernel *kernel)
{
    symptom *s = user;
    if (ir_verify(kernel) != CKL_OK || !has_accumulators(kernel))
        return false;
    ckl_status status = run(s->c, 0, kernel, s->c->expected);
    if (s->device > 0 && status == CKL_OK)
        status = run(s->c, s->device, kernel, s->c->got);
    else if (s->device > 0)
        return false;
    return s->fails ? status != CKL_OK && same_failure(s) : status == CKL_OK && same_difference(s);
}

/* Shortens the kernel, if allowed and the symptom is reproducible; what: the sentences of the shorter program. */
static void shorten(symptom *s, ir_kernel *kernel, const fuzz_listener *listener, text *what)
{
    ckl_device *device = s->c->devices.all[s->device];
    bool tries = !fuzz_is_lost(device) && listener->may_shorten(listener->user),
         again = tries && still_there(s, kernel);
    if (again)
        fuzz_minimise(kernel, still_there, s);
    if (again && still_there(s, kernel) && !s->fails)
        s->word = difference_at(s->c, s->word.at);
    if (!s->fails)
        describe_difference(s->c, s->word, what);
    if (tries && !again)
        text_printf(what, " (not when it was run again)");
}

static void report_symptom(symptom s, fuzz_batch *batch, const fuzz_listener *listener)
{
    fuzz_finding finding = { .program = batch->first, .device = s.c->device };
    if (s.fails) {
        begin_of_sentence(s.why, sizeof s.why);
        text_printf(&finding.what, "%s", ckl_error());
    } else {
        s.word = first_difference(s.c);
    }
    shorten(&s, batch->kernel, listener, &finding.what);
    finding.length = batch->kernel->inst_count;
    ir_print(batch->kernel, &finding.ir);
    listener->report(listener->user, &finding);
    text_free(&finding.what);
    text_free(&finding.ir);
}

/* Looks for the first device that differs or fails; true: the program was reported. */
static bool judge(comparison *c, fuzz_batch *batch, const fuzz_listener *listener)
{
    if (run(c, 0, batch->kernel, c->expected) != CKL_OK) {
        report_symptom((symptom){ .c = c, .fails = true }, batch, listener);
        return true;
    }
    for (int i = 1; i < c->devices.count; i++) {
        if (!fuzz_takes(c->devices.all[i], batch->kernel->target))
            continue;
        bool fails = run(c, i, batch->kernel, c->got) != CKL_OK;
        if (!fails && !slice_differs(c, 0))
            continue;
        report_symptom((symptom){ .c = c, .device = i, .fails = fails }, batch, listener);
        return true;
    }
    return false;
}

static bool check_program(fuzz_devices devices, fuzz_set set, int64_t number, const fuzz_listener *listener)
{
    fuzz_batch batch;
    bool found = true;
    if (fuzz_describe(set, number, 1, &batch) == CKL_OK) {
        comparison c = begin(devices, &batch);
        found = judge(&c, &batch, listener);
        end(&c);
    } else {
        fuzz_finding finding = { .program = number, .device = "describing" };
        text_printf(&finding.what, "%s", ckl_error());
        listener->report(listener->user, &finding);
        text_free(&finding.what);
    }
    fuzz_batch_free(&batch);
    return found;
}

/* Batches */

/* Marks the programs that differ anywhere; all of them if the batch fails as a whole. */
static void suspect(comparison *c, bool *suspects)
{
    c->failed = run(c, 0, c->batch->kernel, c->expected) != CKL_OK;
    for (int i = 1; i < c->devices.count && !c->failed; i++) {
        if (!fuzz_takes(c->devices.all[i], c->batch->kernel->target))
            continue;
        c->failed = run(c, i, c->batch->kernel, c->got) != CKL_OK;
        for (int j = 0; j < c->batch->count && !c->failed; j++)
            suspects[j] |= slice_differs(c, j);
    }
    snprintf(c->why, sizeof c->why, "%s", c->failed ? ckl_error() : "differs");
    for (int j = 0; j < c->batch->count && c->failed; j++)
        suspects[j] = true;
}

/* Reports what happens only together with the other programs of a batch. */
static void report_batch(const comparison *c, int64_t program, const fuzz_listener *listener)
{
    fuzz_finding finding = { .program = program, .device = c->device, .length = c->batch->kernel->inst_count };
    text_printf(&finding.what, "only in its batch, %d programs from %" PRId64 " on: %s", c->batch->count,
                c->batch->first, c->why);
    ir_print(c->batch->kernel, &finding.ir);
    listener->report(listener->user, &finding);
    text_free(&finding.what);
    text_free(&finding.ir);
}

/* Programs that the batch makes suspect are run alone. */
static int check_batch(fuzz_devices devices, const fuzz_batch *batch, const fuzz_listener *listener)
{
    int found = 0;
    bool suspects[FUZZ_BATCH] = { false };
    comparison c = begin(devices, batch);
    suspect(&c, suspects);
    bool lost = c.failed && fuzz_is_lost(devices.all[devices.count - 1]);
    for (int i = 0; i < batch->count; i++) {
        if (!suspects[i] || lost)
            continue;
        bool alone = check_program(devices, batch->set, batch->first + i, listener);
        if (!alone && !c.failed)
            report_batch(&c, batch->first + i, listener);
        found += alone || !c.failed;
    }
    if (c.failed && !found && !lost) {
        report_batch(&c, batch->first, listener);
        found = 1;
    }
    end(&c);
    return lost ? FUZZ_LOST : found;
}

int fuzz_check(fuzz_devices devices, fuzz_set set, int64_t first, int count, const fuzz_listener *listener)
{
    fuzz_batch batch = { 0 };
    int found = 0;
    if (count > 1 && fuzz_describe(set, first, count, &batch) == CKL_OK)
        found = check_batch(devices, &batch, listener);
    else
        for (int i = 0; i < count; i++)
            found += check_program(devices, set, first + i, listener);
    fuzz_batch_free(&batch);
    return found;
}
