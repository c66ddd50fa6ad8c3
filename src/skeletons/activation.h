/* activation.h - what epilogues apply last to a sum in f32, as ckl_activation names it. */
#pragma once

#include "base/fields.h"
#include "ir/build.h"

/* As exact as a result of type `out` can show. x itself for the identity, and for derivatives, which are gemm's. */
val activation_of(choice activation, ckl_dtype out, val x);
