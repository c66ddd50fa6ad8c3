/*
 * groupnorm_slice.c - slices of bundles over threads.
 *
 * A bundle is a group of channels (nchw) or some neighbouring groups (nhwc), so that reads of a pixel fill whole
 * sectors. Its pixels are split over the CTAs of a cluster, or over slices that communicate through global memory.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_slice.h"

enum { UNROLLED = GROUPNORM_UNROLLED, LINE_BYTES = 128 };

bool groupnorm_is_nchw(const groupnorm_slice *s)
{
    return s->cfg->layout == CKL_IMAGE_NCHW;
}

bool groupnorm_by_elements(const groupnorm_slice *s)
{
    return s->align < s->cfg->vec * dtype_bytes(s->cfg->dtype);
}

static int64_t element_bytes(const groupnorm_slice *s)
{
    return dtype_bytes(s->cfg->dtype);
}

/* Elements from one unit of nhwc, of so many pixels, to the next. */
static val unit_stride(const groupnorm_slice *s)
{
    return mul(s->a.channels, imm64(s->cfg->fold));
}

void groupnorm_wait(void)
{
    grid_wait();
    launch_dependents();
}

groupnorm_slice groupnorm_slice_begin(const groupnorm_config *cfg, bool vectors)
{
    groupnorm_slice s = { .cfg = cfg, .a = params_of(groupnorm) };
    s.align = (int)element_bytes(&s) * (vectors ? cfg->vec : 1);
    launch_bounds(cfg->threads, cfg->ctas_per_sm);
    cluster_size(cfg->cluster);
    return s;
}

val groupnorm_elements_from(const groupnorm_slice *s, val unit)
{
    const val vec = imm(s->cfg->vec), left = sub(convert(I32, s->a.pixels), mul(unit, vec));
    return max(min(mul(s->a.range, vec), left), imm_as(I32, 0));
}

val groupnorm_range_of(const groupnorm_slice *s, val rank)
{
    return s->cfg->parts > 1 ? rem(rank, s->a.ranges) : rank;
}

void groupnorm_slice_at(groupnorm_slice *s, val bundle, val rank)
{
    const groupnorm_config *cfg = s->cfg;
    s->rank = rank;
    s->range = groupnorm_range_of(s, rank);
    s->bundle = convert(I64, bundle);
    s->image = convert(I64, div(bundle, s->a.bundles));
    s->channel = mul(convert(I64, rem(bundle, s->a.bundles)), imm64(cfg->channels * cfg->bundle));
    s->channels = imm(groupnorm_slice_channels(cfg));
    s->group = mul(s->bundle, imm64(cfg->bundle));
    if (cfg->cut_short) {
        s->channels = convert(I32, min(sub(s->a.channels, s->channel), imm64(cfg->channels * cfg->bundle)));
        s->group = div(add(mul(s->image, s->a.channels), s->channel), imm64(cfg->channels));
    }
    if (cfg->parts > 1)
        s->channel = add(s->channel, convert(I64, mul(div(rank, s->a.ranges), s->channels)));
    val begin = mul(s->range, s->a.range), left = sub(s->a.units, begin);
    s->count = cfg->ragged ? groupnorm_elements_from(s, begin) : max(min(s->a.range, left), imm_as(I32, 0));
    val image_start = mul(mul(s->image, s->a.channels), s->a.pixels), start = convert(I64, begin);
    s->base = groupnorm_is_nchw(s) ? add(add(image_start, mul(s->channel, s->a.pixels)), mul(start, imm64(cfg->vec)))
                                   : add(add(image_start, s->channel), mul(start, unit_stride(s)));
}

static int channels_of_column(const groupnorm_slice *s, const groupnorm_view *w)
{
    return groupnorm_is_nchw(s) ? 1 : w->grid.vec;
}

/* Of `count` vectors of a column. */
static val vectors_of_thread(const groupnorm_view *w, val count)
{
    const int threads = w->grid.column_threads;
    return max(div(add(sub(count, w->column_thread), imm(threads - 1)), imm(threads)), imm_as(I32, 0));
}

