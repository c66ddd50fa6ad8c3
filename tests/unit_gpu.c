/*
 * unit_gpu.c - streams and graphs on a GPU: every problem of the smoke suite planned while its stream is being captured
 * and run by graph, on two streams at once from one plan, on the default stream, and on two GPUs. Skipped where there
 * are none.
 */
#include "unit.h"
#include "device/cuda_driver.h"
#include "lab/check.h"

enum { CAPTURE_GLOBAL = 0, STREAM_BLOCKING = 0, RUNS = 8 };

static ckl_device *device, *second;

static int open_gpu(void **state)
{
    if (ckl_device_open("cuda:0", &device) != CKL_OK)
        device = NULL;
    if (ckl_device_open("cuda:1", &second) != CKL_OK)
        second = NULL;
    return 0;
}

static int close_gpu(void **state)
{
    ckl_device_close(second);
    ckl_device_close(device);
    return 0;
}

/* Results of the last run are read and judged. */
static ckl_status judge(check *k)
{
    check_result result;
    TRY(ckl_stream_synchronize(device, k->stream));
    TRY(operand_set_read(device, &k->images, &k->set, OPERANDS_ALL, k->stream));
    check_compare(k, &result);
    if (!result.passed)
        FAIL(CKL_INTERNAL, "%s", result.fault);
    return CKL_OK;
}

static ckl_status capture(check *k, void **graph)
{
    cu_graph captured = NULL;
    if (cuda.cuStreamBeginCapture_v2(k->stream, CAPTURE_GLOBAL))
        FAIL(CKL_DEVICE_FAULT, "no capture");
    ckl_status status = case_plan(k->c, device, &k->plan);
    if (status == CKL_OK)
        status = check_enqueue(k);
    if (cuda.cuStreamEndCapture(k->stream, &captured) || cuda.cuGraphInstantiateWithFlags(graph, captured, 0))
        return status ? status : status_fail(CKL_DEVICE_FAULT, "the capture was lost");
    cuda.cuGraphDestroy(captured);
    return status;
}

/* Planned from nothing inside of the capture, in the mode that forbids most, on a stream that waits for the default. */
static ckl_status by_graph(check *k)
{
    void *graph = NULL;
    ckl_plan_free(k->plan);
    k->plan = NULL;
    plan_forget_device(device);
    TRY(capture(k, &graph));
    ckl_status status = CKL_OK;
    for (int i = 0; i < 2 && status == CKL_OK; i++) {
        operand_images_poison(&k->images, i ? 0x7e : 0xff);
        status = operand_set_write(device, &k->images, &k->set, OPERANDS_ALL, k->stream);
        if (status == CKL_OK)
            status = device->ops->graph_launch(device, graph, k->stream);
        if (status == CKL_OK)
            status = judge(k);
    }
    device->ops->graph_destroy(device, graph);
    return status;
}

/* The same plan on two streams with memory of their own; a workspace serves one stream at a time. */
static ckl_status on_side_streams(check *k)
{
    check other = { 0 };
    TRY(check_open(k->c, device, NULL, &other));
    ckl_plan *own = other.plan;
    if (ckl_plan_workspace_bytes(k->plan) == 0)
        other.plan = k->plan;
    ckl_status status = operand_set_write(device, &k->images, &k->set, OPERANDS_ALL, k->stream);
    if (status == CKL_OK)
        status = operand_set_write(device, &other.images, &other.set, OPERANDS_ALL, other.stream);
    bool once = false; // where a run reads what the one before has written
    for (int i = 0; i < k->images.count; i++)
        once |= k->images.host[i] && k->images.each[i].info.role == OPERAND_IN_OUT;
    for (int i = 0; i < (once ? 1 : RUNS) && status == CKL_OK; i++) {
        status = check_enqueue(k);
        if (status == CKL_OK)
            status = check_enqueue(&other);
    }
    if (status == CKL_OK)
        status = judge(k);
    if (status == CKL_OK)
        status = judge(&other);
    other.plan = own;
    check_close(&other);
    return status;
}

static ckl_status passes(check *k)
{
    check_result result;
    TRY(check_run(k, &result));
    if (!result.passed)
        FAIL(CKL_INTERNAL, "%s", result.fault);
    return CKL_OK;
}

static ckl_status on_default_stream(check *k)
{
    ckl_stream stream = k->stream;
    k->stream = NULL;
    ckl_status status = passes(k);
    k->stream = stream;
    return status;
}

/* On the second GPU while the first one's context is current, and back on the first. */
static ckl_status on_two_gpus(check *k)
{
    check other = { 0 };
    ckl_status status = check_open(k->c, second, NULL, &other);
    if (status == CKL_OK)
        status = passes(&other);
    if (status == CKL_OK)
        status = passes(k);
    check_close(&other);
    return status;
}

static ckl_status try_line(const char *line, void *user)
{
    ckl_status (*const *attempt)(check * k) = user;
    test_case c;
    check k = { 0 };
    ckl_stream stream = NULL;
    if (cuda.cuStreamCreate(&stream, STREAM_BLOCKING))
        FAIL(CKL_DEVICE_FAULT, "no stream");
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = check_open(&c, device, stream, &k);
    if (status == CKL_OK)
        status = (*attempt)(&k);
    check_close(&k);
    case_clear(&c);
    ckl_stream_destroy(device, stream);
    return status;
}

static void try_suite(ckl_status (*attempt)(check *k))
{
    if (!device)
        skip();
    device->ops->synchronize(device, NULL); // makes the context this thread's, as the CUDA runtime does
    assert_ok(suite_read(TESTDATA "/../../bench/suites/smoke.txt", try_line, &attempt));
}

TEST(graphs)
{
    try_suite(by_graph);
}

TEST(side_streams)
{
    try_suite(on_side_streams);
}

TEST(default_stream)
{
    try_suite(on_default_stream);
}

TEST(two_gpus)
{
    if (!second)
        skip();
    try_suite(on_two_gpus);
}

RUN_TESTS(open_gpu, close_gpu)
