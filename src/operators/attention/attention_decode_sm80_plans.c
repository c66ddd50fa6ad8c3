/*
 * attention_decode_sm80_plans.c - attention_decode's implementation sm80: choice of a config, cost, admission, launch.
 */
#include <math.h>

#include "operators/attention/attention_decode_config.h"
#include "skeletons/row_pipeline.h"

enum {
    VECTOR_BYTES = 16,
    HEAD_MAX = 256,    // elements of a head on tensor cores
    SPLIT_MIN = 512,   // keys: a CTA of 128 takes 7 us, of which 4 are the copies (bench/notes/attention.md)
    SPLIT_MAX = 4096,  // keys: longer ones gain nothing
    SPLITS_MAX = 1024, // of a sequence
    ROWS_MAX = 32,
    CTAS_MAX = 4,
    CLUSTER_PORTABLE = 8,
    CTAS = 2,             // of three stages of 128 columns in 16 bits, that an SM has room for
    E4M3_CTAS = 3,        // of blocks of 16 keys
    SPLIT_UNIT = 64,      // keys that four warps take at a time
    SMEM_RESERVED = 1024, // of each CTA
};

/* The power of two that is nearest to a ratio of two numbers, in logarithms; at least 1. */
static int64_t power_near(int64_t number, int64_t unit)
{
    int64_t power = 1;
    while (2 * power * power * unit * unit <= number * number)
        power *= 2;
    return power;
}

/*
 * Keys below which splits of a sequence of so many do not pay. One sequence waits for its longest split, and adds by a
 * cluster soon (512 keys of 128 elements 4.6 us in four splits, 6.2 in one); many pay for each one's end.
 */
static int64_t split_least(const ckl_attention_decode_desc *d, const ckl_device_info *device)
{
    const bool narrow = d->cache == CKL_E4M3, has_runs = d->d <= 128 && d->dv <= 128,
               is_cheap = device->has_tma && has_runs && !narrow && d->d + d->dv > 128;
    if (is_cheap && d->kv > SPLIT_MIN / 2 && d->kv <= 4 * SPLIT_MIN)
        return d->kv <= SPLIT_MIN ? SPLIT_MIN / 4 : SPLIT_MIN / 2;
    return d->kv > SPLIT_MIN && d->kv <= 2 * SPLIT_MIN ? SPLIT_MIN / 2 : SPLIT_MIN;
}

/*
 * Keys that are summed apart, whatever the batch: a power of two of equal parts, at most 16 that have room at once, or
 * an SM each for a head; of 8 bits as many as have room, as one CTA computes slower than an SM reads, and half of that
 * where rounding would leave a sixth of the last ones without keys.
 */
static int split_of(const ckl_attention_decode_desc *d, const ckl_device_info *device)
{
    const bool narrow = d->cache == CKL_E4M3;
    const int64_t tiles = product_i64(d->kv_heads, ceil_div(attention_decode_rows_of(d), ROWS_MAX));
    const int64_t of_head = power_of_two_floor(max_i64(device->sm_count / max_i64(tiles, 1), 1));
    const int64_t room = attention_decode_rows_of(d) > 16 ? of_head : CTAS * of_head,
                  most = max_i64(min_i64(ATTENTION_DECODE_GROUP, room), narrow ? room : of_head),
                  least = split_least(d, device), unit = narrow ? 2 * SPLIT_UNIT : SPLIT_UNIT;
    int64_t split = max_i64(least, min_i64(round_up(ceil_div(d->kv, most), SPLIT_UNIT), SPLIT_MAX));
    if (d->kv > least) {
        const int64_t parts = power_near(d->kv, split);
        split = round_up(ceil_div(d->kv, parts), unit);
        if (narrow && 6 * (parts * split - d->kv) > d->kv)
            split = round_up(ceil_div(d->kv, max_i64(parts / 2, 1)), unit);
    }
    while (ceil_div(d->kv, split) > SPLITS_MAX)
        split *= 2;
    return (int)split;
}

/* CTAs of `run` splits each. */
static int64_t runs_of(const ckl_attention_decode_desc *d, const attention_decode_sm80_config *c)
{
    return attention_decode_ctas(d, attention_decode_rows(c), c->split * c->run);
}

/* Those of one sequence and head may be filled up to a cluster. */
static int64_t ctas_of(const ckl_attention_decode_desc *d, const attention_decode_sm80_config *c)
{
    return c->cluster > 1 ? c->cluster * attention_decode_ctas(d, attention_decode_rows(c), (int)d->kv) : runs_of(d, c);
}

