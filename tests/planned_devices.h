/* planned_devices.h - an H200 and an L4 that plan and do not run, for tests with golden files of what is planned. */
#pragma once

#include <stdlib.h>

#include "base/math.h"
#include "lab/planned.h"

static const char *const ids[] = { "emulator:h200", "emulator:l4" };
static ckl_device *devices[COUNT_OF(ids)];

static int open_devices(void **state)
{
    setenv("CKL_TUNED", "off", 1); // what the choices themselves come to
    for (int i = 0; i < COUNT_OF(ids); i++) {
        ckl_device *emulator;
        if (ckl_device_open(ids[i], &emulator) != CKL_OK)
            return 1;
        ckl_status status = planned_open(ckl_device_properties(emulator), &devices[i]);
        ckl_device_close(emulator);
        if (status != CKL_OK)
            return 1;
    }
    return 0;
}

static int close_devices(void **state)
{
    for (int i = 0; i < COUNT_OF(ids); i++)
        planned_close(devices[i]);
    return 0;
}
