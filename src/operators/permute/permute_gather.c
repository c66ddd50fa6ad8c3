/*
 * permute_gather.c - any strides: each thread computes where its elements of y come from. Elements are numbered in the
 * order of y's memory, so neighbouring threads write neighbours; all loads of a thread start before the first store.
 * Where the innermost mode is contiguous in x and in y, an element is a vector of up to 16 bytes of it.
 *
 * Elements that lie side by side in one mode of x and in another of y may be moved in squares: a thread loads as many
 * vectors of x as a word has elements, turns them in registers, and stores words. Neighbouring threads take blocks of
 * squares, so that both sides are accessed in runs.
 *
 * Runs that start anywhere on either side are written in aligned vectors of y, windows. Each is cut out of the two
 * aligned vectors of x that hold its bytes; neighbours read the same ones again, from L1. A run has as many windows as
 * it may touch. The first and the last hold other runs' bytes, too, and store their own elements one by one. So do
 * windows at the ends of x, which load them one by one as well.
 */
#include "cute/vectors.h"
#include "operators/permute/permute_gather.h"
#include "operators/permute/transpose_tile.h"
#include "skeletons/prefetch.h"

enum { STEPS_MAX = 16, SIDE_MAX = 4, WORD_BYTES = 4 };
enum { WIDEST_BYTES = PERMUTE_GATHER_BYTES, WINDOW_WORDS = WIDEST_BYTES / WORD_BYTES };

/*
 * Addresses of access number `index` in x and in y; whether it exists, as blocks may reach beyond. Coordinates are
 * computed by hand: a layout's would be divisions by sizes that are known at run time alone, and the kernel 40 % more
 * instructions.
 */
static val find_access(const permute_gather_values *p, int rank, int block, val index, val *x, val *y)
{
    val exists = lt(index, p->count), at_mode[PERMUTE_SPLIT_MAX];
    *x = p->x;
    *y = p->y;
    for (int i = rank - 1; i >= 0; i--) {
        at_mode[i] = i == 0 ? index : divisor_coordinate(&index, p->size[i], p->factor[i], p->shift[i]);
        val steps = convert(I64, at_mode[i]);
        *x = add(*x, convert(U64, mul(steps, p->stride_x[i])));
        *y = add(*y, convert(U64, mul(steps, p->stride_y[i])));
    }
    if (block == 1)
        return exists;
    const val *of = &at_mode[rank - 4]; // what permutation_block() has made
    val column = add(mul(of[0], imm(block)), of[2]), row = add(mul(of[1], imm(block)), of[3]);
    return logical_and(exists, logical_and(lt(column, p->width), lt(row, p->height)));
}

static val moved(val address, int steps, val stride)
{
    return steps ? add(address, convert(U64, mul(imm64(steps), stride))) : address;
}

/* What an access loads: an element, or words to be turned; an element of 16 bytes is four words. */
static tensor access_at(val address, int bytes, bool turned)
{
    const int count = turned || bytes == 16 ? bytes / WORD_BYTES : 1;
    return gmem_tensor(address, transpose_type(bytes / count), compact(leaf(count))); // (WORDS)
}

/* Turns `side` vectors of x, and stores the words of y that they make. */
static void store_turned(const permute_gather_values *p, int side, int bytes, const tensor *rX, val y)
{
    for (int v = 0; v < bytes / WORD_BYTES; v++) {
        val rows[SIDE_MAX];
        for (int e = 0; e < side; e++)
            rows[e] = bitcast(U32, at(rX[e], v));
        transpose_square(side, rows);
        for (int e = 0; e < side; e++)
            store_global(U32, moved(y, v * side + e, p->turned_y), 0, rows[e]);
    }
}

/* Windows */

typedef struct window {
    const permute_gather_values *p;
    int bytes; // of an element
    ckl_dtype type;
    val first; // i32: the byte of its run that it begins with; negative where the run begins inside
    val x, y;  // addresses of that byte
} window;

static window find_window(const permute_gather_config *cfg, const permute_gather_values *p, val index)
{
    const int inner = cfg->rank - 1;
    window w = { .p = p, .bytes = cfg->element, .type = transpose_type(cfg->element) };
    val run = index, number = divisor_coordinate(&run, p->size[inner], p->factor[inner], p->shift[inner]);
    find_access(p, inner, 1, run, &w.x, &w.y);
    val phase = bit_and(convert(U32, w.y), imm(WIDEST_BYTES - 1));
    w.first = convert(I32, sub(mul(number, imm(WIDEST_BYTES)), phase));
    val offset = convert(U64, convert(I64, w.first));
    w.x = add(w.x, offset);
    w.y = add(w.y, offset);
    return w;
}

/* Is element e of the window one of its run? */
static val has_element(const window *w, int e)
{
    return lt(convert(U32, add(w->first, imm(e * w->bytes))), w->p->run);
}

static tensor element_of(const window *w, val address, int e)
{
    return gmem_tensor(add(address, imm(e * w->bytes)), w->type, compact(leaf(1)));
}

