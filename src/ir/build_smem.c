/* build_smem.c - shared memory of the kernel: named allocations, and rings of mbarriers. */
#include <assert.h>
#include <string.h>

#include "base/math.h"
#include "ir/build_core.h"

static int64_t add_smem(ir_smem smem)
{
    ir_kernel *k = build.kernel;
    k->smem = build_grow(k->smem, k->smem_count, &k->smem_capacity, sizeof *k->smem);
    smem.name = arena_text(&k->memory, smem.name);
    k->smem[k->smem_count++] = smem;
    k->smem_bytes = max_i64(k->smem_bytes, smem.offset + smem.bytes);
    return smem.offset;
}

int64_t ir_smem_alloc(const char *name, int64_t bytes, int64_t align)
{
    assert(is_power_of_two(align));
    int64_t offset = round_up(build.kernel->smem_bytes, align);
    return add_smem((ir_smem){ name, offset, bytes, align });
}

void ir_add_ring(const char *name, int64_t full, int64_t empty, int stages)
{
    ir_kernel *k = build.kernel;
    k->rings = build_grow(k->rings, k->ring_count, &k->ring_capacity, sizeof *k->rings);
    k->rings[k->ring_count++] = (ir_ring){ arena_text(&k->memory, name), full, empty, stages };
}

val ir_smem_address(int64_t offset)
{
    return ir_binary(IR_ADD, ir_sreg(IR_SMEM_BASE), ir_u32(offset));
}
