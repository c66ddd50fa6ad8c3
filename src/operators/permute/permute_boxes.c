/*
 * permute_boxes.c - a CTA moves a box: some elements of each mode that runs fast in x or in y, so that both sides
 * access long runs of memory however short the modes are.
 *
 * Runs of x are copied to shared memory in the aligned chunks that they touch. Distances in shared memory are those of
 * memory modulo a chunk, so every run keeps its place between two boundaries, and an element's address is a sum of
 * products. The lanes that share a run of y write whole words of memory. Words of all runs are made of the same
 * elements, but for where words begin, so a thread finds these once.
 */
#include "operators/permute/permute_boxes.h"
#include "operators/permute/transpose_tile.h"

enum { WORD_ELEMENTS_MAX = 4, WORD_BYTES = 4, CHUNK = PERMUTE_CHUNK_BYTES };

typedef struct boxes {
    const permute_boxes_config *cfg;
    bool even; // all runs of y begin with a word
    permute_boxes_values p;
    ckl_dtype type, word_type;
    int word_elements;
    val x, y;                              // addresses of the box
    val count[PERMUTE_MODES_MAX];          // of the box's elements of a mode that exist, u32
    val smem, phase;                       // shared address of the first chunk, the box's first byte in it
    val run_x, run_y;                      // bytes of a run of x, elements of one of y
    val place[2 * WORD_ELEMENTS_MAX - 1];  // in the box: elements from the last one before the thread's word on, bytes
    val number[2 * WORD_ELEMENTS_MAX - 1]; // and their number in the run
} boxes;

/* The coordinate of mode i of box n; the other modes' are left in n. */
static val next_coordinate(const boxes *k, int i, bool last, val *n)
{
    return last ? *n : divisor_coordinate(n, k->p.box[i], k->p.factor[i], k->p.shift[i]);
}

static val moved(val address, val steps, val stride)
{
    return add(address, convert(U64, mul(convert(I64, steps), stride)));
}

/* The same within a box, of less than 4 GB. */
static val moved_in_box(val address, val steps, val stride)
{
    return add(address, convert(U64, mul(steps, convert(U32, stride))));
}

/* Finds the box of this CTA. Neighbouring CTAs go along y. */
static void find_box(boxes *k)
{
    const permute_boxes_values *p = &k->p;
    val rest = cta_x();
    k->x = p->x;
    k->y = p->y;
    for (int i = 0; i < k->cfg->rank; i++) {
        val next = i + 1 < k->cfg->rank ? div(rest, p->boxes[i]) : imm_as(U32, 0);
        val first = mul(i + 1 < k->cfg->rank ? sub(rest, mul(next, p->boxes[i])) : rest, p->box[i]);
        rest = next;
        k->count[i] = min(p->box[i], sub(p->size[i], first));
        k->x = moved(k->x, first, p->stride_x[i]);
        k->y = moved(k->y, first, p->stride_y[i]);
    }
}

/* Do runs of x go along mode i of the box? */
static bool in_run_x(const permute_boxes_config *cfg, int i)
{
    return i < cfg->run ? cfg->shared >> i & 1 : i < cfg->run + cfg->across;
}

/* Runs end with the last element of each of their modes. */
static void find_runs(boxes *k)
{
    const int bytes = k->cfg->bytes;
    k->run_x = imm_as(U32, bytes);
    k->run_y = imm_as(U32, 1);
    for (int i = 0; i < k->cfg->run + k->cfg->across; i++) {
        val steps = sub(k->count[i], imm(1));
        if (in_run_x(k->cfg, i))
            k->run_x = add(k->run_x, mul(steps, convert(U32, k->p.stride_x[i])));
        if (i < k->cfg->run)
            k->run_y = add(k->run_y, mul(steps, div(convert(U32, k->p.stride_y[i]), imm(bytes))));
    }
}

