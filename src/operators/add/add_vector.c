/* add_vector.c - add as an element-wise kernel. */
#include <string.h>

#include "cute/kernel.h"
#include "operators/add/add_config.h"

map_kernel add_kernel(const void *config)
{
    const add_config *c = config;
    map_kernel k = { .inputs = 4,
                     .dtype = { c->dtype, c->dtype, F32, F32, c->dtype },
                     .scalar = { [2] = true, [3] = true },
                     .compute = F32 };
    memcpy(&k.config, c, sizeof k.config);
    return k;
}

/* alpha*a + beta*b */
static val combine(const val *inputs, void *user)
{
    val a = inputs[0], b = inputs[1], alpha = inputs[2], beta = inputs[3];
    (void)user;
    return fma(alpha, a, mul(beta, b));
}

void add_vector(const void *config, int part)
{
    map_kernel kernel = add_kernel(config);
    map_describe(&kernel, part, combine, NULL);
}
