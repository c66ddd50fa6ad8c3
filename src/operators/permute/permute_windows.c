/*
 * permute_windows.c - runs that start anywhere on either side: y is written in aligned vectors, the windows of its runs. Each is
 * cut out of the two aligned vectors of x that hold its bytes; neighbours read the same ones again, from L1.
 *
 * A run has as many windows as it may touch. The first and the last hold other runs' bytes, too, and store their own
 * elements one by one. So do windows at the ends of x, which load them one by one as well.
 */
#include "cute/vectors.h"
#include "operators/permute/transpose_tile.h"

enum { BYTES = PERMUTE_WINDOW_BYTES, WORDS = BYTES / 4 };

typedef struct windows {
    const permute_windows_config *cfg;
    permute_windows_values p;
    ckl_dtype type;
} windows;

typedef struct window {
    val first;           // i32: the byte of its run that it begins with; negative where the run begins inside
    val x, y;            // addresses of that byte
    val together, apart; // holds some of the run, and the aligned vectors of x are in x, or not
    val pair[2 * WORDS]; // these vectors, u32
} window;

/* The lower of the two aligned vectors. */
static val low_of(const window *w)
{
    return bit_and(w->x, imm_as(U64, -BYTES));
}

static window find_window(const windows *k, val index)
{
    const permute_windows_values *p = &k->p;
    const int inner = k->cfg->rank - 1;
    window w = { .x = p->x, .y = p->y };
    val run = index, number = divisor_coordinate(&run, p->size[inner], p->factor[inner], p->shift[inner]);
    for (int i = inner - 1; i >= 0; i--) {
        val at_mode = i == 0 ? run : divisor_coordinate(&run, p->size[i], p->factor[i], p->shift[i]);
        at_mode = convert(I64, at_mode);
        w.x = add(w.x, convert(U64, mul(at_mode, p->stride_x[i])));
        w.y = add(w.y, convert(U64, mul(at_mode, p->stride_y[i])));
    }
    val phase = bit_and(convert(U32, w.y), imm(BYTES - 1));
    w.first = convert(I32, sub(mul(number, imm(BYTES)), phase));
    val offset = convert(U64, convert(I64, w.first));
    w.x = add(w.x, offset);
    w.y = add(w.y, offset);
    val exists = logical_and(lt(index, p->count), lt(w.first, convert(I32, p->run))), low = low_of(&w);
    val in_x = logical_and(ge(low, p->x), le(add(low, imm(2 * BYTES)), p->end));
    w.together = logical_and(exists, in_x);
    w.apart = logical_and(exists, logical_not(in_x));
    for (int i = 0; i < 2 * WORDS; i++)
        w.pair[i] = variable(U32, imm(0));
    return w;
}

/* Is element e of the window one of its run? */
static val has_element(const windows *k, const window *w, int e)
{
    return lt(convert(U32, add(w->first, imm(e * k->cfg->bytes))), k->p.run);
}

static tensor element_at(const windows *k, val address, int e)
{
    return gmem_tensor(add(address, imm(e * k->cfg->bytes)), k->type, compact(leaf(1)));
}

static void load_window(const windows *k, window *w)
{
    IF(w->apart)
        for (int e = 0; e < BYTES / k->cfg->bytes; e++)
            IF(has_element(k, w, e))
                set(element_at(k, w->y, e), 0, at(element_at(k, w->x, e), 0));
    IF(w->together)
        for (int i = 0; i < 2 * WORDS; i += WORDS)
            load_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, WORDS, low_of(w), (int64_t)4 * i, w->pair + i);
}

/* Stores the elements of a window that are the run's. */
static void store_elements(const windows *k, const window *w, const val *cut)
{
    const int count = BYTES / k->cfg->bytes;
    const words of = words_of(k->type, count);
    val typed[WORDS], element[BYTES];
    for (int i = 0; i < WORDS; i++)
        typed[i] = bitcast(of.type, cut[i]);
    for (int e = 0; e < count; e++)
        element[e] = unwritten(element_register(k->type));
    words_unpack(of, typed, k->type, element);
    for (int e = 0; e < count; e++)
        IF(has_element(k, w, e))
            set(element_at(k, w->y, e), 0, element[e]);
}

static void store_window(const windows *k, const window *w)
{
    val taken[WORDS], run = convert(I32, k->p.run);
    tensor rY = fragment(U32, compact(leaf(WORDS))); // (WORDS)
    const words_cut cut =
        words_cut_from(w->pair, WORDS, convert(U32, bit_and(w->x, imm_as(U64, BYTES - 1))), k->cfg->bytes);
    for (int i = 0; i < WORDS; i++)
        set(rY, i, taken[i] = words_cut_word(&cut, i));
    IF(logical_and(ge(w->first, imm(0)), ge(sub(run, w->first), imm(BYTES))))
        copy(rY, gmem_tensor(w->y, U32, compact(leaf(WORDS))), BYTES);
    ELSE store_elements(k, w, taken);
}

void permute_windows(const void *config, int kernel)
{
    const permute_windows_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->threads, PERMUTE_WINDOW_THREADS / cfg->threads);
    const windows k = { .cfg = cfg, .p = params_of(permute_windows), .type = transpose_type(cfg->bytes) };
    window w = find_window(&k, add(mul(cta_x(), imm(cfg->threads)), thread()));
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    load_window(&k, &w);
    IF(w.together)
        store_window(&k, &w);
}