/* The threads share the chunks of all runs of x: each copies its own, or asks L2 for the lines that begin with them. */
static void load_box(const boxes *k, bool ask)
{
    enum { LINE_BYTES = 128 };
    const permute_boxes_config *cfg = k->cfg;
    int modes[PERMUTE_MODES_MAX], count = 0;
    val runs = imm_as(U32, 1);
    for (int i = 0; i < cfg->run + cfg->across + cfg->more; i++)
        if (!in_run_x(cfg, i)) {
            modes[count++] = i;
            runs = mul(runs, k->p.box[i]);
        }
    LOOP_FROM(n, thread(), mul(runs, k->p.chunks), imm(PERMUTE_THREADS)) {
        val run = divisor_quotient(n, k->p.chunks_factor, k->p.chunks_shift), at[PERMUTE_MODES_MAX];
        val offset = mul(sub(n, mul(run, k->p.chunks)), imm(CHUNK)), from = k->x, to = k->phase;
        for (int i = 0; i < count; i++) {
            at[i] = next_coordinate(k, modes[i], i + 1 == count, &run);
            from = moved_in_box(from, at[i], k->p.stride_x[modes[i]]);
            to = add(to, mul(at[i], k->p.smem[modes[i]]));
        }
        val phase = bit_and(to, imm(CHUNK - 1)), end = add(phase, k->run_x), exists = lt(offset, end);
        for (int i = 0; i < count; i++)
            exists = logical_and(exists, lt(at[i], k->count[modes[i]]));
        from = sub(add(from, convert(U64, offset)), convert(U64, phase));
        if (ask) {
            IF(logical_and(exists, eq(bit_and(offset, imm(LINE_BYTES - 1)), imm(0))))
                prefetch_L2(from);
        } else {
            IF(exists)
                cp_async(add(k->smem, add(sub(to, phase), offset)), from, CHUNK, min(sub(end, offset), imm(CHUNK)));
        }
    }
}

/*
 * What a thread stores: mode 0, 2 the number of its word in a run; 1, 3 that of its run. Runs beside each other in a
 * warp have their elements in other banks of shared memory, where many of one run would meet.
 */
static val part_of_thread(const permute_boxes_config *cfg, int low, int high)
{
    const int along = permute_boxes_along(cfg), times = low == 0 ? along : cfg->abreast;
    const int words = cfg->lanes / along, runs = PERMUTE_THREADS / (cfg->lanes * cfg->abreast);
    return add(thread_at(thread(), low, along, cfg->abreast, words, runs),
               mul(thread_at(thread(), high, along, cfg->abreast, words, runs), imm(times)));
}

/*
 * Finds where the elements lie that this thread's word of a run of y may have. A run's words are a ring: what the last
 * lacks, the first has.
 */
static void find_places(boxes *k)
{
    const int elements = k->word_elements, ring = k->cfg->lanes * elements;
    val word = part_of_thread(k->cfg, 0, 2);
    for (int e = k->even || k->cfg->run == 1 ? elements - 1 : 0; e < 2 * elements - 1; e++) {
        val n = bit_and(add(mul(word, imm(elements)), imm(e - (elements - 1))), imm(ring - 1));
        k->number[e] = n;
        k->place[e] = k->phase;
        for (int i = 0; i < k->cfg->run; i++) {
            val at = next_coordinate(k, i, i + 1 == k->cfg->run, &n);
            k->place[e] = add(k->place[e], mul(at, k->p.smem[i]));
        }
    }
}

/*
 * Of elements counted from the last one before a word: element e, where the run begins `skipped` elements after a word.
 */
static val chosen(const boxes *k, const val *of, int e, val skipped)
{
    val x = of[k->word_elements - 1 + e];
    for (int s = 1; s < k->word_elements; s++)
        x = select(eq(skipped, imm(s)), of[k->word_elements - 1 + e - s], x);
    return x;
}

