/*
 * groupnorm_kernels.c - slices meet in the shared memory of a cluster; in memory, where their CTAs hold them meanwhile;
 * or in memory where others read them again.
 */
#include "operators/groupnorm/groupnorm_kernels.h"

#include "cute/kernel.h"
#include "skeletons/first_thread.h"
#include "skeletons/prefetch.h"

bool groupnorm_has_column(const groupnorm_kernel *k)
{
    const groupnorm_config *cfg = k->s.cfg;
    // weights that are loaded one by one have a register each
    const bool scattered = cfg->fold > 1 || (!groupnorm_is_nchw(&k->s) && groupnorm_by_elements(&k->s));
    return k->w.grid.slots == 1 && !groupnorm_mixes(cfg) && !(k->meeting && scattered);
}

/* Of a slice that is known. */
static void begin(groupnorm_kernel *k)
{
    const int groups = k->s.cfg->bundle;
    k->w = groupnorm_view_of(&k->s);
    k->sGroups = smem_tensor("groups", F32, compact(shape(k->does->group_words, groups)), 16); // (WORDS,BUNDLE)
    k->does->begin(k);
}

/* Asks L2 for small images. */
static void ask_early(const groupnorm_slice *s)
{
    const val pointers[] = { s->a.x, s->a.dy };
    prefetch_early(0, pointers, s->a.image_bytes, 2);
}

/* The same before the slice is loaded: while the kernel before may run, L2 is asked for it, or nothing is done. */
static void begin_and_wait(groupnorm_kernel *k)
{
    const bool asks = k->s.cfg->prefetch;
    if (!asks) {
        ask_early(&k->s);
        groupnorm_wait();
    }
    begin(k);
    if (asks) {
        groupnorm_prefetch(&k->s, &k->w, &k->slices);
        groupnorm_wait();
    }
}

static void stage(groupnorm_kernel *k)
{
    if (k->slices.count > 0)
        groupnorm_stage(&k->s, &k->w, &k->slices);
}

/* Between the halves of a slice. */
static void wait_for_other(void *kernel)
{
    (void)kernel;
    cp_async_wait(0);
}

static void add_up(groupnorm_kernel *k)
{
    const bool halves = k->s.halves;
    if (k->slices.count > 0)
        groupnorm_staged(halves ? 1 : 0);
    if (k->meeting && k->s.cfg->loading)
        one_pass_loaded(k->meeting); // half of it: what the next one asks for comes with the rest
    k->w.between = halves ? wait_for_other : NULL;
    k->does->add_up(k);
    k->w.between = NULL;
}

/* Outputs, when all is known of groups */

static void write_column(void *kernel, const groupnorm_column *c)
{
    groupnorm_kernel *k = kernel;
    const val column = groupnorm_existing(&k->s, &k->w, c->number);
    if (groupnorm_has_scales(k->s.cfg))
        for (int i = 0; i < GROUPNORM_SCALES; i++)
            k->rScales[i] = groupnorm_of_channels(&k->s, &k->w, k->sScales, i, column);
    else
        k->does->begin_column(k, column);
    groupnorm_over_vectors(&k->s, &k->w, c, k->does->load_vector, k->does->write_vector, k);
}

static void write_slice(groupnorm_kernel *k)
{
    const groupnorm_config *cfg = k->s.cfg;
    if (groupnorm_has_scales(cfg)) {
        LOOP_FROM(channel, convert(I32, thread()), k->s.channels, imm(cfg->threads))
            k->does->find_scales(k, channel, div(channel, imm(cfg->channels)));
        cta_sync();
    }
    if (cfg->again > 0)
        k->s.reads = k->s.writes = IR_CACHE_EVICT_FIRST;
    groupnorm_over_columns(&k->s, &k->w, write_column, k);
}

static void publish(const groupnorm_kernel *k, groupnorm_state all, val saves)
{
    k->does->publish(k, all);
    if (k->does->save)
        k->does->save(k, saves);
}

