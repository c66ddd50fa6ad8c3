/* device.h - the devices of DLPack as the library's: GPUs, and the emulated one for memory of the host. */
#pragma once

#include "cutekernellib/device.h"
#include "ffi/abi.h"

/* The device, opened when it is first asked for and never closed. CKL_INVALID: none of these can hold a tensor. */
CKL_MUST_USE ckl_status ffi_device(DLDevice place, ckl_device **device);
