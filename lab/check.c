/* check.c - running a case once or twice, and every finding about what it left in memory. */
#include "lab/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "device/device.h"
#include "lab/clock.h"
#include "lab/compare.h"
#include "lab/host_memory.h"

enum { FIRST_POISON = 0xff, SECOND_POISON = 0x7e };

ckl_status check_replan(check *k)
{
    double begin = clock_seconds();
    ckl_plan_free(k->plan);
    k->plan = NULL;
    TRY(case_plan(k->c, k->device, &k->plan));
    k->plan_seconds = clock_seconds() - begin;
    return CKL_OK;
}

static ckl_status open_plan(check *k)
{
    TRY(check_replan(k));
    if (k->stream)
        return CKL_OK;
    TRY(ckl_stream_create(k->device, &k->stream));
    k->owns_stream = true;
    return CKL_OK;
}

ckl_status check_open(const test_case *c, ckl_device *device, ckl_stream stream, check *k)
{
    *k = (check){ .c = c, .device = device, .stream = stream };
    TRY(operand_images_fit(c, ckl_device_properties(device)));
    TRY(open_plan(k));
    TRY(operand_images_create(c, ckl_device_properties(device), &k->images));
    return operand_set_create(device, &k->images, &k->set);
}

ckl_status check_open_on(const test_case *c, ckl_device *device, ckl_stream stream, operand_images *images, check *k)
{
    *k = (check){ .c = c, .device = device, .stream = stream, .images = *images };
    *images = (operand_images){ 0 };
    TRY(open_plan(k));
    return operand_set_create(device, &k->images, &k->set);
}

void check_close(check *k)
{
    if (!k->device)
        return;
    operand_set_free(k->device, &k->set);
    operand_images_free(&k->images);
    if (k->owns_stream)
        ckl_stream_destroy(k->device, k->stream);
    ckl_plan_free(k->plan);
    *k = (check){ 0 };
}

ckl_status check_enqueue(const check *k)
{
    return adapter_run(k->c->test, k->plan, k->set.pointer, k->stream);
}

/* Runs a plan once over poisoned outputs, between writing some operands and reading some back. */
static ckl_status run_over(check *k, const ckl_plan *plan, unsigned char poison, operand_part written,
                           operand_part read)
{
    operand_images_poison(&k->images, poison);
    TRY(operand_set_write(k->device, &k->images, &k->set, written, k->stream));
    TRY(adapter_run(k->c->test, plan, k->set.pointer, k->stream));
    TRY(ckl_stream_synchronize(k->device, k->stream));
    TRY(operand_set_read(k->device, &k->images, &k->set, read, k->stream));
    return ckl_stream_synchronize(k->device, k->stream);
}

static void compare_inputs(const check *k, check_result *result)
{
    for (int i = 0; i < k->images.count; i++)
        if (k->images.host[i] && k->images.each[i].info.role == OPERAND_IN)
            result->passed &= compare_untouched(&k->images.each[i], result);
}

void check_compare_outputs(check *k, check_result *result)
{
    *result = (check_result){ .passed = true };
    int output = 0;
    for (int i = 0; i < k->images.count; i++) {
        const operand_image *o = &k->images.each[i];
        if (o->info.role == OPERAND_IN)
            continue;
        int number = output++;
        if (!k->images.host[i])
            continue;
        result->passed &= compare_padding(o, result);
        compare_output(k->c, &k->images, o, number, result);
    }
    result->passed &= result->elements_bad == 0;
}

void check_compare(check *k, check_result *result)
{
    check_compare_outputs(k, result);
    compare_inputs(k, result);
}

ckl_status check_untouched(check *k, check_result *result)
{
    *result = (check_result){ .passed = true };
    TRY(operand_set_read(k->device, &k->images, &k->set, OPERANDS_INPUTS, k->stream));
    compare_inputs(k, result);
    return CKL_OK;
}

double check_flops(const check *k)
{
    const operator_test *t = k->c->test;
    return t->flops_of_data ? t->flops_of_data(k->c->problem, k->images.host) : adapter_flops(t, k->c->problem);
}

ckl_status check_run(check *k, check_result *result)
{
    TRY(run_over(k, k->plan, FIRST_POISON, OPERANDS_ALL, OPERANDS_ALL));
    check_compare(k, result);
    return CKL_OK;
}

ckl_status check_run_outputs(check *k, check_result *result)
{
    TRY(run_over(k, k->plan, FIRST_POISON, OPERANDS_ALL, OPERANDS_OUTPUTS));
    check_compare_outputs(k, result);
    return CKL_OK;
}

ckl_status check_run_plan(check *k, const ckl_plan *plan, check_result *result)
{
    TRY(run_over(k, plan, FIRST_POISON, OPERANDS_OUTPUTS, OPERANDS_OUTPUTS));
    check_compare_outputs(k, result);
    return result->passed
               ? CKL_OK
               : operand_set_write(k->device, &k->images, &k->set, OPERANDS_ALL, k->stream); // what it spoiled
}

/*
 * What a run leaves in the plan's workspace beside zeros is of no use: the next one finds poison there. Whoever did not
 * clear a counter, or reads what the run before stored, gives another result.
 */
static ckl_status poison_workspace(const check *k)
{
    unsigned char bytes[1 << 16];
    for (int64_t at = 0, count; at < k->plan->workspace_bytes; at += count) {
        char *part = (char *)k->plan->workspace + at;
        count = min_i64(COUNT_OF(bytes), k->plan->workspace_bytes - at);
        TRY(ckl_copy_out(k->device, bytes, part, (size_t)count, k->stream));
        TRY(ckl_stream_synchronize(k->device, k->stream));
        for (int64_t i = 0; i < count; i++)
            bytes[i] = bytes[i] ? SECOND_POISON : 0;
        TRY(ckl_copy_in(k->device, part, bytes, (size_t)count, k->stream));
        TRY(ckl_stream_synchronize(k->device, k->stream));
    }
    return CKL_OK;
}

/* The first results are kept aside while `after` takes the second ones. */
ckl_status check_run_again(check *k, check_result *result)
{
    TRY(poison_workspace(k));
    if (k->plan->impl->order_dependent) {
        TRY(run_over(k, k->plan, SECOND_POISON, OPERANDS_ALL, OPERANDS_ALL));
        check_compare_outputs(k, result);
        return CKL_OK;
    }
    unsigned char *first[OPERANDS_MAX] = { 0 };
    for (int i = 0; i < k->images.count; i++) {
        operand_image *o = &k->images.each[i];
        if (!k->images.host[i] || o->info.role == OPERAND_IN)
            continue;
        first[i] = o->after;
        o->after = host_memory_take(o->bytes);
        if (!o->after)
            abort();
        memset(o->after, 0, o->bytes);
    }
    ckl_status status = run_over(k, k->plan, SECOND_POISON, OPERANDS_ALL, OPERANDS_ALL);
    for (int i = 0; i < k->images.count; i++) {
        if (first[i] && status == CKL_OK)
            result->passed &= compare_repeated(&k->images.each[i], first[i], result);
        host_memory_give(first[i], k->images.each[i].bytes);
    }
    return status;
}
