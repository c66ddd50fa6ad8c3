/*
 * map_rows.c - element-wise kernels over rows that start anywhere (row.h): vectors lie between the 16-byte boundaries
 * of the output's rows; those of inputs that lie out of phase with them are cut out of two.
 */
#include "skeletons/map_rows.h"

#include "cute/kernel.h"

/* On the host */

static row_split split_of_rows(const map_config *c)
{
    return (row_split){ c->threads, c->row_threads, 1, c->vec, c->steps, .ragged = true };
}

static int64_t cols_of(const map_shape *s)
{
    return s->size[s->rank - 1];
}

static bool is_read(const map_kernel *k, int input)
{
    return !k->scalar[input] && !(k->config.constant >> input & 1);
}

/* Bytes of an element; 0: operands differ, have gaps, or are no numbers that f32 holds. */
static int64_t element_bytes(const map_kernel *k, const map_shape *s)
{
    const map_config *c = &k->config;
    const int64_t bytes = dtype_bytes(k->dtype[k->inputs]);
    bool alike = s->rank > 1 && k->compute == CKL_F32 && !c->strided && !c->crossed && !(c->constant >> k->inputs & 1);
    for (int i = 0; i <= k->inputs; i++) {
        const ckl_dtype t = k->dtype[i];
        if (i == k->inputs || !k->scalar[i])
            alike = alike && dtype_is_float(t) && dtype_bytes(t) == bytes;
    }
    return alike ? bytes : 0;
}

/*
 * The inputs some rows of which lie otherwise to 16-byte boundaries than the output's, where the first rows lie alike.
 */
static int out_of_phase(const map_kernel *k, const map_shape *s, int vec)
{
    int mask = 0;
    for (int i = 0; i < k->inputs; i++)
        for (int d = 0; d < s->rank - 1 && is_read(k, i); d++)
            mask |= ((s->stride[i][d] - s->stride[k->inputs][d]) % vec != 0) << i;
    return mask;
}

/*
 * The threads and steps that cost a row least: places for its vectors, those that stay idle too, and the start of each
 * CTA, as much as some hundred vectors of three operands. 11384 rows of 3456 bf16 in 7 CTAs of 64 threads each take 97
 * us, in one of 256 55 us. Rows of a warp's length share a CTA. Each SM should have two CTAs.
 */
static void share_out(map_config *c, int64_t vectors, int64_t rows, const ckl_device_info *device)
{
    enum { START_VECTORS = 107, CTAS_PER_SM = 2 };
    static const struct {
        int threads, row_threads, steps_max;
    } shapes[] = { { 256, 256, 2 }, { 128, 128, 4 }, { 128, 32, 2 }, { 64, 64, 4 }, { 128, 32, 6 }, { 128, 16, 3 } };
    double least = INFINITY;
    for (int i = 0; i < COUNT_OF(shapes); i++)
        for (int steps = shapes[i].steps_max; steps >= 1; steps--) {
            const int threads = shapes[i].threads, row_threads = shapes[i].row_threads;
            const int64_t tile = (int64_t)row_threads * steps, tiles = ceil_div(vectors, tile);
            const double ctas = (double)tiles * row_threads / threads; // of a row
            const double cost = (double)(tiles * tile) + START_VECTORS * ctas;
            const bool few = row_threads == threads && steps > 1 && tiles * rows < CTAS_PER_SM * device->sm_count;
            if (cost >= least || few || (row_threads <= 32 && tiles > 1))
                continue;
            least = cost;
            c->threads = threads;
            c->row_threads = row_threads;
            c->steps = steps;
        }
}

/* Operands whose rows do not all lie to 16-byte boundaries as the first does. */
static int ragged_operands(const map_kernel *k, const map_shape *s, int vec)
{
    int count = 0;
    for (int i = 0; i <= k->inputs; i++) {
        bool ragged = false;
        for (int d = 0; d < s->rank - 1; d++)
            ragged |= s->stride[i][d] % vec != 0;
        count += ragged && (i == k->inputs || is_read(k, i));
    }
    return count;
}

/*
 * f32 elements one by one are lines of a warp already. Vectors pay where two operands or more are ragged: x+y of
 * 2976x1328 with both inputs odd takes 14.6 us by elements and 12.8 by vectors, 1024x14336 with one of them 41.6 and
 * 43.5.
 */
static bool pays(const map_kernel *k, const map_shape *s, int vec)
{
    const int64_t bytes = element_bytes(k, s);
    return bytes == 2 || (bytes == 4 && ragged_operands(k, s, vec) > 1);
}

