/* cutekernellib.h - everything: GPU operators in C, on an NVIDIA GPU or on the emulated one. */
#ifndef CUTEKERNELLIB_H
#define CUTEKERNELLIB_H

#include "base.h"
#include "device.h"
#include "plan.h"
#include "tensor.h"
#include "values.h"

#include "operators/add.h"
#include "operators/attention.h"
#include "operators/attention_decode.h"
#include "operators/attention_score.h"
#include "operators/conv.h"
#include "operators/crossentropy.h"
#include "operators/elementwise.h"
#include "operators/gemm.h"
#include "operators/groupnorm.h"
#include "operators/norm.h"
#include "operators/permute.h"
#include "operators/reduce.h"
#include "operators/reduce_fold.h"
#include "operators/rope.h"
#include "operators/softmax.h"
#include "operators/transpose.h"

#endif
