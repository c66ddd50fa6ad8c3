/* conv_wait.h - how a kernel of convolution begins: the launch before it, and the one behind. */
#pragma once

#include "operators/conv/conv_config.h"

/*
 * Small tensors that are read come to L2 while the launch before may still run. What is above overlaps its end, what is
 * below the beginning of the next launch.
 */
void conv_wait(const conv_values *params);