void map_rows_choose(map_kernel *k, const map_shape *s, const ckl_device_info *device)
{
    enum { VECTORS_MIN = 4, SLOW_BYTES = 4 };
    map_config *c = &k->config;
    const int vec = row_vec_full(k->dtype[k->inputs]);
    if (c->flat || cols_of(s) < VECTORS_MIN * vec || !pays(k, s, vec) || c->vec * element_bytes(k, s) > SLOW_BYTES)
        return;
    c->vec = vec;
    c->cut = out_of_phase(k, s, vec);
    share_out(c, cols_of(s) / vec, s->count / cols_of(s), device);
}

ckl_status map_rows_admit(const char *what, const map_kernel *k, const map_shape *s, const ckl_device_info *device)
{
    enum { TILES_MAX = 65535 };
    const map_config *c = &k->config;
    const row_split split = split_of_rows(c);
    if (!element_bytes(k, s) || c->flat)
        FAIL(CKL_UNSUPPORTED, "%s: row_threads=%d wants rows without gaps, operands of one size, and flat=0", what,
             c->row_threads);
    if (c->cut != out_of_phase(k, s, c->vec))
        FAIL(CKL_INVALID, "%s: cut=%d is not the mask of inputs out of phase: %d", what, c->cut,
             out_of_phase(k, s, c->vec));
    TRY(row_split_admit(what, &split, min_i64(cols_of(s), row_split_cols(&split)), k->dtype[k->inputs], device));
    if (s->count / cols_of(s) > INT32_MAX || map_rows_tiles(k, s) > TILES_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more rows than numbers of 31 bits, or more tiles of a row than a launch has CTAs",
             what);
    return CKL_OK;
}

int64_t map_rows_ctas(const map_kernel *k, const map_shape *s)
{
    const row_split split = split_of_rows(&k->config);
    return ceil_div(s->count / cols_of(s), row_split_rows(&split));
}

int64_t map_rows_tiles(const map_kernel *k, const map_shape *s)
{
    const row_split split = split_of_rows(&k->config);
    const int64_t whole = cols_of(s) / split.vec * split.vec; // of vectors; a row's ends are of its first tile
    return ceil_div(max_i64(whole, 1), row_split_cols(&split));
}

bool map_rows_in_phase(const map_kernel *k, const void *const *pointers)
{
    bool in_phase = true;
    for (int i = 0; i < k->inputs; i++)
        if (is_read(k, i) && !(k->config.cut >> i & 1))
            in_phase = in_phase && row_starts_in_phase(pointers[i], pointers[k->inputs]);
    return in_phase;
}

/* In the kernel */

typedef struct map_rows {
    const map_kernel *k;
    map_function *f;
    void *user;
    val address[MAP_OPERANDS_MAX];  // of the row's first element
    val is_outer[MAP_OPERANDS_MAX]; // no other row is before it or behind it in memory
    val is_first[MAP_OPERANDS_MAX]; // no row before it lies there, too
    val repeated[MAP_INPUTS_MAX];   // f32: of inputs that are the same along the row
    tensor rX[MAP_INPUTS_MAX];      // (VEC,STEPS) of a span
    row_cut *cut[MAP_INPUTS_MAX];   // loads under way
} map_rows;

/* Where an operand's row begins, and whether fewer than 16 bytes of the tensor may be before it, or behind it. */
static void find_row(map_rows *m, const map_values *p, const val *at, int i)
{
    const val *stride = &p->stride[i * MAP_RANK_MAX], size = imm(dtype_bytes(m->k->dtype[i]));
    val index = imm64(0), low = imm64(0), high = imm64(0), apart = imm64(m->k->config.vec), first = yes();
    for (int d = 0; d < m->k->config.rank - 1; d++) {
        val span = mul(sub(p->size[d], imm64(1)), stride[d]);
        index = add(mul(at[d], stride[d]), index);
        low = add(low, min(span, imm64(0)));
        high = add(high, max(span, imm64(0)));
        first = logical_and(first, logical_or(ne(stride[d], imm(0)), eq(at[d], imm(0))));
    }
    m->is_first[i] = first;
    m->address[i] = add(p->pointer[i], convert(U64, mul(index, size)));
    m->is_outer[i] = logical_or(lt(index, add(low, apart)), gt(index, sub(high, apart)));
}

static void find_rows(map_rows *m, const map_values *p, val row)
{
    val at[MAP_RANK_MAX];
    map_coordinates(p, m->k->config.rank - 2, convert(U32, row), at);
    for (int i = 0; i <= m->k->inputs; i++)
        if (i == m->k->inputs || !m->k->scalar[i])
            find_row(m, p, at, i);
}

static void load_repeated(map_rows *m, const map_values *p, val exists)
{
    const map_kernel *k = m->k;
    for (int i = 0; i < k->inputs; i++) {
        if (k->scalar[i])
            m->repeated[i] = p->scalar[i];
        if (k->scalar[i] || is_read(k, i))
            continue;
        m->repeated[i] = variable(F32, immf(0));
        IF(exists)
            assign(m->repeated[i], at_f32(gmem_tensor(m->address[i], k->dtype[i], compact(leaf(1))), 0));
    }
}