/* How many elements of a group are in `slices` slices that follow each other, entry `number` of such: f32. */
static val elements_of(const groupnorm_slice *s, val number, int slices)
{
    const groupnorm_config *cfg = s->cfg;
    const int channels = cfg->channels / cfg->parts;
    const int per_unit = groupnorm_is_nchw(s) ? channels * cfg->vec : channels * cfg->fold;
    const val range = mul(s->a.range, imm(slices)), begin = mul(groupnorm_range_of(s, number), range);
    if (cfg->ragged)
        return mul(convert(F32, groupnorm_elements_from(s, begin)), immf(channels));
    val units = max(min(range, sub(s->a.units, begin)), imm_as(I32, 0));
    return mul(convert(F32, units), immf(per_unit));
}

/* Clusters */

static groupnorm_slice slice_here(const groupnorm_config *cfg, bool vectors)
{
    groupnorm_slice s = groupnorm_slice_begin(cfg, vectors);
    groupnorm_slice_at(&s, div(convert(I32, cta_x()), imm(cfg->cluster)),
                       cfg->cluster > 1 ? convert(I32, cluster_rank()) : imm_as(I32, 0));
    return s;
}

/* Shared memory of the CTAs of a cluster. */
static tensor peers_of(const groupnorm_config *cfg, int count)
{
    return smem_tensor("peers", F32, compact(shape(count, cfg->cluster, cfg->bundle)), 16);
}

/* Lanes send `count` values of their group; after cluster_sync() every CTA has those of all. */
static void send_to_peers(const groupnorm_slice *s, tensor sPeers, int count, const val *values)
{
    val group = groupnorm_group_of_lane(s), mine = tensor_address(sPeers, coord(0, s->rank, group));
    for (int first = 0; first < s->cfg->cluster; first += groupnorm_lanes_of_group(s->cfg)) {
        val peer = add(groupnorm_lane_of_group(s), imm(first)); // lane t of a group sends to CTA t
        IF(logical_and(lt(group, imm(s->cfg->bundle)), lt(peer, imm(s->cfg->cluster))))
            for (int v = 0; v < count; v++)
                store_cluster(F32, mapa(mine, convert(U32, peer)), (int64_t)v * 4, values[v]);
    }
}

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
        m[i] = groupnorm_state_at(inside, elements_of(&k->s, rank, 1), k->does->words, sStates, rank);
    }
    return k->does->merge(&k->s, m, n);
}

static void describe_cluster(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    const int words = k->does->words;
    tensor sPeers; // (WORDS,CLUSTER,BUNDLE)
    k->s = slice_here(cfg, vectors);
    k->s.halves = groupnorm_first_steps(cfg) > 0;
    begin_and_wait(k);
    stage(k);
    if (cfg->cluster > 1)
        cluster_arrive(); // this CTA has started: peers may write to its shared memory
    k->does->load_weights(k);
    add_up(k);
    if (cfg->cluster > 1) {
        sPeers = peers_of(cfg, words);
        cluster_wait(); // all CTAs of the cluster have started
        IF(groupnorm_merges(&k->s))
            send_to_peers(&k->s, sPeers, words, k->does->found(k).of);
        cluster_sync();
    }
    IF(groupnorm_merges(&k->s)) {
        const groupnorm_state all = cfg->cluster > 1 ? merge_peers(k, sPeers) : k->does->found(k);
        publish(k, all, eq(k->s.rank, imm(0)));
    }
    cta_sync();
    write_slice(k);
}

/* Entries */

/* In the workspace, `count` entries for each group of a bundle: of `slices` each. */
typedef struct entries {
    val pointer, count; // count: i32
    int slices;
} entries;

static entries entries_of_slices(const groupnorm_slice *s)
{
    return (entries){ s->a.entries, s->a.slices, 1 };
}

static entries early_entries(const groupnorm_slice *s)
{
    return (entries){ s->a.early, div_up(s->a.slices, s->cfg->early), s->cfg->early };
}

/* The lane's entry in a block: the index of its first word. */
static val entry_at(const groupnorm_slice *s, const entries *e, val block)
{
    const int words = groupnorm_block_words(s->cfg);
    const val blocks = div_up(e->count, groupnorm_lanes_of_group(s->cfg));
    const val number = add(mul(s->bundle, convert(I64, blocks)), convert(I64, block));
    const val place = min(convert(I32, thread()), imm(words - 1));
    return add(mul(number, imm64((int64_t)GROUPNORM_ENTRY * words)), convert(I64, place));
}

