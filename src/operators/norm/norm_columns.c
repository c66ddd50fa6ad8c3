/*
 * norm_columns.c - gradients of gamma and beta: what a CTA of several rows leaves, and the kernel that adds up what all
 * CTAs left or, where they left nothing, the products of all rows.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"
#include "skeletons/column.h"

/* The sums of a CTA's threads: lanes store neighbouring words, and PAD keeps neighbouring columns' banks apart. */
typedef struct cta_sums {
    const row_split *split;
    const norm_backward_values *o;
    const norm_sums *of;
    int kinds;
    int groups;   // of threads that have the same columns: warps, or rows of several warps
    tensor sSums; // (LANES,VEC,KINDS,GROUPS)
} cta_sums;

enum { WARP = 32, PAD = 4 };

/* The lanes of a warp that have the same columns, of several rows, agree. */
static void write_group_sums(const cta_sums *c, int step)
{
    const row_split *s = c->split;
    const reduction sums = reduce_sums(c->kinds);
    const int threads = s->threads / c->groups, lanes = (int)min_i64(s->row_threads, WARP);
    val place = rem(thread(), imm(s->row_threads)), group = div(thread(), imm(threads));
    for (int v = 0; v < s->vec; v++) {
        val both[2];
        for (int kind = 0; kind < c->kinds; kind++)
            both[kind] = at(c->of->rSums[kind], step * s->vec + v);
        warp_reduce_across(&sums, lanes, both);
        IF(lt(lane(), imm(lanes)))
            for (int kind = 0; kind < c->kinds; kind++)
                set(c->sSums, coord(place, v, kind, group), both[kind]);
    }
}

/* norm_partial_pitch(), i64. */
static val partial_pitch(const norm_backward_values *o)
{
    return convert(I64, bit_and(add(o->cols, imm(NORM_PARTIAL_LINE - 1)), imm(-NORM_PARTIAL_LINE)));
}

/* One element of dgamma or dbeta. */
static void set_gradient(const norm_backward_values *o, ckl_dtype dtype, val gradient, val column, val total)
{
    set(gmem_vector(gradient, dtype, o->cols), column, convert(dtype, total));
}

static void store_columns(const cta_sums *c, int step)
{
    const row_split *s = c->split;
    const int columns = s->row_threads * s->vec;
    val cols = c->o->cols, line = mul(convert(I64, cta_x()), imm(c->kinds));
    layout lines = make_layout(shape(cols, mul(c->o->groups, imm(c->kinds))), coord(1, partial_pitch(c->o)));
    tensor gPartial = gmem_tensor(c->o->partial, F32, lines); // (COLS,LINES)
    for (int first = 0; first < columns; first += s->threads) {
        val here = add(thread(), imm(first)), column = add(here, imm(step * columns));
        val v = rem(here, imm(s->vec)), place = div(here, imm(s->vec));
        IF(logical_and(lt(here, imm(columns)), lt(column, cols)))
            for (int kind = 0; kind < c->kinds; kind++) {
                val total = at(c->sSums, place, v, kind, 0);
                for (int group = 1; group < c->groups; group++)
                    total = add(total, at(c->sSums, place, v, kind, group));
                if (c->of->cfg->alone)
                    set_gradient(c->o, c->of->cfg->dtype, kind ? c->o->dbeta : c->o->dgamma, column, total);
                else
                    set(gPartial, coord(column, add(line, imm(kind))), total);
            }
    }
}

void norm_store_cta_sums(const row_split *s, const norm_backward_values *o, const norm_sums *sums)
{
    const int kinds = sums->kinds, pitch = s->row_threads + PAD,
              groups = s->threads / (int)max_i64(s->row_threads, WARP);
    layout by_groups = make_layout(shape(s->row_threads, s->vec, kinds, groups),
                                   stride(1, pitch, s->vec * pitch, kinds * s->vec * pitch));
    const cta_sums c = { s, o, sums, kinds, groups, smem_tensor("sums", F32, by_groups, 16) };
    for (int step = 0; step < s->steps; step++) {
        if (step > 0)
            cta_sync(); // the sums of the step before have been read
        write_group_sums(&c, step);
        cta_sync();
        store_columns(&c, step);
    }
}

