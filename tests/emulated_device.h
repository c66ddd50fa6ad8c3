/* emulated_device.h - one emulated H200 for all tests of a program, which includes this once. */
#pragma once

#include "cutekernellib/device.h"

static ckl_device *device;

static int open_device(void **state)
{
    return ckl_device_open("emulator:h200", &device) != CKL_OK;
}

static int close_device(void **state)
{
    ckl_device_close(device);
    return 0;
}