/* CTAs that an SM has room for: in shared memory, and in registers, of which a sum of splits takes some. */
static int64_t resident(const ckl_device_info *device, const attention_decode_sm80_config *c)
{
    const int64_t of_four_warps = c->form.d > 64 || c->form.dv > 64 ? CTAS : CTAS + 1,
                  in_registers = c->ctas ? c->ctas : 4 * of_four_warps / c->warps;
    return min_i64(c->row_warps > 1 ? 1 : in_registers,
                   device->smem_per_sm_bytes / (attention_decode_sm80_smem(c) + SMEM_RESERVED));
}

/*
 * Where each CTA has an SM, those of a sequence add up as a cluster, which ends sooner than by a workspace. A GPC has
 * room for whole clusters only, so a quarter of the SMs must be free, and half of them for sixteen (64 CTAs 11.3 ->
 * 10.2 us, but 128 12.9 -> 17.6). Several CTAs an SM wait for each other, but in pairs.
 */
static void choose_cluster(const ckl_attention_decode_desc *d, const ckl_device_info *device,
                           attention_decode_sm80_config *c)
{
    attention_decode_sm80_config tried = *c;
    const int64_t runs = ceil_div(d->kv, (int64_t)c->split * c->run);
    while (tried.cluster < runs)
        tried.cluster *= 2;
    const int64_t rooms = resident(device, c), all = rooms * device->sm_count,
                  most = tried.cluster == 2                 ? all
                         : tried.cluster > CLUSTER_PORTABLE ? device->sm_count / 2
                                                            : min_i64(device->sm_count, all * 3 / 4);
    if (device->has_tma && runs > 1 && tried.cluster <= row_pipeline_cluster_max(device) &&
        ctas_of(d, &tried) <= most && resident(device, &tried) == rooms)
        *c = tried;
}

/*
 * The share that a CTA's copies in flight are of those with which an SM gets all it can: of 8 bits more, which want
 * more warps.
 */
static double share_in_flight(const attention_decode_sm80_config *c)
{
    const double needed = c->form.cache == CKL_E4M3 ? 96 << 10 : 66 << 10,
                 key = (double)(c->form.d + c->form.dv) * (double)ckl_dtype_bytes(c->form.cache);
    return attention_decode_rings(c) * (c->stages - 1) * c->keys * key / needed;
}

/*
 * A turn of `ctas` CTAs on an SM, each of which reads `keys`, in bytes that an SM could read meanwhile, with `end` of
 * each and a start. Where the share `busy` of the SMs read, each gets more, as its copies in flight allow: half of
 * their latency is waiting for other SMs.
 */
static double turn_of(const attention_decode_sm80_config *c, double ctas, double keys, double end, double busy)
{
    const double START = 64 << 10, ALONE = 0.97;
    if (ctas == 0)
        return 0;
    const double slow = (1 + busy) / 2 / (ctas * fmin(ALONE, share_in_flight(c)));
    return ctas * (keys * fmax(busy, slow) + end) + START;
}

/* Turns of CTAs on an SM with the ends of their splits; then their sums, where a sequence has several. */
static plan_cost cost_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    const double SPLIT = 32, STORE = 16 << 10, SUM = 128 << 10, SUM_OF_CLUSTER = 24 << 10, READ = 4.6e6, LAUNCH = 0.2;
    const attention_decode_sm80_config *c = config;
    ckl_attention_decode_desc d = *(const ckl_attention_decode_desc *)desc;
    d.kv = d.left ? min_i64(d.kv, d.left) : d.kv;
    const int64_t splits = ceil_div(d.kv, c->split), own = min_i64(splits, c->run), ctas = runs_of(&d, c),
                  rooms = max_i64(resident(device, c), 1), at_once = rooms * device->sm_count, rest = ctas % at_once,
                  alone = c->cluster == 2 ? device->sm_count : device->sm_count * 3 / 4; // on an SM each
    const double keys = (double)(min_i64(d.kv, (int64_t)c->split * c->run) * (d.d + d.dv)) *
                        (double)ckl_dtype_bytes(d.cache),
                 end = SPLIT * (double)d.dv / (c->stages - 1) * (double)own + STORE, // copies in flight hide it
        // of longer ones this makes too little of clusters: 4 of 1024 keys 9.19 us in fours, in pairs 9.35
        busy = d.kv <= SPLIT_MIN ? fmin(1, (double)rest / device->sm_count) : 1;
    double bytes = (double)(ctas / at_once) * turn_of(c, (double)rooms, keys, end, 1) +
                   turn_of(c, (double)ceil_div(rest, device->sm_count), keys, end, busy);
    if (own < splits)
        bytes += c->cluster > 1 && ctas <= alone ? SUM_OF_CLUSTER : SUM;
    return (plan_cost){ LAUNCH + (d.append ? 0.5 : 0) + bytes * device->sm_count / READ,
                        2 * keys > bytes ? "memory" : "latency" };
}