groupnorm_view groupnorm_view_of(const groupnorm_slice *s)
{
    groupnorm_view w = { .grid = groupnorm_grid_of(s->cfg), .at_once = UNROLLED };
    const bool nchw = groupnorm_is_nchw(s);
    const int width = nchw ? w.grid.column_threads : w.grid.abreast;
    // NOTE: signed divisions in place of idx2crd(), from whose masks ptxas makes slower code (bench/notes/groupnorm.md)
    val number = convert(I32, thread()), quotient = div(number, imm(width)), rest = rem(number, imm(width));
    w.column = nchw ? quotient : rest;
    w.column_thread = nchw ? rest : quotient;
    w.count = nchw ? s->count : select(lt(w.column_thread, imm(w.grid.column_threads)), s->count, imm(0));
    if (s->cfg->cut_short)
        w.count = select(lt(mul(w.column, imm(channels_of_column(s, &w))), s->channels), w.count, imm(0));
    w.vectors = vectors_of_thread(&w, w.count);
    if (s->halves)
        w.first = vectors_of_thread(&w, min(w.count, imm(groupnorm_first_steps(s->cfg) * w.grid.column_threads)));
    return w;
}

val groupnorm_existing(const groupnorm_slice *s, const groupnorm_view *w, val column)
{
    const int channels = channels_of_column(s, w);
    val columns = s->cfg->cut_short ? div(s->channels, imm(channels)) : imm(w->grid.columns);
    return min(column, sub(columns, imm(1)));
}

val groupnorm_groups(const groupnorm_slice *s)
{
    return s->cfg->cut_short ? div(s->channels, imm(s->cfg->channels)) : imm(s->cfg->bundle);
}

/*
 * Passes. The number of a thread's vectors is known at run time alone, so a pass is a loop, and addresses advance by
 * additions. A partition would be as long as the longest column, with a predicate for each of its vectors.
 */

/* Aligned vectors of a column that begins anywhere, and its ends. */
static void set_ragged(const groupnorm_view *w, val start, groupnorm_column *c)
{
    const int vec = w->grid.vec;
    c->start = start;
    c->head = min(bit_and(sub(imm(0), convert(I32, start)), imm(vec - 1)), w->count);
    c->body = bit_and(sub(w->count, c->head), imm(-vec));
    c->ends = select(c->exists, sub(w->count, c->body), imm(0));
    c->vectors = select(c->exists, vectors_of_thread(w, div(c->body, imm(vec))), imm(0));
    c->global = add(start, convert(I64, add(c->head, mul(w->column_thread, imm(vec)))));
}

groupnorm_column groupnorm_column_at(const groupnorm_slice *s, const groupnorm_view *w, val slot)
{
    const groupnorm_grid *g = &w->grid;
    const int64_t vector_bytes = g->vec * element_bytes(s);
    groupnorm_column c = { .number = add(w->column, mul(slot, imm(g->abreast))) };
    c.exists = g->slots * g->abreast == g->columns ? yes() : lt(c.number, imm(g->columns));
    c.vectors = select(c.exists, w->vectors, imm(0));
    val before = mul(convert(IR_U32, slot), imm_as(U32, (int64_t)groupnorm_staged_steps(s->cfg) * g->abreast *
                                                            g->column_threads * vector_bytes));
    c.shared = add(mul(thread(), imm_as(U32, vector_bytes)), before);
    val number = convert(I64, c.number), along = convert(I64, w->column_thread);
    if (s->cfg->ragged) {
        set_ragged(w, add(s->base, mul(number, s->a.pixels)), &c);
        return c;
    }
    c.global = add(s->base, groupnorm_is_nchw(s) ? add(mul(number, s->a.pixels), mul(along, imm64(g->vec)))
                                                 : add(mul(number, imm64(g->vec)), mul(along, unit_stride(s))));
    return c;
}

void groupnorm_over_columns(const groupnorm_slice *s, const groupnorm_view *w, groupnorm_column_pass *pass,
                            void *kernel)
{
    if (w->grid.slots == 1) {
        groupnorm_column c = groupnorm_column_at(s, w, imm_as(I32, 0));
        pass(kernel, &c);
        return;
    }
    LOOP(slot, imm(w->grid.slots)) {
        groupnorm_column c = groupnorm_column_at(s, w, convert(I32, slot));
        pass(kernel, &c);
    }
}

groupnorm_vector groupnorm_end(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c, int number,
                               val *exists)
{
    const int64_t before = groupnorm_vector_elements(s->cfg), bytes = element_bytes(s);
    val n = add(w->column_thread, imm(number * w->grid.column_threads));
    val along = add(n, select(lt(n, c->head), imm(0), c->body));
    val place = add(n, mul(c->number, imm(groupnorm_ends_max(s->cfg))));
    *exists = lt(n, c->ends);
    return (groupnorm_vector){ .vec = 1,
                               .shared = add(mul(convert(U32, place), imm_as(U32, bytes)), imm_as(U32, before * bytes)),
                               .global = add(c->start, convert(I64, along)) };
}

