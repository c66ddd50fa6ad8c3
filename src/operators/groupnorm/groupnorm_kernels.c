/*
 * groupnorm_kernels.c - slices meet in the shared memory of a cluster; in memory, where their CTAs hold them meanwhile; or in memory
 * where others read them again.
 */
#include "operators/groupnorm/groupnorm_kernels.h"

#include "cute/kernel.h"

/* Of a slice that is known. */
static void begin(groupnorm_kernel *k)
{
    const int groups = k->s.cfg->bundle;
    k->w = groupnorm_view_of(&k->s);
    k->sGroups = smem_tensor("groups", F32, compact(shape(k->does->group_words, groups)), 16); // (WORDS,BUNDLE)
    k->does->begin(k);
}

static void stage(groupnorm_kernel *k)
{
    if (k->in_smem)
        k->does->stage(k);
}

static void stage_others(void *kernel)
{
    const groupnorm_kernel *k = kernel;
    groupnorm_others_staged(&k->s, k->meeting);
}

static void add_up(groupnorm_kernel *k)
{
    const bool halves = k->s.halves;
    if (k->s.cfg->cluster > 1)
        cluster_arrive(); // this CTA has started: peers may write to its shared memory
    k->does->load_weights(k);
    if (k->in_smem)
        groupnorm_staged(halves ? 1 : 0);
    k->w.between = halves ? stage_others : NULL;
    k->does->add_up(k);
    k->w.between = NULL;
}

static void publish(const groupnorm_kernel *k, groupnorm_state all, val saves)
{
    k->does->publish(k, all);
    if (k->does->save)
        k->does->save(k, saves);
}

/* Clusters */

/* Tells the CTAs of the cluster; merges what they found. */
static groupnorm_state merge_peers(const groupnorm_kernel *k, tensor sPeers)
{
    enum { PEERS_OF_LANE_MAX = 16 };
    const groupnorm_config *cfg = k->s.cfg;
    const int lanes = groupnorm_lanes_of_group(cfg), n = (int)ceil_div(cfg->cluster, lanes);
    groupnorm_state m[PEERS_OF_LANE_MAX];
    const val group = min(groupnorm_group_of_lane(&k->s), imm(cfg->bundle - 1));
    for (int i = 0; i < n; i++) {
        const val rank = add(groupnorm_lane_of_group(&k->s), imm(lanes * i)), inside = lt(rank, imm(cfg->cluster));
        const tensor sStates = slice(sPeers, _, _, group); // (WORDS,CLUSTER)
        m[i] = groupnorm_state_at(inside, groupnorm_elements(&k->s, rank, 1), k->does->words, sStates, rank);
    }
    return k->does->merge(&k->s, m, n);
}

static void describe_cluster(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    const int words = k->does->words;
    tensor sPeers; // (WORDS,CLUSTER,BUNDLE)
    k->s = groupnorm_slice_here(cfg, vectors);
    k->s.halves = groupnorm_first_steps(cfg) > 0;
    begin(k);
    stage(k);
    add_up(k);
    if (cfg->cluster > 1) {
        sPeers = groupnorm_peers(cfg, words);
        cluster_wait(); // all CTAs of the cluster have started
        IF(groupnorm_merges(&k->s))
            groupnorm_send_to_peers(&k->s, sPeers, words, k->does->found(k).of);
        cluster_sync();
    }
    IF(groupnorm_merges(&k->s)) {
        const groupnorm_state all = cfg->cluster > 1 ? merge_peers(k, sPeers) : k->does->found(k);
        publish(k, all, eq(k->s.rank, imm(0)));
    }
    cta_sync();
    k->does->write(k);
}

/* Entries */

static void store_entry(groupnorm_kernel *k)
{
    const groupnorm_entries e = groupnorm_entries_of_slices(&k->s);
    add_up(k);
    IF(groupnorm_merges(&k->s))
        groupnorm_store_entry(&k->s, &e, k->s.rank, k->does->words, k->does->found(k).of);
}

/* All of the lane's group, some for each lane at once; its first one also has what is merged already. */
static groupnorm_state merge_entries(const groupnorm_kernel *k, const groupnorm_entries *e, int at_once)
{
    const int lanes = groupnorm_lanes_of_group(k->s.cfg), words = k->does->words;
    const val is_first = eq(groupnorm_lane_of_group(&k->s), imm(0)), none = immf(0);
    groupnorm_state all = { .count = variable(F32, none) };
    for (int w = 0; w < words; w++)
        all.of[w] = variable(F32, none);
    LOOP_FROM(block, imm_as(I32, 0), div_up(e->count, lanes), imm(at_once)) {
        groupnorm_state m[at_once + 1];
        groupnorm_load_entries(&k->s, e, block, at_once, words, m);
        m[at_once].count = select(is_first, all.count, none);
        for (int w = 0; w < words; w++)
            m[at_once].of[w] = select(is_first, all.of[w], none);
        const groupnorm_state merged = k->does->merge(&k->s, m, at_once + 1);
        assign(all.count, merged.count);
        for (int w = 0; w < words; w++)
            assign(all.of[w], merged.of[w]);
    }
    return all;
}