/* As many splits of a CTA, if registers hold their sums, else one. */
static int run_of(const ckl_attention_decode_desc *d, const attention_decode_sm80_config *c, int run)
{
    const bool is_small = d->d <= 128 && d->dv <= 128, narrow = d->cache == CKL_E4M3,
               sums = attention_decode_quads(&c->form, attention_decode_rows(c), 32 * c->warps) &&
                      c->split % (c->keys * attention_decode_rings(c)) == 0;
    const int most_wide = narrow || d->d % 16 || c->split > SPLIT_MIN ? 1 : d->append ? 2 : 4;
    return sums && !d->left && (is_small || run <= most_wide) ? run : 1;
}

/* The same with more CTAs on an SM, for which registers are known to do; is there such a one? */
static bool with_more_ctas(attention_decode_sm80_config *c)
{
    const int d = c->form.d == c->form.dv && c->row_warps == 1 ? c->form.d : 0;
    if (c->form.cache == CKL_E4M3) {
        c->ctas = CTAS_MAX;
        c->ahead &= c->warps < 4; // beside it 128 registers spill: 64 sequences of 41 keys 7.1 us without, 8.1 with
        return d == 128 && c->keys == 16;
    }
    c->stages = 2;
    c->ctas = d == 64 ? CTAS_MAX : CTAS + 1;
    return d == 64 || d == 128;
}

/*
 * Of few keys each warp has one block, or two where CTAs take a quarter of the SMs: two stages do, and keys are asked
 * for early (128 of 120 keys 6.30 -> 5.24 us, but 16 of 104 2.88 -> 3.24). Where not all CTAs have room beside those
 * of the next launch, warps without a block go (512 CTAs of one key 5.9 -> 3.2): sums are the same without theirs. One
 * that is alone asks in vain (256 CTAs of 16 keys 4.80 us by one warp, 4.32 not asked for, 3.30 by two).
 */
static void share_few_keys(const ckl_attention_decode_desc *d, const ckl_device_info *device,
                           attention_decode_sm80_config *c)
{
    const int blocks = 4 * runs_of(d, c) > device->sm_count ? 2 : 1;
    if (d->kv > blocks * c->warps * c->keys)
        return;
    c->stages = 2;
    while (2 * runs_of(d, c) > resident(device, c) * device->sm_count && d->kv <= c->warps / 2 * c->keys)
        c->warps /= 2;
    c->ahead = device->has_tma && c->warps > 1;
}

static bool has_all_keys(const ckl_attention_decode_desc *d, const attention_decode_sm80_config *c)
{
    return d->kv <= (int64_t)c->split * c->run;
}

/*
 * CTAs that leave sums: the next launch may begin at once, and asks L2 for its first keys while others add up. Its CTAs
 * are not to gather on SMs that have less than others: clusters fit beside those of this launch (64 CTAs 6.34 -> 5.87
 * us; 128 of two blocks a warp 7.50 -> 6.73, of four 9.19 -> 10.84), or by more stages no SM has room for more than
 * its share (32768 keys 38.2 -> 35.5).
 */
static void begin_early(const ckl_attention_decode_desc *d, const ckl_device_info *device,
                        attention_decode_sm80_config *c)
{
    enum { OF_SM_MAX = 2, STAGES_MORE = 2, BLOCKS_BRIEF = 2 };
    const int64_t ctas = ctas_of(d, c), of_sm = ceil_div(ctas, device->sm_count);
    const bool is_cluster = c->cluster > 1, is_double = 2 * ctas <= device->sm_count, // there is room for two launches
        is_brief = c->split * c->run <= BLOCKS_BRIEF * c->keys * attention_decode_rings(c),
               fits = is_double || (is_cluster && is_brief);
    attention_decode_sm80_config tried = *c;
    tried.ahead = tried.early = true;
    if (!device->has_tma || d->cache == CKL_E4M3 || has_all_keys(d, c) ||
        (is_cluster ? !fits && (c->cluster > 2 || of_sm > 1) : is_double))
        return;
    while (!fits && resident(device, &tried) > of_sm && tried.stages < c->stages + STAGES_MORE)
        tried.stages++;
    if (fits || (of_sm <= OF_SM_MAX && resident(device, &tried) == of_sm))
        *c = tried;
}