static bool is_cut(const map_rows *m, const row_span *s, int input)
{
    return is_read(m->k, input) && s->split.ragged && m->k->config.cut >> input & 1;
}

static tensor input_vector(const map_rows *m, const row_span *s, int i)
{
    return row_vector(&s->split, &s->place, m->address[i], m->k->dtype[i]); // (VEC,STEPS)
}

/* Asks L2 for what the threads will load: vectors that begin in the row lie in the tensor, wherever they end. */
static void prefetch_span(const map_rows *m, const row_span *s)
{
    enum { LINE_VECTORS = 8 };
    for (int step = 0; step < s->split.steps; step++)
        IF(logical_and(eq(bit_and(thread(), imm(LINE_VECTORS - 1)), imm(0)),
                       lt(coordinate(s->place.cX, 1, (int64_t)step * s->split.vec), s->place.limit)))
            for (int i = 0; i < m->k->inputs; i++) {
                if (!is_read(m->k, i))
                    continue;
                tensor gX = slice(input_vector(m, s, i), 0, step); // (1)
                IF(m->is_first[i])
                    prefetch_L2(gX.address);
            }
}

/* All loads are issued before the first is waited for. */
static void issue_span(map_rows *m, const row_span *s)
{
    for (int i = 0; i < m->k->inputs; i++)
        if (is_read(m->k, i))
            m->rX[i] = fragment_like(input_vector(m, s, i), m->k->dtype[i]); // (VEC,STEPS)
    for (int i = 0; i < m->k->inputs; i++)
        if (is_read(m->k, i) && !is_cut(m, s, i))
            row_load(&s->split, &s->place, input_vector(m, s, i), m->rX[i], 0);
    for (int i = 0; i < m->k->inputs; i++)
        if (is_cut(m, s, i))
            m->cut[i] = row_issue_cut(&s->split, &s->place, m->is_outer[i], input_vector(m, s, i), 0);
}

static void finish_span(const map_rows *m, const row_span *s)
{
    for (int i = 0; i < m->k->inputs; i++)
        if (is_cut(m, s, i))
            row_finish_cut(m->cut[i], m->rX[i]);
}

static void store_span(const map_rows *m, const row_span *s)
{
    const map_kernel *k = m->k;
    tensor gY = row_vector(&s->split, &s->place, m->address[k->inputs], k->dtype[k->inputs]); // (VEC,STEPS)
    tensor rY = fragment_like(gY, F32);                                                       // (VEC,STEPS)
    for (int step = 0, vec = s->split.vec; step < s->split.steps; step++) {
        for (int e = step * vec; e < (step + 1) * vec; e++) {
            val x[MAP_INPUTS_MAX];
            for (int i = 0; i < k->inputs; i++)
                x[i] = is_read(k, i) ? at_f32(m->rX[i], e) : m->repeated[i];
            set(rY, e, m->f(x, m->user));
        }
        row_store_step(&s->split, &s->place, rY, gY, step);
    }
}

/* CTA y takes tile y of its rows, CTA 0 also their ends. All vectors are loaded before the first result. */
void map_rows_describe(const map_kernel *k, map_function *f, void *user)
{
    map_rows body = { .k = k, .f = f, .user = user };
    const map_values p = params_of(map);
    const row_split split = split_of_rows(&k->config);
    val rows = p.size[0];
    for (int d = 1; d < k->config.rank - 1; d++)
        rows = mul(rows, p.size[d]);
    row_place place = row_here(&split, rows, p.size[k->config.rank - 1]);
    min_ctas_per_sm(k->config.ctas_per_sm);
    if (!k->config.cut)
        map_prefetch(k, &p);
    find_rows(&body, &p, place.row);
    row_spans spans = row_spans_of(&split, &place, body.address[k->inputs], k->dtype[k->inputs], imm(0));
    row_span tile = spans.of[0], ends = spans.of[1];
    tile.place = row_from(&tile.place, mul(cta_y(), imm((int)row_split_cols(&split))));
    if (k->config.prefetch && k->config.cut) // by shares 2.1 us, so 2.0: x+y of 463x1053 bf16
        prefetch_span(&body, &tile);
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    load_repeated(&body, &p, place.exists);
    map_rows edges = body;
    ends.place.limit = select(eq(cta_y(), imm(0)), ends.place.limit, imm(0));
    issue_span(&edges, &ends);
    issue_span(&body, &tile);
    finish_span(&body, &tile);
    store_span(&body, &tile);
    IF(row_may_have_ends(&split))
        store_span(&edges, &ends);
}