/* Ends, of which a thread has a few at most. */
static void over_ends(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c,
                      groupnorm_vector_pass *load, groupnorm_vector_pass *use, void *kernel)
{
    const int most = s->cfg->ragged ? (int)ceil_div(2 * (w->grid.vec - 1), w->grid.column_threads) : 0;
    for (int i = 0; i < most; i++) {
        val exists;
        groupnorm_vector v = groupnorm_end(s, w, c, i, &exists);
        IF(exists) {
            if (load)
                load(kernel, &v);
            use(kernel, &v);
        }
    }
}

/* Elements from one vector of a thread to its next. */
static val vector_stride(const groupnorm_slice *s, const groupnorm_grid *g)
{
    return groupnorm_is_nchw(s) ? imm64((int64_t)g->column_threads * g->vec)
                                : mul(unit_stride(s), imm64(g->column_threads));
}

/* How far a pass over the vectors of a column has come. */
typedef struct cursor {
    val stride, done, shared, global;
} cursor;

/* Vectors up to `end`. */
static void over_some(const groupnorm_slice *s, const groupnorm_view *w, cursor *at, val end, bool again,
                      groupnorm_vector_pass *load, groupnorm_vector_pass *use, void *kernel)
{
    const groupnorm_grid *g = &w->grid;
    const int64_t shared_stride = (int64_t)g->abreast * g->column_threads * g->vec * element_bytes(s);
    for (int at_once = w->at_once; at_once >= 1; at_once = at_once > 1 ? 1 : 0)
        LOOP_FROM(i, at->done, sub(end, imm(at_once - 1)), imm(at_once)) {
            groupnorm_vector v[UNROLLED];
            for (int u = 0; u < at_once; u++) {
                v[u].vec = g->vec;
                v[u].again = again;
                v[u].shared = add(at->shared, imm_as(U32, u * shared_stride));
                v[u].global = u == 0 ? add(at->global, imm64(0)) : add(v[u - 1].global, at->stride);
                if (load)
                    load(kernel, &v[u]);
            }
            for (int u = 0; u < at_once; u++)
                use(kernel, &v[u]);
            assign(at->done, add(i, imm(at_once)));
            assign(at->shared, add(at->shared, imm_as(U32, at_once * shared_stride)));
            assign(at->global, add(at->global, mul(at->stride, imm64(at_once))));
        }
}

void groupnorm_over_vectors(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c,
                            groupnorm_vector_pass *load, groupnorm_vector_pass *use, void *kernel)
{
    cursor at = { .stride = vector_stride(s, &w->grid) };
    at.done = variable(I32, imm(0));
    at.shared = variable(U32, c->shared);
    at.global = variable(I64, c->global);
    const int kept = s->cfg->kept, again = s->cfg->again, staged = groupnorm_staged_steps(s->cfg);
    if (w->between) {
        over_some(s, w, &at, min(w->first, c->vectors), false, load, use, kernel);
        w->between(kernel);
    }
    over_some(s, w, &at, kept + again > 0 ? min(c->vectors, imm(staged)) : c->vectors, false, load, use, kernel);
    if (load && again > 0)
        over_some(s, w, &at, min(c->vectors, imm(staged + again)), true, load, use, kernel);
    for (int i = 0; load && i < kept; i++) {
        groupnorm_vector v = w->kept[i];
        v.global = add(at.global, mul(at.stride, imm64(i)));
        IF(lt(imm(staged + again + i), c->vectors))
            use(kernel, &v);
    }
    over_ends(s, w, c, load, use, kernel);
}

/* Memory */

tensor groupnorm_global(const groupnorm_slice *s, val pointer, val element, int count)
{
    val bytes = mul(convert(U64, element), imm_as(U64, element_bytes(s)));
    return gmem_tensor(add(pointer, bytes), s->cfg->dtype, compact(leaf(count)));
}

/* What is promised for the address of so many elements in memory, bytes. */
static int align_of(const groupnorm_slice *s, int vec)
{
    return (int)min_i64(s->align, vec * element_bytes(s));
}

packed groupnorm_load(const groupnorm_slice *s, val pointer, val element, int vec)
{
    return load_packed(with_cache(groupnorm_global(s, pointer, element, vec), s->reads), align_of(s, vec));
}

packed groupnorm_load_shared(const groupnorm_slice *s, val address, int vec)
{
    return load_packed(smem_view(address, s->cfg->dtype, compact(leaf(vec))), vec * (int)element_bytes(s));
}

