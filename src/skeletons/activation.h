/* activation.h - what epilogues apply last to an f32, as ckl_activation names it. */
#pragma once

#include "base/fields.h"
#include "ir/build.h"

/* x itself for the identity, and for derivatives, which are gemm's. */
val activation_f32(choice activation, val x);
