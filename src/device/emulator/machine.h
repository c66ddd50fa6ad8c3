/* machine.h - what the emulator's files do to a running kernel, file by file, and the handlers of all instructions. */
#pragma once

#include "device/emulator/state.h"

/* report.c - how a launch ends badly. All return FAULTED. lane -1: the warp as a whole. */
outcome fault(warp *w, const step *s, int lane, const char *kind, const char *format, ...) CKL_PRINTF(5, 6);
void fault_deadlock(cluster *c);
const char *agent_text(const cluster *c, uint16_t number, char *room, size_t bytes);
const char *agent_name(const ir_kernel *ir, const agent *a, char *room, size_t bytes); // without its CTA
#define AGENT_TEXT_BYTES 192

/*
 * names.c - what an address is called: "B+128", "ring.empty[0]", "x+4096"; of a global one that no parameter points
 * near, the number. room holds PLACE_BYTES; the allocation is the one that the address lies in or nearest to.
 */
enum { PLACE_BYTES = 128 };
const char *shared_text(const ir_kernel *ir, uint32_t offset, char *room);
const char *global_text(const launch_state *l, const allocation *a, uintptr_t address, char *room);
bool ring_of_empty(const ir_kernel *ir, uint32_t empty,
                   uint32_t *full); // the barrier whose phases are released at another

/* The name of a place in shared memory, for the arguments of one call. */
#define PLACE(w, offset) shared_text(&(w)->cluster->kernel->ir, (offset), (char[PLACE_BYTES]){ 0 })

/* order.c - clocks */
knowledge knowledge_new(cluster *c);
void knowledge_free(cluster *c); // all of a cluster
void knowledge_join(const cluster *c, knowledge *to, const knowledge *from);
void knowledge_meet(const cluster *c, knowledge *to, const knowledge *from);
void knowledge_clear(const cluster *c, knowledge *k);
void knowledge_copy(const cluster *c, knowledge *to, const knowledge *from);
uint16_t agent_new(warp *w, const step *s, agent a); // NO_AGENT and a fault if there are too many

/* Passes on all that the warp knows so far; of what its lanes did since they met, that of these lanes. */
void warp_release(warp *w, lane_mask lanes, knowledge *to);
void warp_release_whole(warp *w, knowledge *to); // all lanes come to a barrier
void warp_lanes_meet(warp *w);                   // warp_sync
void warp_lanes_exchange(warp *w);               // shuffles: what lanes had loaded before has come
void warp_acquire(warp *w, const knowledge *from);
uint32_t warp_clock(const warp *w);

/* shared.c - shared memory's shadow. False after a fault. */
bool shared_touch(cta *c, const access *a, uint32_t offset, uint32_t bytes);
void shared_undefine(cta *c, uint32_t offset, uint32_t bytes); // bit i: byte offset + i holds nothing that may be read
bool shared_was_written(const cta *c, uint32_t offset, char *by, size_t by_bytes); // by whom, where, what is missing
void shared_unwritten(warp *w, cta *c, uint32_t offset); // the fault just reported may be explained by a later write
void shared_visit(const warp *w, const step *s, cta *c); // notes an access that the CTA must outlive
access warp_access(warp *w, const step *s, int lane, bool write);
void shared_mark_mbarrier(cta *c, uint32_t offset); // from now on ordinary accesses are faults

/* exchange.c - false and a fault if lanes that have not left the kernel are missing. */
bool warp_converges(warp *w, const step *s);

/* shared.c - the CTA and offset that an address means; NULL after a fault, as of a CTA of the cluster that has left. */
cta *shared_find(warp *w, const step *s, int lane, ir_space space, uint32_t address, uint32_t bytes, uint32_t align,
                 uint32_t *offset);

/* global.c - notes an access to a range of one allocation and looks for races. False after a fault. */
bool global_touch(access *a, allocation *memory, uintptr_t address, size_t bytes);
bool global_is_repeated(access *a, allocation *memory, const uintptr_t *address, size_t bytes); // reads of 32 lanes
void epochs_clear(launch_state *l);                                                             // global_epoch.c

/* overlap.c - launches that may still run when the next of their stream begins: an access's epoch may be theirs. */
void overlap_begin(launch_state *l, ckl_stream s);
void overlap_end(const launch_state *l, ckl_stream s);
void overlap_none(emulator *e); // all have ended: the host, a copy or another stream has waited
bool overlap_may_run(const warp *w, uint32_t number);

/* past.c - what is known of other clusters. A past is shared; NULL is an empty one. */
void past_add(past **to, past *from);
void past_drop(past **p);
uint32_t past_clock(const past *p, int64_t index, uint16_t who, bool async); // of an agent of that cluster
void past_make_visible(past **p);                                            // all of it, to the async proxy
past *past_release(warp *w); // all that the warp knows; the caller drops it
void past_acquire(warp *w, past *p);