/* The lane's entries in n blocks from `block` on, of those before `end`; of no values where there is none. */
static void load_entries(const groupnorm_slice *s, const entries *e, val block, val end, int n, int words,
                         groupnorm_state *of)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg), stride = groupnorm_block_words(s->cfg);
    for (int i = 0; i < n; i++) {
        const val here = add(block, imm(i)), number = add(mul(here, imm(lanes)), groupnorm_lane_of_group(s));
        of[i].count = variable(F32, immf(0));
        for (int w = 0; w < words; w++)
            of[i].of[w] = variable(F32, immf(0));
        IF(lt(number, end)) {
            const val entry = entry_at(s, e, here);
            assign(of[i].count, elements_of(s, number, e->slices));
            for (int w = 0; w < words; w++)
                assign(of[i].of[w], groupnorm_read(e->pointer, add(entry, imm(w * stride))));
        }
    }
}

/* The lanes of each group store `count` values as entry `number`. */
static void store_words(const groupnorm_slice *s, const entries *e, val number, int count, const val *values)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg), stride = groupnorm_block_words(s->cfg);
    const val own = eq(groupnorm_lane_of_group(s), rem(number, imm(lanes)));
    IF(logical_and(lt(groupnorm_group_of_lane(s), groupnorm_groups(s)), own)) {
        const val entry = entry_at(s, e, div(number, imm(lanes)));
        for (int w = 0; w < count; w++)
            groupnorm_write(e->pointer, add(entry, imm(w * stride)), values[w]);
    }
}

/*
 * Entries first..end-1 of the lane's group, whole blocks, some for each lane at once; its first one also has what is
 * merged already.
 */