/* A pass that stages, or asks L2 for what will be. */
typedef struct staged_pass {
    const groupnorm_slice *s;
    groupnorm_view w;
    const groupnorm_staging *all;
    groupnorm_vector_pass *use;
} staged_pass;

static void pass_column(void *user, const groupnorm_column *c)
{
    staged_pass *p = user;
    groupnorm_over_vectors(p->s, &p->w, c, NULL, p->use, p);
}

static void stage_vector(void *user, groupnorm_vector *v)
{
    const staged_pass *p = user;
    const int bytes = v->vec * (int)element_bytes(p->s);
    const bool copied = align_of(p->s, v->vec) == bytes && bytes >= GROUPNORM_COPIED_BYTES;
    for (int i = 0; i < p->all->count; i++) {
        const val address = add(p->all->to[i], v->shared);
        tensor gX = groupnorm_global(p->s, p->all->from[i], v->global, v->vec); // (VEC)
        if (copied) {
            if (p->s->cfg->alone)
                cp_async_alone(address, gX.address, bytes, imm_as(U32, bytes));
            else
                cp_async(address, gX.address, bytes, imm_as(U32, bytes));
            continue;
        }
        tensor rX = fragment_like(gX, p->s->cfg->dtype); // (VEC)
        copy(gX, rX, align_of(p->s, v->vec));
        copy(rX, smem_view(address, p->s->cfg->dtype, compact(leaf(v->vec))), bytes);
    }
}

static void prefetch_vector(void *user, groupnorm_vector *v)
{
    const staged_pass *p = user;
    for (int i = 0; i < p->all->count; i++)
        prefetch_L2(groupnorm_global(p->s, p->all->from[i], v->global, v->vec).address);
}

/* Of gamma or beta: a line for each thread. */
static void prefetch_weights(const groupnorm_slice *s, val pointer)
{
    const val first = mul(convert(I32, thread()), imm(LINE_BYTES / (int)element_bytes(s)));
    IF(lt(first, s->channels))
        prefetch_L2(groupnorm_global(s, pointer, add(s->channel, convert(I64, first)), 1).address);
}

void groupnorm_prefetch(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_staging *staging)
{
    staged_pass p = { s, *w, staging, prefetch_vector };
    const int vectors = (int)max_i64(1, LINE_BYTES / (w->grid.vec * element_bytes(s))); // of a line
    const val number = groupnorm_is_nchw(s) ? w->column_thread : w->column;
    IF(eq(rem(number, imm(vectors)), imm(0)))
        groupnorm_over_columns(s, &p.w, pass_column, &p);
    if (!s->cfg->affine)
        return;
    prefetch_weights(s, s->a.gamma);
    prefetch_weights(s, s->a.beta);
}

static void commit_half(void *user)
{
    (void)user;
    cp_async_commit();
}

/* The last vectors of the thread's one column. */
static void load_kept(const groupnorm_slice *s, groupnorm_view *w, const groupnorm_staging *staging)
{
    const groupnorm_column c = groupnorm_column_at(s, w, imm_as(I32, 0));
    for (int i = 0; i < s->cfg->kept; i++) {
        const int step = s->cfg->steps - s->cfg->kept + i;
        const val exists = lt(imm(step), c.vectors);
        const val place = add(c.global, mul(vector_stride(s, &w->grid), imm64(step)));
        groupnorm_vector *v = &w->kept[i];
        v->vec = s->cfg->vec;
        v->x = load_packed_if(exists, groupnorm_global(s, staging->from[0], place, v->vec), align_of(s, v->vec));
        if (staging->count > 1)
            v->dy = load_packed_if(exists, groupnorm_global(s, staging->from[1], place, v->vec), align_of(s, v->vec));
    }
}

void groupnorm_stage(const groupnorm_slice *s, groupnorm_view *w, const groupnorm_staging *staging)
{
    staged_pass p = { s, *w, staging, stage_vector };
    p.w.between = s->halves ? commit_half : NULL;
    groupnorm_over_columns(s, &p.w, pass_column, &p);
    if (s->cfg->kept > 0)
        load_kept(s, w, staging);
}

void groupnorm_store(const groupnorm_slice *s, const groupnorm_vector *v, tensor rY)
{
    copy(rY, with_cache(groupnorm_global(s, s->a.y, v->global, v->vec), s->writes), align_of(s, v->vec));
}

void groupnorm_staged(int halves_pending)
{
    cp_async_commit();
    cp_async_wait(halves_pending);
}
