/*
 * epilogue.c - a product with an epilogue of one's own, D = hardswish(A * B^T) up to the diagonal: a function in C,
 * called while the kernel is described, so there is nothing to compile with. The product, the activation and the
 * triangle are one kernel, one store of D.
 */
#include <cutekernellib/cutekernellib.h>
#include <stdio.h>

enum { M = 96, N = 80, K = 64 };

/* x * min(max(x + 3, 0), 6) / 6, and 0 right of the diagonal. */
static ckl_val hardswish(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    ckl_val most = ckl_val_f32(*(const float *)user), zero = ckl_val_f32(0);
    ckl_val gate = ckl_val_min(ckl_val_max(ckl_val_add(x, ckl_val_f32(3)), zero), most);
    return ckl_val_select(ckl_val_le(col, row), ckl_val_div(ckl_val_mul(x, gate), most), zero);
}

static float most = 6;
static const ckl_gemm_epilogue epilogue = { .name = "hardswish_tril", .apply = hardswish, .user = &most };

static ckl_status multiply(ckl_device *device, const float *ab, float *d)
{
    ckl_gemm_desc desc = { .m = M, .n = N, .k = K, .a = CKL_F32, .epilogue = epilogue.name };
    void *memory;
    ckl_status status = ckl_malloc(device, ((M + N) * K + M * N) * sizeof *d, &memory);
    float *a = memory, *b = a + M * K, *out = b + N * K;
    if (!status)
        status = ckl_copy_in(device, memory, ab, (M + N) * K * sizeof *ab, NULL);
    if (!status)
        status = ckl_gemm(device, &desc, &(ckl_gemm_args){ .a = a, .b = b, .d = out }, NULL);
    if (!status)
        status = ckl_copy_out(device, d, out, M * N * sizeof *d, NULL);
    ckl_free(device, memory);
    return status;
}

/* Row i of A is i % 9 - 4, B is 1/64: row i of A * B^T is i % 9 - 4, from where hardswish is 0 to where it is x. */
int main(void)
{
    static float ab[(M + N) * K], d[M * N];
    for (int i = 0; i < (M + N) * K; i++)
        ab[i] = i < M * K ? (float)(i / K % 9 - 4) : 1.0f / K;
    ckl_device *device;
    if (ckl_gemm_epilogue_add(&epilogue) || ckl_device_open(NULL, &device) || multiply(device, ab, d)) {
        fprintf(stderr, "%s\n", ckl_error());
        return 1;
    }
    int wrong = 0;
    for (int i = 0; i < M * N; i++) {
        float x = (float)(i / N % 9 - 4), gate = x < -3 ? 0 : x > 3 ? 6 : x + 3;
        float want = i % N > i / N ? 0 : x * gate / 6;
        wrong += d[i] - want > 1e-5f || want - d[i] > 1e-5f;
    }
    printf("%s: %d of %d elements are wrong\n", ckl_device_properties(device)->name, wrong, M * N);
    ckl_device_close(device);
    return wrong != 0;
}
