/* access.c - loads and stores of global and shared memory: addresses checked, then moved. */
#include "device/emulator/machine.h"

/* Addresses */

/* Address of every lane; inactive lanes take that of an active one, so that whole warps can be handled. */
WIDE static void spread(uintptr_t *address, const lane_u64 *base, int64_t offset, lane_mask active)
{
    uint64_t filler = base[__builtin_ctz(active)];
    EACH_LANE(i)
        address[i] = (active >> i & 1 ? base[i] : filler) + (uint64_t)offset;
}

typedef struct span {
    uintptr_t low, high, low_bits;
} span;

WIDE static span span_of(const uintptr_t *address)
{
    uintptr_t low = UINTPTR_MAX, high = 0, low_bits = 0;
    for (int i = 0; i < LANES; i++) {
        low = address[i] < low ? address[i] : low;
        high = address[i] > high ? address[i] : high;
        low_bits |= address[i];
    }
    return (span){ low, high, low_bits };
}

static bool holds(const allocation *a, uintptr_t low, uintptr_t high, size_t bytes)
{
    return a && low >= a->base && high - a->base + bytes <= a->bytes;
}

static bool fault_global(warp *w, const step *s, int lane, uintptr_t address, size_t bytes)
{
    char why[160], at[PLACE_BYTES];
    const allocation *near = memory_explain(&w->cluster->kernel->device->memory, address, bytes, why, sizeof why);
    return fault(w, s, lane, "out-of-bounds global access", "%zu bytes at %s: %s", bytes,
                 global_text(w->cluster->launch, near, address, at), why);
}

bool global_check(warp *w, const step *s, int lane, uintptr_t address, size_t bytes, size_t align, bool write)
{
    if (!holds(w->near, address, address, bytes)) {
        allocation *a = memory_find(&w->cluster->kernel->device->memory, address, bytes);
        if (!a)
            return fault_global(w, s, lane, address, bytes);
        w->near = a;
    }
    if (address % align) {
        char at[PLACE_BYTES];
        return fault(w, s, lane, "misaligned global access", "%s, address 0x%zx of %zu bytes, is no multiple of %zu",
                     global_text(w->cluster->launch, w->near, address, at), (size_t)address, bytes, align);
    }
    if (write) {
        memory_mark(w->near, address, bytes);
        return true;
    }
    if (memory_is_written(w->near, address, bytes))
        return true;
    access a = warp_access(w, s, lane, false);
    if (!global_touch(&a, w->near, address, bytes)) // somebody writes it, too early or too late
        return false;
    char at[PLACE_BYTES];
    return fault(w, s, lane, "read of uninitialised global memory",
                 "%zu bytes at %s, offset %zu of the allocation of %zu bytes, were never written", bytes,
                 global_text(w->cluster->launch, w->near, address, at), (size_t)(address - w->near->base),
                 w->near->bytes);
}

/* The shadow bytes of all lanes, which lie in the allocation: a read checks them, a write sets them. */
#define SHADOW(T, count, ones)                              \
    for (int i = 0; i < LANES; i++) {                       \
        T *at = (T *)(a->written + (address[i] - a->base)); \
        for (int j = 0; j < (count); j++) {                 \
            missing |= (uint64_t)(at[j] ^ (T)(ones));       \
            if (write)                                      \
                at[j] = (T)(ones);                          \
        }                                                   \
    }

static bool shadow_lanes(const allocation *a, const uintptr_t *address, size_t bytes, bool write)
{
    const uint64_t ones = 0x0101010101010101;
    uint64_t missing = 0;
    if (bytes == 1)
        SHADOW(lane_u8, 1, ones)
    else if (bytes == 2)
        SHADOW(lane_u16, 1, ones)
    else if (bytes == 4)
        SHADOW(lane_u32, 1, ones)
    else
        SHADOW(lane_u64, (int)bytes / 8, ones)
    return write || !missing;
}

/* All lanes at once where one allocation holds them; lane by lane otherwise, and to find the lane at fault. */
static bool check_lanes(warp *w, const step *s, const uintptr_t *address, size_t bytes, bool write)
{
    span all = span_of(address);
    allocation *a = w->near;
    if (!holds(a, all.low, all.high, bytes))
        a = memory_find(&w->cluster->kernel->device->memory, all.low, all.high - all.low + bytes);
    if (a && (all.low_bits & (bytes - 1)) == 0 && (a->all_written || shadow_lanes(a, address, bytes, write))) {
        w->near = a;
        return true;
    }
    EACH_ACTIVE(i, w->active)
        if (!global_check(w, s, i, address[i], bytes, bytes, write))
            return false;
    return true;
}

static size_t access_bytes(const step *s)
{
    return (size_t)ir_memory_bytes(s->inst->type) * (size_t)(s->inst->n ? s->inst->n : 1);
}

/* Notes an access of neighbouring lanes, the first of which is a->lane. */
bool global_note(access *a, uintptr_t address, size_t bytes)
{
    warp *w = a->w;
    if (!holds(w->near, address, address, bytes))
        w->near = memory_find(&w->cluster->kernel->device->memory, address, bytes);
    return global_touch(a, w->near, address, bytes);
}

WIDE static bool side_by_side(const uintptr_t *address, size_t bytes)
{
    uintptr_t wrong = 0;
    EACH_LANE(i)
        wrong |= address[i] - address[0] - bytes * (uintptr_t)i;
    return wrong == 0;
}

