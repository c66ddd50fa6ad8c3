/* one_call.c - y = softmax(x) of four rows: one call, which plans the first time and finds its plan from then on. */
#include <cutekernellib/cutekernellib.h>
#include <stdio.h>

enum { ROWS = 4, COLS = 1000 };

static ckl_status softmax_of_rows(ckl_device *device, const float *x, float *y)
{
    void *memory;
    ckl_status status = ckl_malloc(device, ROWS * COLS * sizeof *x, &memory);
    if (!status)
        status = ckl_copy_in(device, memory, x, ROWS * COLS * sizeof *x, NULL);
    ckl_softmax_desc desc = { .dtype = CKL_F32, .outer = ROWS, .n = COLS };
    if (!status)
        status = ckl_softmax(device, &desc, &(ckl_softmax_args){ .x = memory, .y = memory }, NULL);
    if (!status)
        status = ckl_copy_out(device, y, memory, ROWS * COLS * sizeof *y, NULL); // waits for the kernel
    ckl_free(device, memory);
    return status;
}

int main(void)
{
    static float x[ROWS * COLS], y[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(i % 7);
    ckl_device *device;
    if (ckl_device_open(NULL, &device) || softmax_of_rows(device, x, y)) {
        fprintf(stderr, "%s\n", ckl_error());
        return 1;
    }
    double sum = 0;
    for (int i = 0; i < COLS; i++)
        sum += y[i];
    printf("%s: the first row sums to %.6f\n", ckl_device_properties(device)->name, sum);
    ckl_device_close(device);
    return sum < 0.99999 || sum > 1.00001;
}