int64_t norm_exchange_alloc(const row_split *s)
{
    const int64_t bytes = norm_exchange_bytes(s);
    return bytes ? smem_alloc("exchange", bytes, 16) : 0;
}

/* The sums of one vector of each lane as those of neighbouring columns; line: the address of the first column's. */
static void store_exchanged(const row_split *s, const row_place *p, int step, tensor rSum, val line, val slots)
{
    const int width = norm_sums_at_once(s), pitch = s->vec + width, accesses = s->vec / width;
    val first = mul(lane(), imm(width)), gaps = mul(div(first, imm(s->vec)), imm(width));
    val start = sub(coordinate(p->cX, 1, (int64_t)step * s->vec), mul(lane(), imm(s->vec))); // the warp's first column
    val column = add(start, first), store = add(line, mul(convert(U64, column), imm(4)));
    tensor sOwn = smem_view(add(slots, mul(lane(), imm(4 * pitch))), F32, compact(leaf(s->vec))); // (VEC)
    tensor sHere =
        smem_view(add(slots, mul(add(first, gaps), imm(4))), F32,
                  make_layout(shape(width, accesses), stride(1, WARP * pitch / accesses))); // (WIDTH,ACCESSES)
    copy(slice(rSum, _, step), sOwn, 4 * width);
    warp_sync();
    tensor rHere = fragment(F32, compact(shape(width, accesses))); // (WIDTH,ACCESSES)
    copy(sHere, rHere, 4 * width);
    warp_sync(); // before the next ones are written
    for (int i = 0; i < accesses; i++)
        IF(lt(add(column, imm(i * WARP * width)), p->limit))
            store_at(IR_GLOBAL, IR_CACHE_DEFAULT, F32, width, store, 4LL * i * WARP * width, rHere.regs + i * width);
}

void norm_store_sums(const row_split *s, const row_place *p, const norm_backward_values *o, const norm_sums *sums,
                     val group)
{
    const int width = norm_sums_at_once(s);
    row_place here = *p;
    for (int kind = 0; kind < sums->kinds; kind++) {
        if (sums->cfg->alone) {
            row_store_anywhere(s, p, sums->rSums[kind],
                               row_vector(s, p, kind ? o->dbeta : o->dgamma, sums->cfg->dtype));
            continue;
        }
        here.row = add(mul(group, imm(sums->kinds)), imm(kind));
        tensor gSum = row_of_matrix(s, &here, o->partial, F32, partial_pitch(o)); // (VEC,STEPS)
        if (width == s->vec) {
            for (int step = 0; step < s->steps; step++)
                IF(row_inside(s, &here, step))
                    copy(slice(sums->rSums[kind], _, step), slice(gSum, _, step), 4 * width);
            continue;
        }
        val line = add(o->partial, mul(convert(U64, mul(here.row, partial_pitch(o))), imm(4)));
        val warps = mul(warp(), imm(4 * WARP * (s->vec + width)));
        for (int step = 0; step < s->steps; step++)
            store_exchanged(s, p, step, sums->rSums[kind], line, add(smem_address(sums->exchange), warps));
    }
}

/* Kernel 2 */

typedef struct columns {
    const norm_config *cfg;
    norm_backward_values o;
    int kinds, vec;   // 2: of dgamma and dbeta; columns of a lane
    column_sums sums; // [kind][column]
} columns;

/* This thread's vector in line `line` of a matrix, at once if lines are aligned to it. */
static tensor load_vector(const columns *c, val pointer, ckl_dtype dtype, val lines, val ld, val line, bool aligned)
{
    tensor gX = gmem_tensor(pointer, dtype, make_layout(shape(c->o.cols, lines), coord(1, ld))); // (COLS,LINES)
    tensor gVector = slice(local_tile(gX, shape(c->vec, 1), coord(c->sums.number, line)), _, 0); // (VEC)
    tensor rVector = fragment_like(gVector, dtype);                                              // (VEC)
    copy(gVector, rVector, dtype_bytes(dtype) * (aligned ? c->vec : 1));
    return rVector;
}

