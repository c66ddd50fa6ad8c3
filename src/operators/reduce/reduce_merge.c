/* reduce_merge.c - merges the states of rows and columns that threads and CTAs share. */
#include "operators/reduce/reduce_columns.h"

/*
 * Rows: the CTAs of a row send their states to the one that was the last to start.
 *
 * Fences and a count of finished CTAs would cost more than the rest of a small reduction: three round trips to L2, one
 * after the other. Here it is decided which CTA finishes the row while the elements are being loaded, and a state needs
 * no ordering: every 32 bits of it travel with a mark in one 64-bit exchange, so a reader that finds the mark has the
 * bits. All other CTAs have started by then, so none waits for one that cannot run.
 *
 * A CTA of columns has hundreds of states. So those count when they have read their elements, and merge the states of
 * their own threads while the count is on its way; or, for several rounds (reduce_columns_marked()), store, fence and
 * count at the end.
 */
enum { SLOT_BYTES = 8, WORDS_MAX = 2 * REDUCE_VALUES_MAX };

static int words_of(ir_type type)
{
    return type_bytes(type) / 4;
}

static int words_of_state(const reducer *r)
{
    int words = 0;
    for (int i = 0; i < r->count; i++)
        words += words_of(r->types[i]);
    return words;
}

int reduce_state_words(const reduce_kind *kind, bool compensated)
{
    reducer r = reducer_of(kind, compensated);
    return words_of_state(&r);
}

reduce_slots reduce_slots_of(const reducer *r, val states, val row, int ctas)
{
    int64_t bytes = (int64_t)SLOT_BYTES * words_of_state(r) * ctas;
    return (reduce_slots){ .r = r, .address = add(states, convert(U64, mul(row, imm64(bytes)))), .ctas = ctas };
}

/* Slot of a word, (CTAS) of each: threads that receive from neighbouring CTAs read neighbouring slots. */
static val slot_of(const reduce_slots *s, int word, val rank)
{
    val first = add(s->address, convert(U64, mul(rank, imm(SLOT_BYTES))));
    return add(first, imm_as(U64, (int64_t)word * s->ctas * SLOT_BYTES));
}

static void split(const reducer *r, const val *state, val *words)
{
    for (int i = 0; i < r->count; i++) {
        if (words_of(r->types[i]) == 1)
            *words++ = bitcast(U32, state[i]);
        else {
            unpack(bitcast(U64, state[i]), U32, &words[0], &words[1]);
            words += 2;
        }
    }
}

static void join(const reducer *r, const val *words, val *state)
{
    for (int i = 0; i < r->count; i++) {
        bool single = words_of(r->types[i]) == 1;
        state[i] = bitcast(r->types[i], single ? words[0] : pack(U64, words[0], words[1]));
        words += single ? 1 : 2;
    }
}

val reduce_arrive(val counter)
{
    val before = variable(I32, imm(0));
    IF(eq(thread(), imm(0)))
        assign(before, atomic_add(counter, imm(1)));
    return before;
}

val reduce_is_last(val counter, val arrival, int ctas)
{
    tensor gCounter = gmem_tensor(counter, I32, compact(leaf(1))); // (1)
    val is_last = logical_and(eq(thread(), imm(0)), eq(arrival, imm(ctas - 1)));
    IF(is_last)
        set(gCounter, 0, imm(0));
    return select(is_last, imm(1), imm(0));
}

val reduce_broadcast(val known)
{
    tensor sKnown = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    IF(eq(thread(), imm(0)))
        set(sKnown, 0, known);
    cta_sync();
    return ne(at(sKnown, 0), imm(0));
}

void reduce_send(const reduce_slots *s, val rank, const val *state)
{
    val word[WORDS_MAX];
    split(s->r, state, word);
    for (int w = 0; w < words_of_state(s->r); w++) {
        val marked = pack(U64, word[w], imm_as(U32, 1));
        atomic_exchange(slot_of(s, w, rank), marked);
    }
}

/* The states that one thread receives at a time: all words are requested before the first wait. */
typedef struct incoming {
    int count, words; // states, and words of each
    val exists[REDUCE_RECEIVE_MAX];
    val word[REDUCE_RECEIVE_MAX][WORDS_MAX];
    val missing; // words
} incoming;

static incoming expect(const reduce_slots *s, const val *ranks, int count)
{
    incoming d = { .count = count, .words = words_of_state(s->r), .missing = variable(I32, imm(0)) };
    for (int u = 0; u < count; u++) {
        d.exists[u] = lt(ranks[u], imm(s->ctas));
        assign(d.missing, add(d.missing, select(d.exists[u], imm(d.words), imm(0))));
        for (int w = 0; w < d.words; w++)
            d.word[u][w] = variable(U32, imm(0));
    }
    return d;
}