/* strong.c */
void flags_forget(flags *f, uintptr_t address, size_t bytes); // an ordinary store has overwritten them
void flags_clear(flags *f);
void warp_forget(warp *w); // drops what fences and reads have gathered

/* access.c - checks the addresses of all active lanes, and notes the access. */
bool global_request(warp *w, const step *s, uintptr_t *address, bool write);

/* access.c - global_touch() of the allocation that holds the bytes. */
bool global_note(access *a, uintptr_t address, size_t bytes);

/* access.c - checks one access to global memory; a write is noted as having happened. */
bool global_check(warp *w, const step *s, int lane, uintptr_t address, size_t bytes, size_t align, bool write);

/* move.c - elements between memory (one host address a lane) and registers. */
void move_load(warp *w, const step *s, const uintptr_t *address);
void move_store(warp *w, const step *s, const uintptr_t *address);
uint64_t move_atomic(const ir_inst *inst, void *at, uint64_t x);
bool move_atomics(warp *w, const step *s, const uintptr_t *address); // false: memory is as it was

/* counters.c - what one request costs: wavefronts of shared memory, sectors of global memory. */
void count_shared(warp *w, const step *s, const uint32_t *offset, int bytes, bool write);
void count_global(warp *w, const uintptr_t *address, int bytes, bool write);

/* barriers.c */
mbarrier *mbarrier_find(warp *w, const step *s, int lane, cta *c, uint32_t offset, bool async);
bool mbarrier_transferred(warp *w, const step *s, int lane, mbarrier *b, int64_t bytes, uint32_t phase);
void cluster_barrier_check(cluster *c);       // after an arrival, and after a warp has left
const step *setmaxnreg_missed(const warp *w); // by a warp that leaves; NULL: none

/* transfer.c - False after a fault, or where stated. */
bool transfer_begin(cluster *c, transfer t); // queues it, or does it at once if completion is eager
bool transfer_touch_destination(const transfer *t, cta *to, const access *a);
bool transfer_touch_source(const transfer *t, const access *a); // notes that a store reads its part of shared memory
bool transfer_touch_global(const transfer *t, access *a);       // notes the access to global memory
bool transfer_complete_one(cluster *c, bool any_order);         // false also if there is none
bool transfer_complete_groups(warp *w, transfer_kind kind, int lane, uint32_t groups); // lane -1: of all lanes
void transfers_drop(cluster *c);                                                       // what a fault has left undone

/* wgmma.c */
handler run_guarded; // steps that share registers with a WGMMA

/* cluster.c - runs the CTAs of a cluster until all have ended, one has a fault (c->fault), or all wait for others. */
typedef enum cluster_state { CLUSTER_ENDED, CLUSTER_FAULTED, CLUSTER_WAITS } cluster_state;
cluster *cluster_new(launch_state *launch);
size_t cluster_shared_bytes(const cluster *c); // of a CTA, up to a whole cell
void cluster_free(cluster *c);
void cluster_start(cluster *c, int64_t index);
cluster_state cluster_run(cluster *c, int rounds_max);
void cta_place(const launch_state *l, int64_t index, int rank, int64_t at[3]); // in the grid
uint64_t cluster_random(cluster *c);

/* launch.c */
void keep_fault(launch_state *l, const cluster *c);
int clusters_resident(const device_kernel *k); // that the device holds at once

/* residents.c - runs an ordered launch. */
void run_residents(launch_state *l, int64_t clusters);

/* counters.c */
void counters_add(emulator *e, const cluster *c);

/* The handlers, one per op or family. */
handler run_alu, run_divide, run_convert, run_pack, run_unpack, run_sreg, run_param;
handler run_load_global, run_store_global, run_load_strong, run_store_strong, run_atomic, run_load_shared,
    run_store_shared;
handler run_cp_async, run_cp_async_commit, run_cp_async_wait;
handler run_fence, run_fence_proxy, run_fence_init;
handler run_bulk_load, run_bulk_store, run_bulk_prefetch, run_prefetch, run_discard, run_tma_load, run_tma_store,
    run_tma_prefetch, run_bulk_commit, run_bulk_wait;
handler run_store_async;
handler run_mbarrier_init, run_mbarrier_arrive, run_mbarrier_expect, run_mbarrier_wait;
handler run_bar_sync, run_bar_arrive, run_cluster_arrive, run_cluster_wait, run_mapa, run_setmaxnreg;
handler run_warp_sync, run_shuffle, run_vote, run_redux, run_elect, run_ldmatrix, run_stmatrix, run_mma;
handler run_wgmma_fence, run_wgmma, run_wgmma_commit, run_wgmma_wait;
handler run_if, run_else, run_end_if, run_loop, run_break, run_end_loop, run_exit;
handler run_grid_wait, run_launch_dependents;
