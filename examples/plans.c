/*
 * plans.c - plans that two threads share, each on a stream of its own: D = relu(A * B^T + bias), then an expression in
 * place.
 *
 * A plan is made once. Running it allocates nothing and waits for nothing, so a stream that is being captured takes it
 * as well (graph.c).
 */
#include <cutekernellib/cutekernellib.h>
#include <pthread.h>
#include <stdio.h>

enum { M = 64, N = 48, K = 32 };

static ckl_device *device;
static ckl_plan *product, *scaled;

#define CHECK(call)            \
    do {                       \
        if (call) {            \
            puts(ckl_error()); \
            return "failed";   \
        }                      \
    } while (0)

/* All of A is `value`, all of B and the bias are 1: every element of D is (K * value + 1) / 2. */
static void *work(void *value)
{
    static const float half = 0.5f;
    static float ones[N * K];
    float a[M * K], d[M * N];
    void *A, *B, *D;
    ckl_stream stream;
    for (int i = 0; i < M * K; i++)
        a[i] = *(const float *)value;
    for (int i = 0; i < N * K; i++)
        ones[i] = 1;
    CHECK(ckl_stream_create(device, &stream));
    CHECK(ckl_malloc(device, sizeof a, &A));
    CHECK(ckl_malloc(device, sizeof ones, &B));
    CHECK(ckl_malloc(device, sizeof d, &D));
    CHECK(ckl_copy_in(device, A, a, sizeof a, stream));
    CHECK(ckl_copy_in(device, B, ones, sizeof ones, stream));
    CHECK(ckl_gemm_run(product, &(ckl_gemm_args){ .a = A, .b = B, .bias = B, .d = D }, stream));
    CHECK(ckl_elementwise_run(scaled, &(ckl_elementwise_args){ .in = { D, &half }, .out = D }, stream));
    CHECK(ckl_copy_out(device, d, D, sizeof d, stream));
    for (int i = 0; i < M * N; i++)
        if (d[i] != (K * *(const float *)value + 1) / 2)
            return "wrong";
    ckl_free(device, A);
    ckl_free(device, B);
    ckl_free(device, D);
    ckl_stream_destroy(device, stream);
    return NULL;
}

static const char *both(void)
{
    static float values[2] = { 1, 3 };
    pthread_t threads[2];
    ckl_gemm_desc gemm = {
        .m = M,
        .n = N,
        .k = K,
        .a = CKL_F32,
        .bias = true,
        .activation = CKL_ACTIVATION_RELU,
    };
    ckl_elementwise_desc scale = { .expr = "x*s",
                                   .rank = 1,
                                   .shape = { M * N },
                                   .in = { { .stride = { 1 } }, { .scalar = true } },
                                   .out = { .stride = { 1 } } };
    CHECK(ckl_device_open(NULL, &device));
    CHECK(ckl_gemm_plan(device, &gemm, &product));
    CHECK(ckl_elementwise_plan(device, &scale, &scaled));
    printf("%s\n%s\n", ckl_plan_text(product), ckl_plan_text(scaled));
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, &values[i]);
    const char *failed = NULL;
    for (int i = 0; i < 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed = result ? result : failed;
    }
    ckl_plan_free(product);
    ckl_plan_free(scaled);
    ckl_device_close(device);
    return failed;
}

int main(void)
{
    const char *failed = both();
    puts(failed ? failed : "two threads, two streams, the same plans: as expected");
    return failed != NULL;
}