static void store_elements(const boxes *k, val to, ckl_dtype type, int count, const val *number, const val *place)
{
    val x[WORD_ELEMENTS_MAX];
    for (int e = 0; e < count; e++)
        x[e] = at(smem_view(add(k->smem, place[e]), k->type, compact(leaf(1))), 0);
    val address = add(to, convert(U64, mul(number[0], imm(k->cfg->bytes))));
    set(gmem_tensor(address, type, compact(leaf(1))), 0, transpose_word(count, x));
}

/*
 * Stores this thread's word of the run at `to`, whose elements lie `shift` after those of the first run. Both ends of a
 * run are stored by elements. Along a single mode it is cheaper to find elements again than to select them.
 */
static void store_run(const boxes *k, val to, val shift)
{
    const int elements = k->word_elements, ring = k->cfg->lanes * elements;
    val skipped = div(bit_and(convert(U32, to), imm(WORD_BYTES - 1)), imm(k->cfg->bytes));
    val number[WORD_ELEMENTS_MAX], place[WORD_ELEMENTS_MAX];
    for (int e = 0; e < elements; e++)
        if (k->even) {
            number[e] = k->number[elements - 1 + e];
            place[e] = add(k->place[elements - 1 + e], shift);
        } else if (k->cfg->run == 1) {
            number[e] = bit_and(sub(k->number[elements - 1 + e], skipped), imm(ring - 1));
            place[e] = add(mul(number[e], k->p.smem[0]), add(k->phase, shift));
        } else {
            number[e] = chosen(k, k->number, e, skipped);
            place[e] = add(chosen(k, k->place, e, skipped), shift);
        }
    val whole = lt(number[elements - 1], k->run_y);
    if (!k->even)
        whole = logical_and(whole, ge(number[elements - 1], number[0])); // not round the end of the ring
    IF(whole)
        store_elements(k, to, k->word_type, elements, number, place);
    if (elements == 1)
        return;
    IF(logical_not(whole))
        for (int e = 0; e < elements; e++)
            IF(lt(number[e], k->run_y))
                store_elements(k, to, k->type, 1, &number[e], &place[e]);
}

static void store_box(const boxes *k)
{
    const permute_boxes_config *cfg = k->cfg;
    const int end = cfg->run + cfg->across + cfg->more;
    val runs = imm_as(U32, 1);
    for (int i = cfg->run; i < end; i++)
        runs = mul(runs, k->p.box[i]);
    const int at_once = PERMUTE_THREADS / cfg->lanes;
    LOOP_FROM(n, part_of_thread(cfg, 1, 3), runs, imm(at_once)) {
        val run = n, to = k->y, shift = imm_as(U32, 0), exists = lt(n, runs);
        for (int i = cfg->run; i < end; i++) {
            val at = next_coordinate(k, i, i + 1 == end, &run);
            exists = logical_and(exists, lt(at, k->count[i]));
            to = moved_in_box(to, at, k->p.stride_y[i]);
            shift = add(shift, mul(at, k->p.smem[i]));
        }
        IF(exists)
            store_run(k, to, shift);
    }
}

void permute_boxes(const void *config, int kernel)
{
    const permute_boxes_config *cfg = config;
    launch_bounds(PERMUTE_THREADS, 0);
    const int word = permute_word_bytes(cfg->bytes);
    boxes k = { .cfg = cfg,
                .even = kernel == 0,
                .p = params_of(permute_boxes),
                .type = transpose_type(cfg->bytes),
                .word_type = transpose_type(word),
                .word_elements = word / cfg->bytes };
    k.smem = smem_address(smem_alloc("box", (int64_t)cfg->smem_kb * 1024, 16));
    find_box(&k);
    find_runs(&k);
    k.phase = bit_and(convert(U32, k.x), imm(CHUNK - 1));
    if (cfg->prefetch)
        load_box(&k, true);
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
    load_box(&k, false);
    cp_async_commit();
    find_places(&k); // while the loads are in flight
    cp_async_wait(0);
    cta_sync();
    store_box(&k);
}
