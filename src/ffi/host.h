/* host.h - calls with memory of the host: it is copied to the emulated device and back. */
#pragma once

#include "plan/plan.h"

/*
 * plan_run() with the args' pointers to tensors replaced by copies on the device; outputs are copied back, and the call
 * waits. Tensors of the same pointer share a copy.
 */
CKL_MUST_USE ckl_status host_run(const ckl_plan *plan, void **args);