static void add_row(void *user, val number)
{
    columns *c = user;
    const bool centred = c->kinds == 2;
    tensor rX = load_vector(c, c->o.x, c->cfg->dtype, c->o.rows, c->o.ldx, number, false);   // (VEC)
    tensor rDy = load_vector(c, c->o.dy, c->cfg->dtype, c->o.rows, c->o.ldx, number, false); // (VEC)
    val rstd = at(gmem_vector(c->o.rstd, F32, c->o.rows), number),
        mean = centred ? at(gmem_vector(c->o.mean, F32, c->o.rows), number) : immf(0);
    for (int v = 0; v < c->vec; v++) {
        val x = at_f32(rX, v), dy = at_f32(rDy, v);
        assign(c->sums.sum[v], fma(dy, mul(centred ? sub(x, mean) : x, rstd), c->sums.sum[v]));
        if (centred)
            assign(c->sums.sum[c->vec + v], add(c->sums.sum[c->vec + v], dy));
    }
}

static void add_partial(void *user, val group)
{
    columns *c = user;
    val lines = mul(c->o.groups, imm(c->kinds));
    for (int kind = 0; kind < c->kinds; kind++) {
        val line = add(mul(group, imm(c->kinds)), imm(kind));
        tensor rPartial = load_vector(c, c->o.partial, F32, lines, partial_pitch(&c->o), line, true); // (VEC)
        for (int v = 0; v < c->vec; v++)
            assign(c->sums.sum[kind * c->vec + v], add(c->sums.sum[kind * c->vec + v], at(rPartial, v)));
    }
}

static void store_column(void *user, val number, val i, val total)
{
    const columns *c = user;
    val column = add(mul(number, imm(c->vec)), rem(i, imm(c->vec)));
    val sums = c->kinds > 1 ? select(lt(i, imm(c->vec)), c->o.dgamma, c->o.dbeta) : c->o.dgamma;
    IF(lt(column, c->o.cols))
        set_gradient(&c->o, c->cfg->dtype, sums, column, total);
}

/* The partial sums of this CTA's columns have been added: L2 need not write them to memory. */
static void discard_partial(const columns *c)
{
    const int threads = norm_column_threads(c->cfg), own = c->cfg->column_lanes * c->vec / NORM_PARTIAL_LINE; // lines
    val pitch = partial_pitch(&c->o), end = mul(mul(c->o.groups, imm(c->kinds)), imm64(own));
    LOOP_FROM(i, convert(I64, thread()), end, imm64(threads)) {
        val number = add(mul(convert(I64, cta_x()), imm(own)), rem(i, imm64(own)));
        val column = mul(number, imm(NORM_PARTIAL_LINE));
        IF(lt(column, pitch))
            discard_L2(add(c->o.partial, mul(convert(U64, add(mul(div(i, imm64(own)), pitch), column)), imm(4))));
    }
}

/*
 * Lets the CTAs of the next kernel start early, which are likely of the same gradients. Few that stay would crowd the
 * SMs that this kernel leaves free, and clusters of four or more might no longer find room together. Nor is it worth
 * that for rows that take long: RMS norm of 65536x1619 bf16 took 228 us one after the other, 192 alone.
 */
static void start_next(const norm_config *cfg, const norm_backward_values *o)
{
    enum { ELEMENTS_MAX = 16 << 20 };
    if (!cfg->persistent_ctas && cfg->split.cluster <= 2)
        IF(lt(mul(convert(I64, o->rows), convert(I64, o->cols)), imm64(ELEMENTS_MAX)))
            launch_dependents();
}

void norm_backward_columns(const norm_config *cfg)
{
    columns c = { .cfg = cfg, .o = params_of(norm_backward), .kinds = 1 + cfg->centred, .vec = norm_column_vec(cfg) };
    c.sums = column_sums_begin(norm_column_threads(cfg), cfg->column_lanes, c.kinds * c.vec);
    start_next(cfg, &c.o);
    grid_wait(); // for the partial sums; the start of this kernel overlaps the end of the one that stores them
    IF(lt(mul(c.sums.number, imm(c.vec)), c.o.cols)) {
        IF(eq(c.o.partial, imm(0))) {
            column_sums_over(&c.sums, c.o.rows, add_row, &c);
        }
        ELSE
        {
            column_sums_over(&c.sums, c.o.groups, add_partial, &c);
        }
    }
    column_sums_finish(&c.sums, store_column, &c);
    if (c.cfg->column_lanes * c.vec >= NORM_PARTIAL_LINE)
        IF(ne(c.o.partial, imm(0)))
            discard_partial(&c);
}
