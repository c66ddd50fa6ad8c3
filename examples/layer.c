/* layer.c - a layer of a network as README shows it, on rows of ones. */
#include <cutekernellib/cutekernellib.h>
#include <stdio.h>

/* Y = gelu(X * W^T + b) for 256 rows in f16: device pointers, and the stream of whoever calls. */
int layer(ckl_device *gpu, const void *x, const void *w, const void *b, void *y, ckl_stream stream)
{
    ckl_gemm_desc desc = { .m = 256, .n = 512, .k = 128, .a = CKL_F16, .activation = CKL_ACTIVATION_GELU, .bias = true };
    ckl_gemm_args args = { .a = x, .b = w, .bias = b, .d = y };
    if (ckl_gemm(gpu, &desc, &args, stream)) // plans once, then enqueues
        return fprintf(stderr, "%s\n", ckl_error());
    return 0;
}

enum { X = 0, W = X + 256 * 128, B = W + 512 * 128, Y = B + 512, END = Y + 256 * 512 };

int main(void)
{
    static uint16_t host[END];
    for (int i = 0; i < Y; i++)
        host[i] = i >= W && i < B ? 0x2000 : 0x3c00; // 2^-7, which sums to 1, and 1
    ckl_device *gpu;
    void *memory;
    if (ckl_device_open(NULL, &gpu) || ckl_malloc(gpu, sizeof host, &memory) ||
        ckl_copy_in(gpu, memory, host, sizeof host, NULL)) {
        fprintf(stderr, "%s\n", ckl_error());
        return 1;
    }
    uint16_t *at = memory;
    int failed = layer(gpu, at + X, at + W, at + B, at + Y, NULL);
    if (!failed && ckl_copy_out(gpu, host, memory, sizeof host, NULL))
        return 1;
    for (int i = Y; i < END; i++)
        failed |= host[i] < 0x3fd1 || host[i] > 0x3fd2; // gelu(2) is 1.9546
    printf("%s: %s\n", ckl_device_properties(gpu)->name, failed ? "wrong" : "right");
    ckl_free(gpu, memory);
    ckl_device_close(gpu);
    return failed != 0;
}
