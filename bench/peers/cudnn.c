/*
 * cudnn.c - conv by NVIDIA's cuDNN through its own graph API: graphs of one convolution, with every configuration that
 * its heuristics name, and every engine that they do not. Fused epilogues are left to torch, which asks cuDNN for them,
 * too.
 */
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "bench/peers/cudnn_library.h"
#include "bench/peers/peers.h"
#include "operators/conv/conv_config.h"

enum { X, W, DY, BIAS, RESIDUAL, SCALE, Y, DX, DW, DBIAS }; // order of the operands

enum { DESCS_MAX = 8192, ALIGNMENT_MAX = 128 };

static const size_t WORKSPACE_BYTES = (size_t)1 << 30;

/* A way to compute the problem. Its plan is made when it first runs: some engines compile then. */
typedef struct dnn_variant {
    dnn_desc config, plan;
    const char *source; // who named it
    text name;          // its engine and knobs
} dnn_variant;

struct peer_problem {
    const ckl_conv_desc *conv;
    ckl_device *device;
    dnn_desc graph;
    dnn_variant all[PEER_VARIANTS_MAX];
    int count;
    dnn_desc made[DESCS_MAX]; // all descriptors, in the order in which they were made
    int made_count;
    void *workspace;
};

static dnn_handle handle; // opened once, for the process

static ckl_status verdict(dnn_status result, const char *call)
{
    if (result)
        FAIL(result < 5000 ? CKL_UNSUPPORTED : CKL_DEVICE_FAULT, "cudnn: %s: status %d", call, result);
    return CKL_OK;
}

