/* names.c - what reports call addresses: allocations in shared memory, barriers of rings, operands in global memory. */
#include <stdio.h>

#include "device/emulator/machine.h"

/* The stage of a ring's barriers, which begin at `first`, that an offset lies in; -1: in none. */
static int stage_at(const ir_ring *ring, int64_t first, uint32_t offset)
{
    int64_t stage = (int64_t)offset < first ? -1 : ((int64_t)offset - first) / IR_MBARRIER_BYTES;
    return stage < ring->stages ? (int)stage : -1;
}

bool ring_of_empty(const ir_kernel *ir, uint32_t empty, uint32_t *full)
{
    for (const ir_ring *ring = ir->rings; ring < ir->rings + ir->ring_count; ring++) {
        int stage = stage_at(ring, ring->empty, empty);
        if (stage >= 0)
            *full = (uint32_t)(ring->full + stage * IR_MBARRIER_BYTES);
        if (stage >= 0)
            return true;
    }
    return false;
}

static bool name_barrier(const ir_kernel *ir, uint32_t offset, char *room)
{
    for (const ir_ring *ring = ir->rings; ring < ir->rings + ir->ring_count; ring++) {
        int full = stage_at(ring, ring->full, offset), empty = stage_at(ring, ring->empty, offset);
        if (full >= 0 || empty >= 0) {
            snprintf(room, PLACE_BYTES, "%s.%s[%d]", ring->name, full >= 0 ? "full" : "empty",
                     full >= 0 ? full : empty);
            return true;
        }
    }
    return false;
}

/* The last allocation that begins at or before an offset: its name serves where the offset lies in none. */
static const ir_smem *smem_before(const ir_kernel *ir, uint32_t offset)
{
    const ir_smem *before = NULL;
    for (const ir_smem *smem = ir->smem; smem < ir->smem + ir->smem_count; smem++)
        if (smem->offset <= offset && (!before || smem->offset >= before->offset))
            before = smem;
    return before;
}

const char *shared_text(const ir_kernel *ir, uint32_t offset, char *room)
{
    if (name_barrier(ir, offset, room))
        return room;
    const ir_smem *named = smem_before(ir, offset);
    int length = snprintf(room, PLACE_BYTES, "%.40s", named ? named->name : "shared memory");
    int64_t distance = offset - (named ? named->offset : 0);
    if (distance)
        snprintf(room + length, (size_t)(PLACE_BYTES - length), "+%" PRId64, distance);
    return room;
}

/* The global address that a parameter holds; 0: it is no pointer. */
static uintptr_t pointer_of(const launch_state *l, int i)
{
    const ir_param *p = &l->kernel->ir.params[i];
    if (p->tensor_map)
        return (uintptr_t)l->map[i].address;
    return p->type == IR_U64 ? (uintptr_t)l->scalar[i] : 0;
}

/* The last parameter that points into the allocation at or before an address, else any that does; -1: none. */
static int nearest_pointer(const launch_state *l, const allocation *a, uintptr_t address)
{
    int best = -1;
    for (int i = 0; i < l->kernel->ir.param_count; i++) {
        uintptr_t p = pointer_of(l, i), before = best < 0 ? 0 : pointer_of(l, best);
        bool inside = p >= a->base && p < a->base + a->bytes;
        if (inside && (best < 0 || (p <= address && (p > before || before > address))))
            best = i;
    }
    return best;
}

const char *global_text(const launch_state *l, const allocation *a, uintptr_t address, char *room)
{
    int best = a ? nearest_pointer(l, a, address) : -1;
    if (a && a->named)
        snprintf(room, PLACE_BYTES, "%s%+" PRId64, a->name, (int64_t)(address - a->named));
    else if (best >= 0)
        snprintf(room, PLACE_BYTES, "%s%+" PRId64, l->kernel->ir.params[best].name,
                 (int64_t)(address - pointer_of(l, best)));
    else
        snprintf(room, PLACE_BYTES, "0x%zx", (size_t)address);
    return room;
}