/* Slices that are read again */

/* The CTA whose slice was the last of its bundle: for all that write. */
static void store_merged(const groupnorm_kernel *k)
{
    const groupnorm_entries e = groupnorm_entries_of_slices(&k->s);
    IF(groupnorm_merges(&k->s))
        publish(k, merge_entries(k, &e, k->does->at_once), yes());
    cta_sync();
    groupnorm_store_merged(&k->s, k->does->group_words, k->sGroups);
}

static void write_again(groupnorm_kernel *k, const two_pass *order, two_pass_item *item)
{
    const groupnorm_view w = k->w;
    k->does->load_weights(k);
    if (!k->in_smem && k->does->load_ahead)
        k->does->load_ahead(k);
    two_pass_wait(order, item);
    groupnorm_load_merged(&k->s, k->does->group_words, k->sGroups);
    if (k->in_smem)
        groupnorm_staged(0);
    cta_sync();
    k->does->write(k);
    two_pass_end(order, item);
    k->w = w;
}

static void describe_split(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    k->s = groupnorm_slice_begin(cfg, vectors);
    const two_pass order = groupnorm_order(&k->s);
    groupnorm_wait();
    two_pass_item item = two_pass_draw(&order);
    groupnorm_slice_at(&k->s, convert(I32, item.strip), convert(I32, item.chunk));
    begin(k);
    stage(k);
    IF(item.writes)
        write_again(k, &order, &item);
    ELSE
    {
        store_entry(k);
        IF(two_pass_leave(&order, &item)) {
            store_merged(k);
            two_pass_merged(&order, &item);
        }
    }
}

/* Slices that are held */

/* Entries of neighbouring slices become one, by the CTA that stores the last of them. */
static void merge_early(const groupnorm_kernel *k)
{
    const groupnorm_slice *s = &k->s;
    const int blocks = groupnorm_early_blocks(s->cfg), words = k->does->words;
    const groupnorm_entries e = groupnorm_entries_of_slices(s), early = groupnorm_early_entries(s);
    IF(groupnorm_completes(s, k->meeting))
        IF(groupnorm_merges(s)) {
            const val number = groupnorm_early_number(s), block = mul(number, imm(blocks));
            groupnorm_state m[GROUPNORM_EARLY_BLOCKS_MAX];
            groupnorm_load_entries(s, &e, block, blocks, words, m);
            groupnorm_store_entry(s, &early, number, words, k->does->merge(s, m, blocks).of);
            groupnorm_empty_entries(s, &e, block, blocks, words);
        }
}

/* Every CTA merges the entries of its bundle for itself. All that are held want registers meanwhile; but few lanes have many entries each. */
static void write_held(void *kernel)
{
    enum { FEW_LANES = 2, AT_ONCE = 4 };
    groupnorm_kernel *k = kernel;
    const bool few = groupnorm_lanes_of_group(k->s.cfg) <= FEW_LANES;
    const groupnorm_entries e = groupnorm_held_entries(&k->s);
    IF(groupnorm_merges(&k->s))
        publish(k, merge_entries(k, &e, few ? k->does->at_once : AT_ONCE), eq(k->s.rank, imm(0)));
    cta_sync();
    groupnorm_have_read(&k->s, k->meeting);
    k->does->write(k);
}

static void write_other(void *kernel, val slice)
{
    groupnorm_kernel *k = kernel;
    const groupnorm_view w = k->w;
    if (k->does->save)
        k->does->save(k, eq(slice, imm_as(U32, 0))); // as the CTA of the bundle's first slice would have
    groupnorm_slice_at(&k->s, convert(I32, k->s.bundle), convert(I32, slice));
    k->w = groupnorm_view_of(&k->s);
    k->w.at_once = w.at_once;
    if (k->s.cfg->parts > 1)
        k->does->load_weights(k); // of other channels
    k->does->stage(k);
    groupnorm_staged(0);
    k->does->write(k);
}

static void describe_held(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    k->s = groupnorm_slice_begin(cfg, vectors);
    const one_pass meeting = groupnorm_meeting(&k->s);
    k->meeting = &meeting;
    k->s.halves = groupnorm_first_steps(cfg) > 0;
    groupnorm_wait();
    begin(k);
    groupnorm_load_in_turn(&k->s, &meeting);
    stage(k);
    groupnorm_loaded(&k->s, &meeting);
    store_entry(k);
    if (cfg->early)
        merge_early(k);
    one_pass_meet(&meeting, write_held, write_other, k);
}

void groupnorm_describe(groupnorm_kernel *k, const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors)
{
    static void (*const kernels[])(groupnorm_kernel *, const groupnorm_config *, bool) = {
        [GROUPNORM_CLUSTER] = describe_cluster, [GROUPNORM_SPLIT] = describe_split, [GROUPNORM_HELD] = describe_held
    };
    kernels[slicing](k, cfg, vectors);
}