static groupnorm_state merge_entries(const groupnorm_kernel *k, const entries *e, val first, val end, int at_once)
{
    const int lanes = groupnorm_lanes_of_group(k->s.cfg), words = k->does->words;
    const val is_first = eq(groupnorm_lane_of_group(&k->s), imm(0)), none = immf(0);
    groupnorm_state all = { .count = variable(F32, none) };
    for (int w = 0; w < words; w++)
        all.of[w] = variable(F32, none);
    LOOP_FROM(block, div(first, imm(lanes)), div_up(end, lanes), imm(at_once)) {
        groupnorm_state m[at_once + 1];
        load_entries(&k->s, e, block, end, at_once, words, m);
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

/* What every slice of the bundle has found: early entries, if there are any. */
static groupnorm_state merge_all(const groupnorm_kernel *k, int at_once)
{
    const entries e = k->s.cfg->early ? early_entries(&k->s) : entries_of_slices(&k->s);
    return merge_entries(k, &e, imm_as(I32, 0), e.count, at_once);
}

/* Entries of neighbouring slices become one, by the CTA that stores the last of them. */
static void merge_early(const groupnorm_kernel *k)
{
    const groupnorm_slice *s = &k->s;
    const int slices = s->cfg->early;
    const entries e = entries_of_slices(s), early = early_entries(s);
    const val number = div(s->rank, imm(slices)), before = mul(number, imm(slices));
    const val end = min(add(before, imm(slices)), s->a.slices);
    const val part = add(mul(s->bundle, convert(I64, early.count)), convert(I64, number));
    IF(is_last_cta(counter_at(s->a.arrived, part), convert(U32, sub(end, before))))
        IF(groupnorm_merges(s))
            store_words(s, &early, number, k->does->words, merge_entries(k, &e, before, end, k->does->at_once).of);
}

static void store_entry(groupnorm_kernel *k)
{
    const entries e = entries_of_slices(&k->s);
    // NOTE: L2 keeps what comes again, and outputs leave it first: gradients of 1x2048x256x256 bf16 314 us, 297 so
    if (k->s.cfg->again > 0)
        k->s.reads = IR_CACHE_EVICT_LAST;
    add_up(k);
    IF(groupnorm_merges(&k->s))
        store_words(&k->s, &e, k->s.rank, k->does->words, k->does->found(k).of);
    if (k->s.cfg->early)
        merge_early(k);
}

/* Slices that are read again */

static two_pass order_of(const groupnorm_slice *s)
{
    return (two_pass){ .counters = s->a.counters,
                       .strips = s->a.strips,
                       .abreast = groupnorm_is_nchw(s) ? imm_as(U32, 1) : convert(U32, s->a.bundles),
                       .chunks = convert(U32, s->a.slices),
                       .lag = s->a.lag };
}

/* What all slices know of a group of the bundle: the index of a word. */
static val merged_word(const groupnorm_slice *s, val group, val word)
{
    return add(mul(add(s->group, convert(I64, group)), imm64(GROUPNORM_ENTRY)), convert(I64, word));
}

/* Loads, or stores, what is known of the groups of a bundle. */
static void move_groups(const groupnorm_kernel *k, bool loads)
{
    const groupnorm_slice *s = &k->s;
    const int words = k->does->group_words;
    LOOP_FROM(i, convert(I32, thread()), imm(words * s->cfg->bundle), imm(s->cfg->threads)) {
        const val group = div(i, imm(words)), word = rem(i, imm(words)), place = merged_word(s, group, word);
        if (loads)
            set(k->sGroups, coord(word, group), groupnorm_read(s->a.merged, place));
        else
            groupnorm_write(s->a.merged, place, at(k->sGroups, word, group));
    }
}

/* The CTA whose slice was the last of its bundle: for all that write. */
static void store_merged(const groupnorm_kernel *k)
{
    IF(groupnorm_merges(&k->s))
        publish(k, merge_all(k, k->does->at_once), yes());
    cta_sync();
    move_groups(k, false);
}

static void write_again(groupnorm_kernel *k, const two_pass *order, two_pass_item *item)
{
    k->does->load_weights(k);
    two_pass_wait(order, item);
    move_groups(k, true);
    if (k->slices.count > 0)
        groupnorm_staged(0);
    cta_sync();
    write_slice(k);
    two_pass_end(order, item);
}

static void describe_split(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    k->s = groupnorm_slice_begin(cfg, vectors);
    const two_pass order = order_of(&k->s);
    groupnorm_wait();
    two_pass_item item = two_pass_draw(&order);
    groupnorm_slice_at(&k->s, convert(I32, item.strip), convert(I32, item.chunk));
    begin(k);
    stage(k);
    IF(item.writes) {
        write_again(k, &order, &item);
    }
    ELSE
    {
        k->does->load_weights(k);
        store_entry(k);
        IF(two_pass_leave(&order, &item)) {
            store_merged(k);
            two_pass_merged(&order, &item);
        }
    }
}

/* Slices that are held */

/*
 * Every CTA merges the entries of its bundle for itself. All that are held want registers meanwhile; but few lanes have
 * many entries each.
 */
static void write_held(void *kernel)
{
    enum { FEW_LANES = 2, AT_ONCE = 4 };
    groupnorm_kernel *k = kernel;
    const bool few = groupnorm_lanes_of_group(k->s.cfg) <= FEW_LANES;
    IF(groupnorm_merges(&k->s))
        publish(k, merge_all(k, few ? k->does->at_once : AT_ONCE), eq(k->s.rank, imm(0)));
    cta_sync();
    write_slice(k);
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
    stage(k);
    groupnorm_staged(0);
    write_slice(k);
}

static void describe_held(groupnorm_kernel *k, const groupnorm_config *cfg, bool vectors)
{
    enum { PATIENCE = 64 }; // the last slices of a bundle may begin when CTAs of the one before end
    k->s = groupnorm_slice_begin(cfg, vectors);
    one_pass meeting = one_pass_of_cta(k->s.a.counters, k->s.a.strips, convert(U32, k->s.a.slices));
    meeting.patience = PATIENCE;
    k->meeting = &meeting;
    groupnorm_slice_at(&k->s, convert(I32, meeting.strip), convert(I32, meeting.chunk));
    k->s.halves = groupnorm_first_steps(cfg) > 0;
    begin_and_wait(k);
    k->does->load_weights(k); // before the slice, behind whose loads they would wait
    if (cfg->loading)
        one_pass_load_in_turn(&meeting, imm_as(U32, cfg->loading));
    stage(k);
    store_entry(k);
    one_pass_meet(&meeting, write_held, write_other, k);
}

void groupnorm_describe(groupnorm_kernel *k, const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors)
{
    static void (*const kernels[])(groupnorm_kernel *, const groupnorm_config *, bool) = {
        [GROUPNORM_CLUSTER] = describe_cluster, [GROUPNORM_SPLIT] = describe_split, [GROUPNORM_HELD] = describe_held
    };
    kernels[slicing](k, cfg, vectors);
}