/* Lanes side by side, or at one address, are one range. */
static bool touch_lanes(access a, const uintptr_t *address, size_t bytes)
{
    const warp *w = a.w;
    a.lane_bytes = bytes;
    a.lane = first_lane(w->active);
    if (w->active == ALL_LANES && side_by_side(address, bytes))
        return global_note(&a, address[0], bytes * LANES);
    if (global_is_repeated(&a, w->near, address, bytes))
        return true;
    uintptr_t start = address[a.lane], end = start + bytes;
    EACH_ACTIVE(i, w->active) {
        if (address[i] >= start && address[i] + bytes <= end)
            continue;
        if (address[i] != end) {
            if (!global_note(&a, start, end - start))
                return false;
            start = address[i];
            a.lane = i;
        }
        end = address[i] + bytes;
    }
    return global_note(&a, start, end - start);
}

bool global_request(warp *w, const step *s, uintptr_t *address, bool write)
{
    const ir_inst *inst = s->inst;
    bool atomic = inst->op == IR_ATOM || inst->op == IR_RED;
    size_t bytes = access_bytes(s);
    spread(address, lanes_of(w, s->in[0]), inst->offset, w->active);
    access a = warp_access(w, s, 0, write || atomic);
    a.strong = atomic || inst->order;
    a.scope = inst->scope;
    if (!check_lanes(w, s, address, bytes, write) || !touch_lanes(a, address, bytes))
        return false;
    count_global(w, address, (int)bytes, write);
    return true;
}

outcome run_load_global(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!global_request(w, s, address, false))
        return FAULTED;
    move_load(w, s, address);
    return ADVANCE;
}

outcome run_store_global(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!global_request(w, s, address, true))
        return FAULTED;
    move_store(w, s, address);
    w->cluster->stores++;
    return ADVANCE;
}

/* Shared memory */

/*
 * Offsets of the lanes in the CTA's own memory; false if one lies outside or is not aligned. Inactive lanes have that
 * of an active one.
 */
WIDE static bool own_offsets(const lane_u32 *base, uint32_t beyond, uint32_t bytes, uint32_t size, lane_mask active,
                             uint32_t *offset)
{
    uint32_t filler = base[__builtin_ctz(active)], wrong = size < bytes;
    EACH_LANE(i) {
        offset[i] = (active >> i & 1 ? base[i] : filler) + beyond - SHARED_BASE;
        wrong |= (offset[i] > size - bytes) | (offset[i] & (bytes - 1));
    }
    return !wrong;
}

/* The range of an access, and of the last lane that touches some of it once more. */
static bool touch_range(cta *c, access *a, const uint32_t *offset, uint32_t end, int again)
{
    a->start = offset[a->lane];
    if (!shared_touch(c, a, offset[a->lane], end - offset[a->lane]))
        return false;
    if (again < 0)
        return true;
    a->lane = again;
    a->start = offset[again];
    return shared_touch(c, a, offset[again], (uint32_t)a->lane_bytes);
}

/* Lanes that lie side by side are one range. */
static bool touch_own(access a, const uint32_t *offset, uint32_t bytes)
{
    cta *c = a.w->cta;
    lane_mask active = a.w->active;
    a.lane = first_lane(active);
    a.lane_bytes = bytes;
    uint32_t start = offset[a.lane], end = start + bytes;
    int next = a.lane + 1, again = -1;
    EACH_ACTIVE(i, active & (active - 1)) {
        if (offset[i] >= start && offset[i] + bytes <= end) {
            again = i;
            continue;
        }
        if (offset[i] != end || i != next) {
            if (!touch_range(c, &a, offset, end, again))
                return false;
            start = offset[i];
            a.lane = i;
            again = -1;
        }
        end = offset[i] + bytes;
        next = i + 1;
    }
    return touch_range(c, &a, offset, end, again);
}

/* Lane by lane: in memory of other CTAs, and to find the lane at fault. */
static bool touch_any(const step *s, const lane_u32 *base, uint32_t bytes, access a, cta **of, uint32_t *offset)
{
    warp *w = a.w;
    EACH_ACTIVE(i, w->active) {
        a.lane = i;
        of[i] = shared_find(w, s, i, s->inst->space, base[i] + (uint32_t)s->inst->offset, bytes, bytes, &offset[i]);
        if (!of[i] || !shared_touch(of[i], &a, offset[i], bytes))
            return false;
        shared_visit(w, s, of[i]);
    }
    return true;
}

static bool shared_request(warp *w, const step *s, uintptr_t *address, access a)
{
    uint32_t bytes = (uint32_t)access_bytes(s), offset[LANES];
    const lane_u32 *base = lanes_of(w, s->in[0]);
    cta *of[LANES];
    bool own =
        s->inst->space == IR_SHARED && own_offsets(base, (uint32_t)s->inst->offset, bytes,
                                                   (uint32_t)w->cluster->kernel->ir.smem_bytes, w->active, offset);
    if (own ? !touch_own(a, offset, bytes) : !touch_any(s, base, bytes, a, of, offset))
        return false;
    const int first = first_lane(w->active);
    for (int i = 0; i < LANES; i++) {
        const int lane = w->active >> i & 1 ? i : first;
        offset[i] = offset[lane];
        address[i] = (uintptr_t)(own ? w->cta : of[lane])->shared + offset[i];
    }
    count_shared(w, s, offset, (int)bytes, a.write);
    return true;
}

outcome run_load_shared(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!shared_request(w, s, address, warp_access(w, s, 0, false)))
        return FAULTED;
    move_load(w, s, address);
    return ADVANCE;
}

outcome run_store_shared(warp *w, const step *s)
{
    uintptr_t address[LANES];
    if (!shared_request(w, s, address, warp_access(w, s, 0, true)))
        return FAULTED;
    move_store(w, s, address);
    return ADVANCE;
}
