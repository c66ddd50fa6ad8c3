/* gemm_offsets.c - offsets of groups from a launch's parameters to device memory. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_steps.h"

enum { LANES = 32 };

void gemm_offsets(const void *config)
{
    (void)config;
    launch_bounds(LANES, 0);
    const gemm_offsets_values p = params_of(gemm_offsets);
    tensor gTo = gmem_vector(p.to, I32, add(p.first, p.count));
    grid_wait();
    IF(eq(thread(), imm(0)))
        for (int i = 0; i < GEMM_OFFSETS_AT_ONCE; i++)
            IF(lt(imm(i), p.count))
                set(gTo, add(p.first, imm(i)), p.number[i]);
}
