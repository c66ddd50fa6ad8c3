/* add_kernel.c - add as an element-wise kernel. */
#include "cute/kernel.h"
#include "operators/add/add_config.h"

map_kernel add_kernel(const add_config *c)
{
    return (map_kernel){ .inputs = 4,
                         .dtype = { c->dtype, c->dtype, F32, F32, c->dtype },
                         .scalar = { [2] = true, [3] = true },
                         .compute = F32,
                         .config = c->map };
}

static val combine(const val *inputs, void *user)
{
    val a = inputs[0], b = inputs[1], alpha = inputs[2], beta = inputs[3];
    (void)user;
    return fma(alpha, a, mul(beta, b));
}

void add_describe(const void *config, int kernel)
{
    map_describe(add_kernel(config), kernel, combine, NULL);
}
