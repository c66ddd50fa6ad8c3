/* cutekernellib.h - everything: GPU operators in C, on an NVIDIA GPU or on the emulated one. */
#ifndef CUTEKERNELLIB_H
#define CUTEKERNELLIB_H

#include "base.h"
#include "device.h"
#include "plan.h"
#include "tensor.h"

#include "operators/add.h"
#include "operators/gemm.h"
#include "operators/reduce.h"

#endif