/* Stores the elements of a window that are the run's. */
static void store_elements(const window *w, const val *cut)
{
    const int count = WIDEST_BYTES / w->bytes;
    const words of = words_of(w->type, count);
    val typed[WINDOW_WORDS], element[WIDEST_BYTES];
    for (int i = 0; i < WINDOW_WORDS; i++)
        typed[i] = bitcast(of.type, cut[i]);
    for (int e = 0; e < count; e++)
        element[e] = unwritten(element_register(w->type));
    words_unpack(of, typed, w->type, element);
    for (int e = 0; e < count; e++)
        IF(has_element(w, e))
            set(element_of(w, w->y, e), 0, element[e]);
}

/* L2 is asked for a small x while the kernel before may still run. */
static void begin(const permute_gather_values *p)
{
    prefetch_early(0, &p->x, &p->x_bytes, 1);
    launch_dependents();
    grid_wait();
}

/* Cuts a window out of the aligned vectors of x from `low` on. */
static void cut_window(const window *w, val low)
{
    val pair[2 * WINDOW_WORDS], taken[WINDOW_WORDS], run = convert(I32, w->p->run);
    tensor rY = fragment(U32, compact(leaf(WINDOW_WORDS))); // (WORDS)
    for (int i = 0; i < 2 * WINDOW_WORDS; i++)
        pair[i] = unwritten(U32);
    for (int i = 0; i < 2 * WINDOW_WORDS; i += WINDOW_WORDS)
        load_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, WINDOW_WORDS, low, (int64_t)WORD_BYTES * i, pair + i);
    const words_cut cut =
        words_cut_from(pair, WINDOW_WORDS, convert(U32, bit_and(w->x, imm_as(U64, WIDEST_BYTES - 1))), w->bytes);
    for (int i = 0; i < WINDOW_WORDS; i++)
        set(rY, i, taken[i] = words_cut_word(&cut, i));
    IF(logical_and(ge(w->first, imm(0)), ge(sub(run, w->first), imm(WIDEST_BYTES))))
        copy(rY, gmem_tensor(w->y, U32, compact(leaf(WINDOW_WORDS))), WIDEST_BYTES);
    ELSE store_elements(w, taken);
}

static void gather_windows(const permute_gather_config *cfg, const permute_gather_values *p)
{
    val index = add(mul(cta_x(), imm(PERMUTE_THREADS)), thread());
    const window w = find_window(cfg, p, index);
    val exists = logical_and(lt(index, p->count), lt(w.first, convert(I32, p->run)));
    val low = bit_and(w.x, imm_as(U64, -WIDEST_BYTES));
    val in_x = logical_and(ge(low, p->x), le(add(low, imm(2 * WIDEST_BYTES)), p->end));
    begin(p);
    IF(logical_and(exists, logical_not(in_x)))
        for (int e = 0; e < WIDEST_BYTES / cfg->element; e++)
            IF(has_element(&w, e))
                set(element_of(&w, w.y, e), 0, at(element_of(&w, w.x, e), 0));
    IF(logical_and(exists, in_x))
        cut_window(&w, low);
}

void permute_gather(const void *config, int kernel)
{
    enum { THREADS_OF_SM = 2048 }; // that windows shall fit: bounds registers to 32
    const permute_gather_config *cfg = config;
    launch_bounds(PERMUTE_THREADS, cfg->cut ? THREADS_OF_SM / PERMUTE_THREADS : 0);
    permute_gather_values p = params_of(permute_gather);
    if (cfg->cut && kernel == 0) {
        gather_windows(cfg, &p);
        return;
    }
    const int bytes = kernel == 0 ? cfg->bytes : cfg->element, turned = kernel == 0 ? cfg->turned : 0;
    const int vectors = turned ? turned : 1;
    tensor cY = coordinates_from(identity_tensor(leaf(PERMUTE_THREADS * cfg->steps)), 0,
                                 mul(cta_x(), imm(PERMUTE_THREADS * cfg->steps)));
    cY = local_partition(cY, compact(leaf(PERMUTE_THREADS)), thread()); // (STEPS)
    val inside[STEPS_MAX], x[STEPS_MAX], y[STEPS_MAX];
    tensor rX[STEPS_MAX][SIDE_MAX]; // (WORDS)
    for (int s = 0; s < cfg->steps; s++) {
        val index = coordinate(cY, 0, s);
        inside[s] = find_access(&p, cfg->rank, turned ? cfg->block : 1, index, &x[s], &y[s]);
        for (int e = 0; e < vectors; e++) {
            tensor gX = access_at(x[s], bytes, turned); // (WORDS)
            rX[s][e] = fragment_like(gX, gX.dtype);
            fill(rX[s][e], imm_as(rX[s][e].regs[0].type, 0));
        }
    }
    begin(&p);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            for (int e = 0; e < vectors; e++)
                copy(access_at(moved(x[s], e, p.turned_x), bytes, turned), rX[s][e], bytes);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s]) {
            if (turned)
                store_turned(&p, turned, bytes, rX[s], y[s]);
            else
                copy(rX[s][0], access_at(y[s], bytes, false), bytes);
        }
}
