/* emulated_device.h - one device, by itself an emulated H200, for all tests of a program, which includes this once. */
#pragma once

#include "cutekernellib/device.h"

static const char *device_name = "emulator:h200"; // main may set another
static ckl_device *device;

static int open_device(void **state)
{
    return ckl_device_open(device_name, &device) != CKL_OK;
}

static int close_device(void **state)
{
    ckl_device_close(device);
    return 0;
}
