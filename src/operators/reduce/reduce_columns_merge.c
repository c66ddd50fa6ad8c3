/* reduce_columns_merge.c - the states of columns, by all threads of a CTA and by CTAs, become one each. */
#include "operators/reduce/reduce_columns.h"

enum { WARP = 32, STATES_AT_ONCE = 32 }; // registers that states of other CTAs are read into

/* All states of a CTA come to its layer 0 */

/* A slot for every thread that gives its states away: in each round half of the groups, so one less than all. */
static void make_slots(const columns_kernel *k, tensor *sS)
{
    static const char *const names[REDUCE_VALUES_MAX] = { "states0", "states1", "states2", "states3",
                                                          "states4", "states5", "states6", "states7" };
    int slots = (columns_groups(k->cfg) - 1) * k->cfg->lanes;
    for (int i = 0; i < k->r->count; i++)
        sS[i] =
            smem_tensor(names[i], k->r->types[i], compact(shape(max_i64(slots, 1), k->cfg->vec)), 16); // (SLOTS,VEC)
}

/* Merges what the layers of a warp have of the same columns. */
static void merge_in_warps(columns_kernel *k)
{
    const reduction all = reduce_reduction(k->r);
    for (int c = 0; c < k->cfg->vec && k->cfg->lanes < WARP; c++)
        warp_reduce_across(&all, k->cfg->lanes, k->state[c]);
}

/* Every group writes its states: the columns of a group, from its own first one on. */
static void share_shifted(const columns_kernel *k, tensor *sG)
{
    static const char *const names[REDUCE_VALUES_MAX] = { "shifted0", "shifted1", "shifted2", "shifted3",
                                                          "shifted4", "shifted5", "shifted6", "shifted7" };
    const reduce_columns_config *cfg = k->cfg;
    const layout slots = compact(shape(cfg->lanes * cfg->vec, columns_groups(cfg)));
    for (int i = 0; i < k->r->count; i++)
        sG[i] = smem_tensor(names[i], k->r->types[i], slots, 16); // (COLUMNS,GROUPS)
    IF(lt(lane(), imm(cfg->lanes)))
        for (int c = 0; c < cfg->vec; c++)
            for (int i = 0; i < k->r->count; i++)
                tensor_set(sG[i], coord(add(mul(k->lane, imm(cfg->vec)), imm(c)), warp()), k->state[c][i]);
    cta_sync();
}

/*
 * Groups of ragged columns meet: group number c merges what all groups have of column c of every lane, and layer 0 collects the
 * columns of its lane.
 */