/* Empties the slots. One that was emptied before gives zeros, which change nothing. */
static void ask(const reduce_slots *s, const val *ranks, incoming *d)
{
    val got[REDUCE_RECEIVE_MAX][WORDS_MAX], bits, mark, none = imm_as(U64, 0);
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            got[u][w] = variable(U64, none);
            IF(d->exists[u])
                assign(got[u][w], atomic_exchange(slot_of(s, w, ranks[u]), none));
        }
    for (int u = 0; u < d->count; u++)
        for (int w = 0; w < d->words; w++) {
            unpack(got[u][w], U32, &bits, &mark);
            assign(d->word[u][w], bit_or(d->word[u][w], bits));
            assign(d->missing, sub(d->missing, convert(I32, mark)));
        }
}

void reduce_receive(const reduce_slots *s, const val *ranks, int count, val states[][REDUCE_VALUES_MAX])
{
    incoming d = expect(s, ranks, count);
    FOREVER {
        ask(s, ranks, &d);
        BREAK_IF(eq(d.missing, imm(0)));
    }
    for (int u = 0; u < count; u++) {
        val identity[REDUCE_VALUES_MAX];
        s->r->identity(s->r, identity);
        join(s->r, d.word[u], states[u]);
        for (int i = 0; i < s->r->count; i++)
            states[u][i] = select(d.exists[u], states[u][i], identity[i]);
    }
}

/*
 * The usual way, for states that CTAs write to global memory themselves: counts this CTA as finished. Tells all its
 * threads whether it is the last, which then sees what the others wrote.
 */
static val last_to_finish(val counter, int ctas)
{
    val is_last = variable(I32, imm(0));
    cta_sync(); // what the CTA wrote happens before ...
    IF(eq(thread(), imm(0)))
        fence_gpu(); // ... this fence of one thread, for all
    assign(is_last, reduce_is_last(counter, reduce_arrive(counter), ctas));
    IF(eq(thread(), imm(0)))
        fence_gpu(); // and the others' writes before what follows
    return reduce_broadcast(is_last);
}

/* Columns */

enum { WARP = 32 };

/* All states of a CTA come to its layer 0 */

/* Layers that receive the states of one column, some CTAs' each; not so many that merging theirs takes longer. */
static int receivers_of(const reduce_columns_config *cfg)
{
    enum { MOST = 8 };
    return (int)min_i64(MOST, max_i64(1, reduce_columns_layers(cfg) / cfg->vec));
}

/* A slot for every thread that gives its states away: in each round half of the groups, so one less than all. */
static void make_slots(const columns_kernel *k, tensor *sS)
{
    int slots = (reduce_columns_groups(k->cfg) - 1) * k->cfg->lanes;
    if (k->cfg->split > 1)
        slots = (int)max_i64(slots, (int64_t)receivers_of(k->cfg) * k->cfg->lanes);
    reduce_states(k->r, "states", compact(shape(max_i64(slots, 1), k->cfg->vec)), sS); // (SLOTS,VEC)
}

/* Merges the states of a warp's layers with the same columns. */
static void merge_in_warps(columns_kernel *k)
{
    const reduction all = reduce_reduction(k->r);
    for (int c = 0; c < k->cfg->vec && k->cfg->lanes < WARP; c++)
        warp_reduce_across(&all, k->cfg->lanes, k->state[c]);
}

/* Every group writes its states: the columns of a group, from its own first one on. */
static void share_shifted(const columns_kernel *k, tensor *sG)
{
    const reduce_columns_config *cfg = k->cfg;
    reduce_states(k->r, "shifted", compact(shape(cfg->lanes * cfg->vec, reduce_columns_groups(cfg))), sG);
    const val group = reduce_columns_group(cfg, 1);
    IF(lt(reduce_columns_group(cfg, 0), imm(cfg->lanes)))
        for (int c = 0; c < cfg->vec; c++)
            reduce_set_state(k->r, sG, coord(add(mul(k->lane, imm(cfg->vec)), imm(c)), group), k->state[c]);
    cta_sync();
}

/*
 * Merges groups of ragged columns: group c merges all groups' states of column c of every lane, and layer 0 collects
 * the columns of its lane.
 */
