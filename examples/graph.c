/*
 * graph.c - two plans in a CUDA graph, Y = softmax(relu(X * W^T + b)), which is launched for one X after the other.
 *
 * A plan's run allocates nothing and waits for nothing, so a stream that is being captured takes it. With the CUDA
 * runtime that is
 *
 *     cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
 *     ckl_gemm_run(product, &gemm, stream);
 *     ckl_softmax_run(rows, &softmax, stream);
 *     cudaStreamEndCapture(stream, &graph);
 *
 * and a graph of torch or of the driver is the same. Here it is the driver, opened by name, so that this builds without
 * CUDA. The plans, and the memory that the calls named, must live as long as the graph. Without a GPU the plans run on
 * the emulator, without a graph.
 */
#include <cutekernellib/cutekernellib.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

enum { M = 64, N = 128, K = 32, LAUNCHES = 3 };

static ckl_device *device;
static ckl_stream stream;
static ckl_plan *product, *rows;
static void *X, *W, *B, *Y;

/* Functions of CUDA's driver; the primary context is that of the library, the CUDA runtime and the frameworks. */
static struct {
    int (*retain)(void **context, int device), (*set_current)(void *context);
    int (*begin)(ckl_stream stream, int mode), (*end)(ckl_stream stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags), (*launch)(void *exec, ckl_stream stream);
    int (*destroy_graph)(void *graph), (*destroy_exec)(void *exec);
} cuda;

static int open_driver(void)
{
    const struct {
        void *function;
        const char *name;
    } all[] = { { &cuda.retain, "cuDevicePrimaryCtxRetain" },
                { &cuda.set_current, "cuCtxSetCurrent" },
                { &cuda.begin, "cuStreamBeginCapture_v2" },
                { &cuda.end, "cuStreamEndCapture" },
                { &cuda.launch, "cuGraphLaunch" },
                { &cuda.instantiate, "cuGraphInstantiateWithFlags" },
                { &cuda.destroy_graph, "cuGraphDestroy" },
                { &cuda.destroy_exec, "cuGraphExecDestroy" } };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    for (int i = 0; driver && i < (int)(sizeof all / sizeof all[0]); i++)
        if (!(*(void **)all[i].function = dlsym(driver, all[i].name)))
            return -1;
    return driver ? cuda.retain(&context, 0) || cuda.set_current(context) : -1;
}

static ckl_status run(void)
{
    ckl_status status = ckl_gemm_run(product, &(ckl_gemm_args){ .a = X, .b = W, .bias = B, .d = Y }, stream);
    return status ? status : ckl_softmax_run(rows, &(ckl_softmax_args){ .x = Y, .y = Y }, stream);
}

/* The graph, ready for launches; NULL: why not was printed. */
static void *captured(void)
{
    enum { RELAXED = 2 };
    void *graph, *exec;
    if (open_driver() || cuda.begin(stream, RELAXED)) {
        puts("the driver takes no capture");
        return NULL;
    }
    if (run())
        puts(ckl_error());
    if (cuda.end(stream, &graph) || cuda.instantiate(&exec, graph, 0)) {
        puts("the driver makes no graph");
        return NULL;
    }
    cuda.destroy_graph(graph);
    return exec;
}

/* All of X is x. Column j of the product is x * (j - N/2) / 32 + 1. */
static int is_right(float x, const float *y)
{
    float e[N], sum = 0;
    for (int j = 0; j < N; j++)
        sum += e[j] = expf(fmaxf(x * (float)(j - N / 2) / 32 + 1, 0));
    for (int i = 0; i < M * N; i++)
        if (fabsf(y[i] - e[i % N] / sum) > 1e-5f)
            return 0;
    return 1;
}

/* Not 0: ckl_error() tells why not. */
static int prepare(void)
{
    static float w[N * K], b[N];
    ckl_gemm_desc gemm = { .m = M, .n = N, .k = K, .a = CKL_F32, .bias = true, .activation = CKL_ACTIVATION_RELU };
    ckl_softmax_desc softmax = { .dtype = CKL_F32, .outer = M, .n = N };
    for (int i = 0; i < N * K; i++)
        w[i] = (float)(i / K - N / 2) / 32 / K;
    for (int j = 0; j < N; j++)
        b[j] = 1;
    return ckl_device_open(NULL, &device) || ckl_stream_create(device, &stream) ||
           ckl_gemm_plan(device, &gemm, &product) || ckl_softmax_plan(device, &softmax, &rows) ||
           ckl_malloc(device, M * K * sizeof *w, &X) || ckl_malloc(device, sizeof w, &W) ||
           ckl_malloc(device, sizeof b, &B) || ckl_malloc(device, M * N * sizeof *w, &Y) ||
           ckl_copy_in(device, W, w, sizeof w, stream) || ckl_copy_in(device, B, b, sizeof b, stream);
}

/* Launches for one X after the other; how many were right. */
static int launch_all(void *exec)
{
    static float x[M * K], y[M * N];
    int right = 0;
    for (int launch = 0; launch < LAUNCHES; launch++) {
        for (int i = 0; i < M * K; i++)
            x[i] = (float)(launch - 1);
        if (ckl_copy_in(device, X, x, sizeof x, stream))
            return -1;
        if (exec ? cuda.launch(exec, stream) != 0 : run() != CKL_OK)
            return -1;
        if (ckl_copy_out(device, y, Y, sizeof y, stream)) // waits for the launch
            return -1;
        right += is_right(x[0], y);
    }
    return right;
}

int main(void)
{
    if (prepare()) {
        puts(ckl_error());
        return 1;
    }
    const ckl_device_info *info = ckl_device_properties(device);
    void *exec = info->emulated ? NULL : captured();
    if (!exec && !info->emulated)
        return 1;
    const int right = launch_all(exec);
    const char *what = exec ? "a graph of two plans was" : "no GPU, no graph; two plans were";
    printf("%s: %s launched %d times, %d times right\n", info->name, what, LAUNCHES, right);
    if (exec)
        cuda.destroy_exec(exec);
    ckl_plan_free(product);
    ckl_plan_free(rows);
    void *const memory[] = { X, W, B, Y };
    for (int i = 0; i < 4; i++)
        ckl_free(device, memory[i]);
    ckl_stream_destroy(device, stream);
    ckl_device_close(device);
    return right != LAUNCHES;
}