/* Blocks and warps, by what a CTA's rows and keys are. */
static void choose_blocks(const ckl_attention_decode_desc *d, const ckl_device_info *device,
                          attention_decode_sm80_config *c)
{
    const bool narrow = d->cache == CKL_E4M3, is_small = d->d <= 128 && d->dv <= 128;
    if (attention_decode_rows_of(d) > 16 && is_small) { // O of two MMAs leaves no registers for sums
        c->row_warps = 2;
        c->warps *= 2;
        c->keys = 32; // what a block costs beside its products counts
        for (c->stages = 2; c->stages < ATTENTION_DECODE_STAGES_MAX && share_in_flight(c) < 0.9;)
            c->stages++; // one CTA an SM
    } else
        share_few_keys(d, device, c);
    if (narrow && is_small && c->convert && d->kv > SPLIT_MIN) {
        c->keys = 32; // a block has the bytes of 16 keys of 16 bits
        if (d->kv <= 2 * SPLIT_MIN &&
            c->row_warps == 1) { // more CTAs, whose starts and ends overlap: 64 sequences 42.1 -> 38.2 us
            c->warps = 2;
            c->split = SPLIT_MIN / 4;
        }
    } else if (narrow && is_small && c->row_warps == 1)
        c->ctas = E4M3_CTAS;
}

/* Runs of splits, with as many CTAs on an SM as have room for all their stages, then with more. */
static bool candidate_sm80(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { RUNS = 5 }; // 1, 2, 4, 8, 16
    const ckl_attention_decode_desc *d = desc;
    attention_decode_sm80_config *c = config;
    c->form = attention_decode_form_of(d);
    c->split = split_of(d, device);
    c->convert = d->cache == CKL_E4M3 && device->has_tma;
    choose_blocks(d, device, c);
    if (i > 0 && d->cache == CKL_E4M3 && (!c->convert || d->d > 128 || d->dv > 128)) // sums do not fit registers
        return false;
    attention_decode_sm80_config more = *c;
    if (i >= 2 * RUNS || (i >= RUNS && !with_more_ctas(&more)))
        return false;
    if (i >= RUNS && resident(device, &more) >= more.ctas)
        *c = more;
    c->run = run_of(d, c, 1 << i % RUNS);
    if (c->row_warps > 1 && c->run == 1 && c->stages < ATTENTION_DECODE_STAGES_MAX)
        c->stages++; // partials take the place of the rings
    while (c->stages > 2 && attention_decode_sm80_smem(c) > device->smem_per_cta_bytes)
        c->stages--;
    while (attention_decode_rings(c) > 1 && attention_decode_sm80_smem(c) > device->smem_per_cta_bytes)
        c->warps /= 2;
    choose_cluster(d, device, c);
    begin_early(d, device, c);
    c->whole = has_all_keys(d, c);
    return true;
}

/*
 * Where O, queries, scores and sums of splits leave less than 31 of a thread's registers, ptxas spills: by 230 kernels
 * of 64 to 256 elements.
 */
static bool fits_registers(const ckl_device_info *device, const attention_decode_sm80_config *c)
{
    enum { ALL = 255, UNIT = 8, REST = 31, QUAD = 4, STATE = 2 };
    const attention_decode_form *form = &c->form;
    const int threads = 32 * c->warps, share = device->registers_per_sm / (threads * (int)max_i64(c->ctas, 1)),
              quads = attention_decode_quads(form, attention_decode_rows(c), threads),
              held = (int)log2_i64(c->run) * (QUAD * quads + STATE);
    return form->dv / 2 + form->d / 8 + c->keys * 17 / 16 + held + REST <= min_i64(share / UNIT * UNIT, ALL);
}