#define CALL(function, ...) TRY(verdict(dnn.function(__VA_ARGS__), #function))
#define SET(desc, attribute, type, count, values) \
    TRY(verdict(dnn.cudnnBackendSetAttribute(desc, attribute, type, count, values), "set " #attribute))
#define GET(desc, attribute, type, requested, count, values) \
    TRY(verdict(dnn.cudnnBackendGetAttribute(desc, attribute, type, requested, count, values), "get " #attribute))

static ckl_status find(void)
{
    TRY(dnn_load());
    if (!handle)
        CALL(cudnnCreate, &handle);
    return CKL_OK;
}

static ckl_status make(peer_problem *p, int type, dnn_desc *out)
{
    if (p->made_count == DESCS_MAX)
        FAIL(CKL_UNSUPPORTED, "cudnn: more than %d descriptors", (int)DESCS_MAX);
    CALL(cudnnBackendCreateDescriptor, type, out);
    p->made[p->made_count++] = *out;
    return CKL_OK;
}

static ckl_status finalize(dnn_desc desc, const char *what)
{
    return verdict(dnn.cudnnBackendFinalize(desc), what);
}

/* The graph */

/* The library's number of a type, plus 1; 0: it has none. */
static const int type_numbers[CKL_DTYPE_COUNT] = { [CKL_F32] = DNN_FLOAT + 1,
                                                   [CKL_F16] = DNN_HALF + 1,
                                                   [CKL_BF16] = DNN_BFLOAT16 + 1,
                                                   [CKL_I8] = DNN_INT8 + 1,
                                                   [CKL_I32] = DNN_INT32 + 1 };

/* The first spatial mode: slices are left out where there are none. */
static int first_mode(const ckl_conv_desc *d)
{
    return d->d == 1 && d->t == 1 && !d->pad_front && !d->pad_back ? 1 : 0;
}

/* Which operand is x, w or y (dx, dw or dy). */
static int operand_of(const ckl_conv_desc *d, int which)
{
    static const int operands[CONV_TENSORS][3] = {
        [CONV_X] = { X, DX, X }, [CONV_W] = { W, W, DW }, [CONV_Y] = { Y, DY, DY }
    };
    return operands[which][d->direction];
}

/* cuDNN's modes are (N,C,D,H,W) wherever they lie. */
static ckl_status make_tensor(peer_problem *p, int which, void *const *pointers, dnn_desc *out)
{
    static const int written[] = { [CKL_CONV_FORWARD] = CONV_Y, [CKL_CONV_DATA] = CONV_X, [CKL_CONV_WEIGHT] = CONV_W };
    const ckl_conv_desc *d = p->conv;
    const conv_tensor t = conv_tensor_of(d, which);
    const int type = type_numbers[which == written[d->direction] ? d->out : d->dtype] - 1, first = 1 + first_mode(d);
    int64_t shape[CONV_RANK] = { t.shape[0], t.shape[CONV_RANK - 1] },
            stride[CONV_RANK] = { t.stride[0], t.stride[CONV_RANK - 1] };
    const int64_t rank = 2 + CONV_MODES - first_mode(d), id = which + 1;
    for (int i = first; i <= CONV_MODES; i++) {
        shape[2 + i - first] = t.shape[i];
        stride[2 + i - first] = t.stride[i];
    }
    const int64_t alignment =
        min_i64(power_of_two_in((int64_t)(uintptr_t)pointers[operand_of(d, which)]), ALIGNMENT_MAX);
    TRY(make(p, DNN_TENSOR, out));
    SET(*out, DNN_TENSOR_DATA_TYPE, DNN_OF_DATA_TYPE, 1, &type);
    SET(*out, DNN_TENSOR_DIMENSIONS, DNN_OF_INT64, rank, shape);
    SET(*out, DNN_TENSOR_STRIDES, DNN_OF_INT64, rank, stride);
    SET(*out, DNN_TENSOR_UNIQUE_ID, DNN_OF_INT64, 1, &id);
    SET(*out, DNN_TENSOR_ALIGNMENT, DNN_OF_INT64, 1, &alignment);
    return finalize(*out, "a tensor");
}

static ckl_status make_convolution(peer_problem *p, dnn_desc *out)
{
    const ckl_conv_desc *d = p->conv;
    const int64_t behind[CONV_MODES] = { d->pad_back, d->pad_bottom, d->pad_right };
    const int first = first_mode(d), sums = d->dtype == CKL_I8 ? DNN_INT32 : DNN_FLOAT, mode = DNN_CROSS_CORRELATION;
    const int64_t count = CONV_MODES - first;
    int64_t dilations[CONV_MODES], strides[CONV_MODES], before[CONV_MODES];
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    for (int i = 0; i < CONV_MODES; i++) {
        dilations[i] = m[i].dilation;
        strides[i] = m[i].stride;
        before[i] = m[i].pad;
    }
    TRY(make(p, DNN_CONVOLUTION, out));
    SET(*out, DNN_CONVOLUTION_SPATIAL_DIMS, DNN_OF_INT64, 1, &count);
    SET(*out, DNN_CONVOLUTION_COMP_TYPE, DNN_OF_DATA_TYPE, 1, &sums);
    SET(*out, DNN_CONVOLUTION_CONV_MODE, DNN_OF_CONVOLUTION_MODE, 1, &mode);
    SET(*out, DNN_CONVOLUTION_PRE_PADDINGS, DNN_OF_INT64, count, before + first);
    SET(*out, DNN_CONVOLUTION_POST_PADDINGS, DNN_OF_INT64, count, behind + first);
    SET(*out, DNN_CONVOLUTION_DILATIONS, DNN_OF_INT64, count, dilations + first);
    SET(*out, DNN_CONVOLUTION_FILTER_STRIDES, DNN_OF_INT64, count, strides + first);
    return finalize(*out, "a convolution");
}

static ckl_status make_operation(peer_problem *p, void *const *pointers, dnn_desc *out)
{
    static const struct {
        int desc, alpha;
    } operations[] = { [CKL_CONV_FORWARD] = { DNN_FORWARD, DNN_FORWARD_ALPHA },
                       [CKL_CONV_DATA] = { DNN_BACKWARD_DATA, DNN_DATA_ALPHA },
                       [CKL_CONV_WEIGHT] = { DNN_BACKWARD_FILTER, DNN_FILTER_ALPHA } };
    static const int order[] = { CONV_W, CONV_X, CONV_Y };
    const int alpha = operations[p->conv->direction].alpha;
    const float factors[] = { 1, 0 };
    dnn_desc convolution, tensors[COUNT_OF(order)];
    TRY(make_convolution(p, &convolution));
    for (int i = 0; i < COUNT_OF(order); i++)
        TRY(make_tensor(p, order[i], pointers, &tensors[i]));
    TRY(make(p, operations[p->conv->direction].desc, out));
    for (int i = 0; i < COUNT_OF(factors); i++)
        SET(*out, alpha + i, DNN_OF_FLOAT, 1, &factors[i]);
    SET(*out, alpha + 2, DNN_OF_DESC, 1, &convolution);
    for (int i = 0; i < COUNT_OF(order); i++)
        SET(*out, alpha + 3 + i, DNN_OF_DESC, 1, &tensors[i]);
    return finalize(*out, "an operation");
}

static ckl_status make_graph(peer_problem *p, void *const *pointers)
{
    dnn_desc operation;
    TRY(make_operation(p, pointers, &operation));
    TRY(make(p, DNN_GRAPH, &p->graph));
    SET(p->graph, DNN_GRAPH_HANDLE, DNN_OF_HANDLE, 1, &handle);
    SET(p->graph, DNN_GRAPH_OPS, DNN_OF_DESC, 1, &operation);
    return finalize(p->graph, "a graph");
}

/* Its configurations */

/* The engine's number and the knobs that are set. */
static ckl_status name_config(peer_problem *p, dnn_desc config, text *name)
{
    dnn_desc engine, knobs[DNN_KNOBS_MAX];
    int64_t index, count;
    TRY(make(p, DNN_ENGINE, &engine));
    GET(config, DNN_CONFIG_ENGINE, DNN_OF_DESC, 1, &count, &engine);
    GET(engine, DNN_ENGINE_INDEX, DNN_OF_INT64, 1, &count, &index);
    text_printf(name, "engine=%" PRId64, index);
    GET(config, DNN_CONFIG_KNOB_CHOICES, DNN_OF_DESC, 0, &count, NULL);
    const int64_t found = min_i64(count, DNN_KNOBS_MAX);
    for (int i = 0; i < found; i++)
        TRY(make(p, DNN_KNOB_CHOICE, &knobs[i]));
    if (found)
        GET(config, DNN_CONFIG_KNOB_CHOICES, DNN_OF_DESC, found, &count, knobs);
    for (int i = 0; i < found; i++) {
        int type;
        int64_t value;
        GET(knobs[i], DNN_KNOB_CHOICE_TYPE, DNN_OF_KNOB_TYPE, 1, &count, &type);
        GET(knobs[i], DNN_KNOB_CHOICE_VALUE, DNN_OF_INT64, 1, &count, &value);
        text_printf(name, " knob%d=%" PRId64, type, value);
    }
    return CKL_OK;
}

/* Adds a configuration, unless it is there or cannot name its knobs. */
static void add_config(peer_problem *p, dnn_desc config, const char *source)
{
    dnn_variant v = { .config = config, .source = source };
    if (p->count == PEER_VARIANTS_MAX)
        return;
    (void)name_config(p, config, &v.name);
    for (int i = 0; i < p->count; i++)
        if (strcmp(text_data(&p->all[i].name), text_data(&v.name)) == 0) {
            text_free(&v.name);
            return;
        }
    p->all[p->count++] = v;
}

static ckl_status ask(peer_problem *p, int mode, const char *source)
{
    dnn_desc heuristic, configs[PEER_VARIANTS_MAX];
    int64_t count, written;
    TRY(make(p, DNN_HEURISTIC, &heuristic));
    SET(heuristic, DNN_HEURISTIC_GRAPH, DNN_OF_DESC, 1, &p->graph);
    SET(heuristic, DNN_HEURISTIC_MODE, DNN_OF_HEURISTIC_MODE, 1, &mode);
    TRY(finalize(heuristic, "a heuristic"));
    GET(heuristic, DNN_HEURISTIC_RESULTS, DNN_OF_DESC, 0, &count, NULL);
    count = min_i64(count, PEER_VARIANTS_MAX);
    for (int i = 0; i < count; i++)
        TRY(make(p, DNN_CONFIG, &configs[i]));
    if (count)
        GET(heuristic, DNN_HEURISTIC_RESULTS, DNN_OF_DESC, count, &written, configs);
    for (int i = 0; i < count && i < written; i++)
        add_config(p, configs[i], source);
    return CKL_OK;
}

/* An engine with its knobs as they are. */
static ckl_status add_engine(peer_problem *p, int64_t index)
{
    dnn_desc engine, config;
    TRY(make(p, DNN_ENGINE, &engine));
    SET(engine, DNN_ENGINE_GRAPH, DNN_OF_DESC, 1, &p->graph);
    SET(engine, DNN_ENGINE_INDEX, DNN_OF_INT64, 1, &index);
    TRY(finalize(engine, "an engine"));
    TRY(make(p, DNN_CONFIG, &config));
    SET(config, DNN_CONFIG_ENGINE, DNN_OF_DESC, 1, &engine);
    TRY(finalize(config, "a configuration"));
    add_config(p, config, "engines");
    return CKL_OK;
}

/* Lists what users get without searching first. A mode without configurations for the graph is no failure. */
static ckl_status list_configs(peer_problem *p)
{
    static const struct {
        int mode;
        const char *name;
    } modes[] = { { DNN_MODE_A, "a" }, { DNN_MODE_B, "b" }, { DNN_MODE_FALLBACK, "fallback" } };
    int64_t engines = 0, written;
    for (int i = 0; i < COUNT_OF(modes); i++)
        (void)ask(p, modes[i].mode, modes[i].name);
    if (!dnn.cudnnBackendGetAttribute(p->graph, DNN_GRAPH_ENGINE_COUNT, DNN_OF_INT64, 1, &written, &engines))
        for (int64_t i = 0; i < engines; i++)
            (void)add_engine(p, i);
    if (p->count == 0)
        FAIL(CKL_UNSUPPORTED, "cudnn: no engine for this problem: %s", ckl_error());
    return CKL_OK;
}

/* The peer */

static void release(peer_problem *p)
{
    while (p->made_count)
        (void)dnn.cudnnBackendDestroyDescriptor(p->made[--p->made_count]);
    for (int i = 0; i < p->count; i++)
        text_free(&p->all[i].name);
    ckl_free(p->device, p->workspace);
    heap_free(p);
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    if (d->bias || d->scale || d->residual || d->activation != CKL_ACTIVATION_IDENTITY)
        FAIL(CKL_UNSUPPORTED, "cudnn: it is asked for the convolution alone, by torch for what is fused");
    if (d->n == 0 || d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "cudnn: an empty tensor is not its problem");
    return CKL_OK;
}

static ckl_status prepare(const test_case *c, ckl_device *device, void *const *pointers, peer_problem **out)
{
    const conv_problem *problem = c->problem;
    TRY(check_problem(&problem->desc));
    peer_problem *p = heap_alloc(1, sizeof *p);
    p->conv = &problem->desc;
    p->device = device;
    ckl_status status = make_graph(p, pointers);
    if (status == CKL_OK)
        status = list_configs(p);
    if (status == CKL_OK)
        status = ckl_malloc(device, WORKSPACE_BYTES, &p->workspace);
    if (status == CKL_OK)
        *out = p;
    else
        release(p);
    return status;
}

static int variants(const peer_problem *p)
{
    return p->count;
}

static void describe(const peer_problem *p, int variant, text *out)
{
    const dnn_variant *v = &p->all[variant];
    text_printf(out, "cudnn %zu by=%s %s", dnn.cudnnGetVersion(), v->source, text_data(&v->name));
}

static ckl_status make_plan(peer_problem *p, dnn_variant *v)
{
    dnn_desc plan;
    int64_t bytes, count;
    TRY(make(p, DNN_PLAN, &plan));
    SET(plan, DNN_PLAN_HANDLE, DNN_OF_HANDLE, 1, &handle);
    SET(plan, DNN_PLAN_CONFIG, DNN_OF_DESC, 1, &v->config);
    TRY(finalize(plan, "a plan"));
    GET(plan, DNN_PLAN_WORKSPACE_SIZE, DNN_OF_INT64, 1, &count, &bytes);
    if (bytes > (int64_t)WORKSPACE_BYTES)
        FAIL(CKL_UNSUPPORTED, "cudnn: a workspace of %" PRId64 " bytes", bytes);
    v->plan = plan;
    return CKL_OK;
}

static ckl_status execute(const peer_problem *p, dnn_desc plan, dnn_desc pack, void *const *pointers)
{
    int64_t ids[CONV_TENSORS];
    void *data[CONV_TENSORS];
    for (int i = 0; i < CONV_TENSORS; i++) {
        ids[i] = i + 1;
        data[i] = pointers[operand_of(p->conv, i)];
    }
    SET(pack, DNN_PACK_UNIQUE_IDS, DNN_OF_INT64, CONV_TENSORS, ids);
    SET(pack, DNN_PACK_POINTERS, DNN_OF_POINTER, CONV_TENSORS, data);
    SET(pack, DNN_PACK_WORKSPACE, DNN_OF_POINTER, 1, &p->workspace);
    TRY(finalize(pack, "a list of pointers"));
    CALL(cudnnBackendExecute, handle, plan, pack);
    return CKL_OK;
}

static ckl_status run(const peer_problem *problem, int variant, void *const *pointers, ckl_stream stream)
{
    peer_problem *p = (peer_problem *)(uintptr_t)problem; // plans come with their first run
    dnn_variant *v = &p->all[variant];
    dnn_desc pack;
    if (!v->plan)
        TRY(make_plan(p, v));
    CALL(cudnnSetStream, handle, stream);
    CALL(cudnnBackendCreateDescriptor, DNN_VARIANT_PACK, &pack);
    const ckl_status status = execute(p, v->plan, pack, pointers);
    (void)dnn.cudnnBackendDestroyDescriptor(pack);
    return status;
}

const peer cudnn_peer = PEER("cudnn", "conv");
