/* conv_wait.c - how a kernel of convolution begins: the launch before it, and the one behind. */
#include "operators/conv/conv_wait.h"

#include "cute/kernel.h"

void conv_wait(const conv_values *p)
{
    prefetch_early(0, p->early, p->early_bytes, 2);
    grid_wait();
    launch_dependents();
}