static ckl_status admit_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_decode_desc *d = desc;
    const attention_decode_sm80_config *c = config;
    const int rows = attention_decode_rows(c);
    TRY(attention_decode_check_form("sm80", d, &c->form));
    const int64_t vector = VECTOR_BYTES / (int64_t)ckl_dtype_bytes(d->cache);
    if (d->d % vector || d->dv % vector || d->d > HEAD_MAX || d->dv > HEAD_MAX)
        FAIL(CKL_UNSUPPORTED,
             "attention_decode sm80: d=%" PRId64 " and dv=%" PRId64 " are not multiples of %" PRId64 " up to %d", d->d,
             d->dv, vector, HEAD_MAX);
    TRY(attention_decode_check_strides("sm80", d));
    if (c->convert && (d->cache != CKL_E4M3 || !device->has_tma))
        FAIL(CKL_UNSUPPORTED, "attention_decode sm80: convert=1 is of cache=e4m3 and sm_90");
    if ((c->keys != 16 && c->keys != 32) || c->warps < 1 || c->warps > 8)
        FAIL(CKL_INVALID, "attention_decode sm80: keys=%d is neither 16 nor 32, or warps=%d is not in 1..8", c->keys,
             c->warps);
    if ((c->row_warps != 1 && c->row_warps != 2) || c->warps % c->row_warps)
        FAIL(CKL_INVALID, "attention_decode sm80: row_warps=%d is neither 1, nor 2 of warps=%d", c->row_warps,
             c->warps);
    if (c->stages < 2 || c->stages > ATTENTION_DECODE_STAGES_MAX || c->ctas < 0 || c->ctas > CTAS_MAX)
        FAIL(CKL_INVALID, "attention_decode sm80: stages=%d is not in 2..%d, or ctas=%d not in 0..%d", c->stages,
             ATTENTION_DECODE_STAGES_MAX, c->ctas, CTAS_MAX);
    if (c->split < c->keys || c->split % c->keys)
        FAIL(CKL_INVALID, "attention_decode sm80: split=%d is not a multiple of keys=%d", c->split, c->keys);
    if (c->run < 1 || ATTENTION_DECODE_GROUP % c->run ||
        (c->run > 1 && (d->left || c->split % (c->keys * attention_decode_rings(c)))))
        FAIL(CKL_INVALID,
             "attention_decode sm80: run=%d does not divide %d, or is more than 1 with left or with a split=%d that is "
             "no multiple of keys=%d times %d warps",
             c->run, ATTENTION_DECODE_GROUP, c->split, c->keys, attention_decode_rings(c));
    if (c->cluster < 1 || c->cluster > ATTENTION_DECODE_CLUSTER_MAX || (c->cluster > 1 && !device->has_tma) ||
        (c->cluster > 1 && ceil_div(d->kv, (int64_t)c->split * c->run) > c->cluster))
        FAIL(CKL_UNSUPPORTED,
             "attention_decode sm80: cluster=%d is not in 1..%d, has less CTAs than a sequence, or none before sm_90",
             c->cluster, ATTENTION_DECODE_CLUSTER_MAX);
    if (c->whole && (c->cluster > 1 || !has_all_keys(d, c)))
        FAIL(CKL_UNSUPPORTED, "attention_decode sm80: whole=1 is not for kv=%" PRId64 " in runs of %d times %d keys",
             d->kv, c->run, c->split);
    if (c->run > 1 && !attention_decode_quads(&c->form, rows, 32 * c->warps))
        FAIL(CKL_UNSUPPORTED, "attention_decode sm80: run=%d: %d warps do not hold the sum of %d rows of dv=%d", c->run,
             c->warps, rows, c->form.dv);
    if (!fits_registers(device, c))
        FAIL(CKL_UNSUPPORTED,
             "attention_decode sm80: ctas=%d of %d warps leave too few registers for dv=%d, run=%d and keys=%d",
             c->ctas, c->warps, c->form.dv, c->run, c->keys);
    TRY(attention_check_smem("attention_decode", "sm80", device, attention_decode_sm80_smem(c)));
    const int64_t splits = attention_decode_ctas(d, rows, c->split);
    if (splits > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "attention_decode sm80: %" PRId64 " CTAs are more than 2^31-1", splits);
    return CKL_OK;
}

static int64_t workspace_sm80(const ckl_plan *plan)
{
    const attention_decode_sm80_config *c = plan->config;
    return c->cluster > 1 || c->whole ? 0 : attention_decode_workspace(plan->desc, attention_decode_rows(c), c->split);
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const attention_decode_sm80_config *c = plan->config;
    return attention_decode_launch(plan, args, attention_decode_rows(c), c->split, ctas_of(plan->desc, c), stream);
}

static const field sm80_fields[] = { ATTENTION_DECODE_FORM(FIELD_NESTED, (attention_decode_sm80_config, form)) //
                                     ATTENTION_DECODE_SM80_CONFIG(FIELD_ROW, attention_decode_sm80_config) };

const implementation attention_decode_sm80_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(attention_decode, sm80),
    .candidate = candidate_sm80,
    .cost = cost_sm80,
    .summary =
        "keys split over CTAs at fixed lengths, each warp with a ring of its own; mma.sync; every GPU from sm_80 on",
    .params = &attention_decode_param_list,
    .workspace_bytes = workspace_sm80,
};