static void merge_shifted(columns_kernel *k, const tensor *sS)
{
    const reduce_columns_config *cfg = k->cfg;
    tensor sG[REDUCE_VALUES_MAX]; // (COLUMNS,GROUPS)
    merge_in_warps(k);
    share_shifted(k, sG);
    const val group = reduce_columns_group(cfg, 1), owns = lt(reduce_columns_group(cfg, 0), imm(cfg->lanes - 1));
    val total[REDUCE_VALUES_MAX], other[REDUCE_VALUES_MAX];
    IF(logical_and(owns, lt(group, imm(cfg->vec)))) {
        val column = convert(I64, add(mul(k->lane, imm(cfg->vec)), group));
        for (int g = 0; g < reduce_columns_groups(cfg); g++) {
            val shifted = add(column, reduce_columns_shift(k, imm(g)));
            reduce_get_state(k->r, sG, coord(shifted, g), other);
            for (int i = 0; i < k->r->count && g == 0; i++)
                total[i] = variable(k->r->types[i], other[i]);
            if (g)
                k->r->merge(total, other, (void *)k->r);
        }
        reduce_set_state(k->r, sS, coord(k->lane, group), total);
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
    val group = reduce_columns_group(cfg, 1);
    val is_first = lt(lane(), imm(cfg->lanes)); // of the lanes with the same states
    for (int half = reduce_columns_groups(cfg) / 2, first = 0; half > 0; first += half, half /= 2) {
        val slot = add(mul(add(rem(group, imm(half)), imm(first)), imm(cfg->lanes)), k->lane);
        val gives = logical_and(ge(group, imm(half)), lt(group, imm(2 * half)));
        IF(logical_and(gives, is_first))
            for (int c = 0; c < cfg->vec; c++)
                reduce_set_state(k->r, sS, coord(slot, c), k->state[c]);
        cta_sync();
        IF(lt(group, imm(half)))
            for (int c = 0; c < cfg->vec; c++) {
                val other[REDUCE_VALUES_MAX];
                reduce_get_state(k->r, sS, coord(slot, c), other);
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
        bytes += width * type_bytes(k->r->types[i]);
    val number = add(mul(k->tile, imm(cfg->split)), rank);
    val address = add(k->p.states, convert(U64, mul(number, imm64(bytes))));
    for (int i = 0; i < k->r->count; i++) {
        int64_t size = type_bytes(k->r->types[i]);
        val mine = mul(k->lane, imm((int)(cfg->vec * size)));
        gS[i] = gmem_tensor(add(address, convert(U64, mine)), k->r->types[i], compact(leaf(cfg->vec))); // (VEC)
        address = add(address, imm_as(U64, width * size));
    }
}

static int states_alignment(const columns_kernel *k, int value)
{
    return (int)min_i64(16, (int64_t)k->cfg->vec * type_bytes(k->r->types[value]));
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

/* Loads the states of a CTA; those of no elements if it does not exist. */
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

/* CTAs whose states of `values` numbers a layer loads before it uses the first. */
static int loaded_at_once(const reduce_columns_config *cfg, int values)
{
    enum { REGISTERS = 48, ADDRESS = 2 }; // in which they wait
    const int64_t most = power_of_two_floor(REGISTERS / (cfg->vec * values + ADDRESS));
    return (int)min_i64(most, ceil_div(cfg->split, reduce_columns_layers(cfg)));
}

int reduce_columns_rounds(const reduce_columns_config *cfg)
{
    const int values = reducer_of(&cfg->kind, cfg->compensated).count;
    const bool one = cfg->split == 1 || reduce_columns_marked(cfg);
    return one ? 1 : (int)ceil_div(cfg->split, reduce_columns_layers(cfg) * loaded_at_once(cfg, values));
}

/* Every layer merges the states of some CTAs. */
static void merge_received(columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    const int layers = reduce_columns_layers(cfg), at_once = loaded_at_once(cfg, k->r->count);
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

/* The slots of this thread's lane, for its columns of all CTAs: lanes side by side, then its columns, then CTAs. */
static reduce_slots lane_slots(const columns_kernel *k)
{
    const reduce_columns_config *cfg = k->cfg;
    reduce_slots s = reduce_slots_of(k->r, k->p.states, k->tile, cfg->split * cfg->lanes * cfg->vec);
    s.address = add(s.address, convert(U64, mul(k->lane, imm(SLOT_BYTES))));
    return s;
}

/* Of column c of the lane, from CTA number `rank`; i32, which takes fewer registers while words are awaited. */
static val slot_number(const columns_kernel *k, val rank, val c)
{
    const reduce_columns_config *cfg = k->cfg;
    return add(mul(convert(I32, rank), imm(cfg->lanes * cfg->vec)), convert(I32, mul(c, imm(cfg->lanes))));
}

static void send_states(const columns_kernel *k)
{
    const reduce_slots slots = lane_slots(k);
    for (int c = 0; c < k->cfg->vec; c++)
        reduce_send(&slots, slot_number(k, k->rank, imm(c)), k->state[c]);
}

/* States that a layer receives at once: more words spill where four CTAs are to fit an SM. */
static int received_at_once(int state_words)
{
    enum { WORDS = 4 };
    return (int)max_i64(1, WORDS / state_words);
}

bool reduce_columns_marked(const reduce_columns_config *cfg)
{
    return cfg->split <= receivers_of(cfg) * received_at_once(reduce_state_words(&cfg->kind, cfg->compensated));
}

/* Receives and merges column c of this thread's lane from every receivers_of()-th CTA. */
static void receive_column(const columns_kernel *k, val first, val c, val *total)
{
    const int receivers = receivers_of(k->cfg);
    const int at_once = (int)min_i64(received_at_once(words_of_state(k->r)), ceil_div(k->cfg->split, receivers));
    const reduce_slots slots = lane_slots(k);
    val numbers[REDUCE_RECEIVE_MAX], states[REDUCE_RECEIVE_MAX][REDUCE_VALUES_MAX];
    reduce_begin(k->r, total);
    LOOP_FROM(rank, convert(I32, first), imm(k->cfg->split), imm(receivers * at_once)) {
        for (int u = 0; u < at_once; u++)
            numbers[u] = slot_number(k, add(rank, imm(u * receivers)), c);
        reduce_receive(&slots, numbers, at_once, states);
        for (int u = 0; u < at_once; u++)
            k->r->merge(total, states[u], (void *)k->r);
    }
}

/* Layers receive a column each, or some, and then merge all columns of their lane. */
static void merge_marked(columns_kernel *k, const tensor *sS)
{
    const reduce_columns_config *cfg = k->cfg;
    const int layers = reduce_columns_layers(cfg), receivers = receivers_of(cfg);
    val total[REDUCE_VALUES_MAX], receiver = div(k->layer, imm(cfg->vec));
    IF(lt(receiver, imm(receivers)))
        for (int n = 0; n < ceil_div(cfg->vec, layers); n++) {
            val c = rem(add(k->layer, imm(n * layers)), imm(cfg->vec));
            receive_column(k, receiver, c, total);
            reduce_set_state(k->r, sS, coord(add(mul(receiver, imm(cfg->lanes)), k->lane), c), total);
        }
    cta_sync();
    for (int c = 0; c < cfg->vec; c++)
        for (int g = 0; g < receivers; g++) {
            val other[REDUCE_VALUES_MAX];
            reduce_get_state(k->r, sS, coord(add(k->lane, imm(g * cfg->lanes)), c), other);
            for (int i = 0; i < k->r->count && g == 0; i++)
                assign(k->state[c][i], other[i]);
            if (g > 0)
                k->r->merge(k->state[c], other, (void *)k->r);
        }
}

static val counter_of(const columns_kernel *k)
{
    return add(k->p.counters, convert(U64, mul(k->tile, imm(4))));
}

/* `arrival` counts this CTA among those that have read their elements. */
static val merge_ctas(columns_kernel *k, const tensor *sS, val arrival)
{
    const bool marked = reduce_columns_marked(k->cfg);
    val is_last;
    IF(eq(k->layer, imm(0))) {
        if (marked)
            send_states(k);
        else
            store_states(k);
    }
    if (marked)
        is_last = reduce_broadcast(reduce_is_last(counter_of(k), arrival, k->cfg->split));
    else
        is_last = last_to_finish(counter_of(k), k->cfg->split);
    IF(is_last) {
        if (marked) {
            merge_marked(k, sS);
        } else {
            merge_received(k);
            merge_layers(k, sS);
        }
    }
    return is_last;
}

val reduce_columns_merge(columns_kernel *k)
{
    const bool several = k->cfg->split > 1;
    tensor sS[REDUCE_VALUES_MAX]; // (SLOTS,VEC)
    val arrival = several && reduce_columns_marked(k->cfg) ? reduce_arrive(counter_of(k)) : imm(0);
    make_slots(k, sS);
    if (k->ragged)
        merge_shifted(k, sS);
    else
        merge_layers(k, sS);
    val has_total = eq(k->layer, imm(0));
    return several ? logical_and(has_total, merge_ctas(k, sS, arrival)) : has_total;
}