static void merge_shifted(columns_kernel *k, const tensor *sS)
{
    const reduce_columns_config *cfg = k->cfg;
    tensor sG[REDUCE_VALUES_MAX]; // (COLUMNS,GROUPS)
    merge_in_warps(k);
    share_shifted(k, sG);
    val owns = lt(lane(), imm(cfg->lanes - 1)), total[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
    IF(logical_and(owns, lt(warp(), imm(cfg->vec)))) {
        val column = convert(I64, add(mul(k->lane, imm(cfg->vec)), warp()));
        for (int g = 0; g < columns_groups(cfg); g++) {
            val shifted = add(column, columns_shift(k, imm(g)));
            for (int i = 0; i < k->r->count; i++)
                other[i] = g ? at(sG[i], shifted, g) : (total[i] = variable(k->r->types[i], at(sG[i], shifted, g)));
            if (g)
                k->r->merge(total, other, (void *)k->r);
        }
        for (int i = 0; i < k->r->count; i++)
            tensor_set(sS[i], coord(k->lane, warp()), total[i]);
    }
    cta_sync();
    IF(logical_and(owns, eq(k->layer, imm(0))))
        for (int c = 0; c < cfg->vec; c++)
            for (int i = 0; i < k->r->count; i++)
                assign(k->state[c][i], at(sS[i], k->lane, c));
}

/* In each round the upper half of the groups gives its states to the lower half, through slots of the round's own. */
static void merge_layers(columns_kernel *k, const tensor *sS)
{
    const reduce_columns_config *cfg = k->cfg;
    merge_in_warps(k);
    val group = div(thread(), imm((int)max_i64(cfg->lanes, WARP)));
    val is_first = lt(lane(), imm(cfg->lanes)); // of the lanes with the same states
    for (int half = columns_groups(cfg) / 2, first = 0; half > 0; first += half, half /= 2) {
        val slot = add(mul(add(rem(group, imm(half)), imm(first)), imm(cfg->lanes)), k->lane);
        val gives = logical_and(ge(group, imm(half)), lt(group, imm(2 * half)));
        IF(logical_and(gives, is_first))
            for (int c = 0; c < cfg->vec; c++)
                for (int i = 0; i < k->r->count; i++)
                    tensor_set(sS[i], coord(slot, c), k->state[c][i]);
        cta_sync();
        IF(lt(group, imm(half)))
            for (int c = 0; c < cfg->vec; c++) {
                val other[REDUCE_VALUES_MAX];
                for (int i = 0; i < k->r->count; i++)
                    other[i] = at(sS[i], slot, c);
                k->r->merge(k->state[c], other, (void *)k->r);
            }
    }
}

/* And all states of a column to the last of its CTAs */

/* Where CTA number `rank` of the columns leaves the states of this thread's lane: (VEC) of every value. */
static void find_states(const columns_kernel *k, val rank, tensor *gS)
{
    const reduce_columns_config *cfg = k->cfg;
    int64_t width = (int64_t)cfg->lanes * cfg->vec, bytes = 0;
    for (int i = 0; i < k->r->count; i++)
        bytes += width * ir_type_bytes(k->r->types[i]);
    val number = add(mul(k->tile, imm(cfg->split)), rank);
    val address = add(k->p.states, convert(U64, mul(number, imm64(bytes))));
    for (int i = 0; i < k->r->count; i++) {
        int64_t size = ir_type_bytes(k->r->types[i]);
        val mine = mul(k->lane, imm((int)(cfg->vec * size)));
        gS[i] = gmem_tensor(add(address, convert(U64, mine)), k->r->types[i], compact(leaf(cfg->vec))); // (VEC)
        address = add(address, imm_as(U64, width * size));
    }
}

static int states_alignment(const columns_kernel *k, int value)
{
    return (int)min_i64(16, (int64_t)k->cfg->vec * ir_type_bytes(k->r->types[value]));
}

static void store_states(const columns_kernel *k)
{
    tensor gS[REDUCE_VALUES_MAX]; // (VEC)
    find_states(k, k->rank, gS);
    for (int i = 0; i < k->r->count; i++) {
        tensor rS = fragment(k->r->types[i], compact(leaf(k->cfg->vec))); // (VEC)
        for (int c = 0; c < k->cfg->vec; c++)
            set(rS, c, k->state[c][i]);
        copy(rS, gS[i], states_alignment(k, i));
    }
}

/* The states of one CTA, or those of no elements where there is no such CTA. */
static void load_states(const columns_kernel *k, val rank, tensor *rS)
{
    tensor gS[REDUCE_VALUES_MAX]; // (VEC)
    val identity[REDUCE_VALUES_MAX];
    k->r->identity(k->r, identity);
    find_states(k, rank, gS);
    for (int i = 0; i < k->r->count; i++) {
        rS[i] = fragment(k->r->types[i], compact(leaf(k->cfg->vec))); // (VEC)
        fill(rS[i], identity[i]);
    }
    IF(lt(rank, imm(k->cfg->split)))
        for (int i = 0; i < k->r->count; i++)
            copy(gS[i], rS[i], states_alignment(k, i));
}

/* Every layer merges the states of some CTAs, several of which it loads before it uses the first. */
static void merge_received(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    int layers = columns_layers(cfg), at_once = (int)max_i64(1, STATES_AT_ONCE / (cfg->vec * k->r->count));
    at_once = (int)min_i64(at_once, ceil_div(cfg->split, layers));
    val identity[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
    tensor rS[at_once][REDUCE_VALUES_MAX]; // (VEC)
    k->r->identity(k->r, identity);
    for (int c = 0; c < cfg->vec; c++)
        for (int i = 0; i < k->r->count; i++)
            assign(k->state[c][i], identity[i]);
    LOOP_FROM(rank, convert(I64, k->layer), imm64(cfg->split), imm(layers * at_once)) {
        for (int u = 0; u < at_once; u++)
            load_states(k, add(rank, imm(u * layers)), rS[u]);
        for (int u = 0; u < at_once; u++)
            for (int c = 0; c < cfg->vec; c++) {
                for (int i = 0; i < k->r->count; i++)
                    other[i] = at(rS[u][i], c);
                k->r->merge(k->state[c], other, (void *)k->r);
            }
    }
}

static val merge_ctas(columns_kernel *k, const tensor *sS)
{
    IF(eq(k->layer, imm(0)))
        store_states(k);
    val is_last = reduce_last_to_finish(add(k->p.counters, convert(U64, mul(k->tile, imm(4)))), k->cfg->split);
    IF(is_last) {
        merge_received(k);
        merge_layers(k, sS);
    }
    return is_last;
}

val columns_merge(columns_kernel *k)
{
    tensor sS[REDUCE_VALUES_MAX]; // (SLOTS,VEC)
    make_slots(k, sS);
    if (k->ragged)
        merge_shifted(k, sS);
    else
        merge_layers(k, sS);
    val has_total = eq(k->layer, imm(0));
    return k->cfg->split > 1 ? logical_and(has_total, merge_ctas(k, sS)) : has_total;
}
