/* row_pipeline.c - producer, ring and consumers. A stage holds one chunk of every input, side by side. */
#include "skeletons/row_pipeline.h"

#include "cute/kernel.h"

static int stage_bytes(const row_pipeline *s)
{
    return (int)row_pipeline_slot_bytes(&s->split, s->of.dtype) * s->of.input_count;
}

/* The start of this CTA's first chunk in a row, and from there to another one of its chunks. */
static val first_start(const row_pipeline *s)
{
    return s->split.cluster > 1 ? mul(cluster_rank(), imm(row_pipeline_chunk_cols(&s->split))) : imm(0);
}

static val chunk_start(const row_pipeline *s, int chunk)
{
    return imm(row_pipeline_chunk_cols(&s->split) * s->split.cluster * chunk);
}

static val stage_address(const row_pipeline *s, const pipeline_state *at)
{
    return add(smem_address(s->stage_offset), mul(at->stage, imm(stage_bytes(s))));
}

/* Places */

row_place row_pipeline_place(const row_pipeline *s, val row)
{
    row_place p = row_place_of(&s->split.chunk, s->of.rows, s->of.cols, row, thread());
    return row_from(&p, first_start(s));
}

static row_spans spans_of(const row_pipeline *s, val row)
{
    const row_place start = row_pipeline_place(s, row);
    return row_spans_of(&s->split.chunk, &start, s->of.output.pointer, s->of.dtype, s->of.output.ld);
}

/* Ragged rows of a static schedule that lie alike to 16-byte boundaries come together: their columns are found once. */
static bool has_columns(const row_pipeline *s)
{
    return s->split.chunk.ragged && !s->dynamic;
}

static row_spans spans_in(const row_pipeline *s, val row)
{
    if (!has_columns(s))
        return spans_of(s, row);
    row_spans all = s->columns;
    for (int i = 0; i < all.count; i++)
        all.of[i].place = row_place_in(&all.of[i].place, row);
    return all;
}

static val phase_start(const row_phases *ph, val p)
{
    return add(mul(p, ph->rows), min(p, ph->longer));
}

static val phase_of(const row_phases *ph, val i)
{
    val more = add(ph->rows, imm(1)), others = mul(ph->longer, more);
    return select(lt(i, others), div(i, more), add(ph->longer, div(sub(i, others), ph->rows)));
}

static row_phases phases_of(const row_pipeline *s)
{
    const int vec = row_vec_full(s->of.dtype);
    val rows = convert(U32, s->of.rows), cluster = convert(U32, s->first_row), clusters = convert(U32, s->row_step);
    val ld = bit_or(convert(U32, s->of.output.ld), imm(vec)),
        period = div(imm_as(U32, vec), bit_and(ld, sub(imm(0), ld)));
    val share = div(rows, clusters), rest = rem(rows, clusters);
    row_phases ph = { .count = min(period, rows) };
    ph.rows = div(rows, ph.count);
    ph.longer = rem(rows, ph.count);
    ph.begin = add(mul(cluster, share), min(cluster, rest));
    ph.end = add(ph.begin, select(lt(cluster, rest), add(share, imm(1)), share));
    ph.first = phase_of(&ph, sub(max(ph.begin, imm(1)), imm(1)));
    ph.last = phase_of(&ph, sub(ph.end, imm(1)));
    return ph;
}

static void enter_phase(row_pipeline *s, const row_phases *ph, val p)
{
    val start = phase_start(ph, p), next = phase_start(ph, add(p, imm(1)));
    s->first_row = convert(I64, add(p, mul(ph->count, sub(max(ph->begin, start), start))));
    s->end = convert(I64, add(p, mul(ph->count, sub(min(ph->end, next), start))));
    s->row_step = convert(I64, ph->count);
    s->columns = spans_of(s, convert(I64, p));
}

void row_pipeline_each_phase(row_pipeline *s, row_phase_body *body, void *user)
{
    val cluster = s->first_row;
    if (!has_columns(s)) {
        body(s, cluster, user);
        return;
    }
    const row_phases ph = s->phases;
    LOOP_FROM(p, ph.first, add(ph.last, imm(1)), imm(1)) {
        enter_phase(s, &ph, p);
        body(s, add(cluster, convert(I64, p)), user);
    }
}

/* The producer */

/* The first column of this CTA's first chunk. */
static val begin_of(const row_pipeline *s, const row_bounds *b)
{
    return s->split.chunk.ragged ? add(first_start(s), b->begin) : first_start(s);
}

static val input_address(const row_pipeline *s, int input, val row, val start)
{
    const row_pipeline_matrix *x = &s->of.inputs[input];
    val element = add(mul(row, convert(I64, x->ld)), convert(I64, start));
    return add(x->pointer, mul(convert(U64, element), imm(dtype_bytes(s->of.dtype))));
}

/* The chunk from column `start` on of a row with such bounds. */
static void load_chunk(const row_pipeline *s, pipeline_state *at, val row, val start, const row_bounds *b)
{
    int64_t size = dtype_bytes(s->of.dtype), full = row_pipeline_chunk_bytes(&s->split, s->of.dtype);
    val bytes = s->split.chunk.exact ? imm(full) : min(mul(sub(b->end, start), imm(size)), imm(full));
    val barrier = pipeline_full_barrier(&s->ring, at), stage = stage_address(s, at);
    pipeline_wait_empty(&s->ring, at);
    pipeline_expect(&s->ring, at, mul(bytes, imm(s->of.input_count)));
    for (int i = 0; i < s->of.input_count; i++)
        bulk_load_at(stage, i * full, input_address(s, i, row, start), bytes, barrier);
    pipeline_advance(at);
}

/* Bytes from a 16-byte boundary to the row's first chunk: the same for all chunks and inputs. */
static val bytes_past(const row_pipeline *s, val row, const row_bounds *b)
{
    const row_pipeline_matrix *x = &s->of.inputs[0];
    val start = add(mul(convert(U32, row), convert(U32, x->ld)), b->begin);
    return bit_and(add(convert(U32, x->pointer), mul(start, imm(dtype_bytes(s->of.dtype)))),
                   imm(ROW_PIPELINE_BULK_BYTES - 1));
}

/* The last elements of a matrix, which fill no 16 bytes, one by one; behind them zeros. */
static void load_tail(const row_pipeline *s, val from, val stage, val elements)
{
    const int vec = row_vec_full(s->of.dtype);
    tensor gX = gmem_tensor(from, s->of.dtype, compact(leaf(vec)));
    tensor sX = smem_view(stage, s->of.dtype, compact(leaf(vec)));
    LOOP(e, imm(vec)) {
        IF(lt(e, elements))
            set(sX, e, at(gX, e));
        ELSE set(sX, e, convert(s->of.dtype, immf(0)));
    }
}

/* The same from the 16-byte boundary before the chunk to the one behind it, but never behind the matrix. */
static void load_cut_chunk(const row_pipeline *s, pipeline_state *at, val row, val start, const row_bounds *b)
{
    const int64_t size = dtype_bytes(s->of.dtype), slot = row_pipeline_slot_bytes(&s->split, s->of.dtype);
    val cols = min(sub(b->end, start), imm(row_pipeline_chunk_cols(&s->split))), past = bytes_past(s, row, b);
    val needed = add(mul(cols, imm(size)), past), rest = bit_and(needed, imm(ROW_PIPELINE_BULK_BYTES - 1));
    val whole = sub(needed, rest), is_last = eq(row, sub(s->of.rows, imm(1)));
    val is_tail = logical_and(ne(rest, imm(0)), logical_and(is_last, eq(add(start, cols), b->end)));
    val bytes = select(logical_or(is_tail, eq(rest, imm(0))), whole, add(whole, imm(ROW_PIPELINE_BULK_BYTES)));
    val barrier = pipeline_full_barrier(&s->ring, at), stage = stage_address(s, at);
    val from[ROW_PIPELINE_INPUTS_MAX];
    for (int i = 0; i < s->of.input_count; i++)
        from[i] = sub(input_address(s, i, row, start), convert(U64, past));
    pipeline_wait_empty(&s->ring, at);
    IF(is_tail)
        for (int i = 0; i < s->of.input_count; i++)
            load_tail(s, add(from[i], convert(U64, whole)), add(stage, add(whole, imm(i * slot))),
                      div(rest, imm(size)));
    pipeline_expect(&s->ring, at, mul(bytes, imm(s->of.input_count)));
    IF(ne(bytes, imm(0)))
        for (int i = 0; i < s->of.input_count; i++)
            bulk_load_at(stage, i * slot, from[i], bytes, barrier);
    pipeline_advance(at);
}

static void load_row(const row_pipeline *s, pipeline_state *at, val row)
{
    const row_pipeline_matrix *y = &s->of.output;
    const row_bounds b = has_columns(s)
                             ? s->columns.bounds
                             : row_bounds_of(&s->split.chunk, row, s->of.cols, y->pointer, s->of.dtype, y->ld);
    LOOP_FROM(start, begin_of(s, &b), b.end, chunk_start(s, 1))
        (s->split.cut ? load_cut_chunk : load_chunk)(s, at, row, start, &b);
}

/* The rows behind the first ones of all clusters are drawn. */
static val drawn_row(const row_pipeline *s, val fetch)
{
    return add(convert(I64, scheduler_next(&s->scheduler, fetch)), s->row_step);
}

/*
 * A cluster's first row is its own. A ring that holds a row has room for it: it is loaded before the first number is
 * fetched, a round trip to L2.
 */
static void produce_dynamic(const row_pipeline *s, pipeline_state *at)
{
    const bool early = s->split.residence == ROW_IN_RING;
    val fetch = variable(U32, imm(0)), row = variable(I64, s->first_row);
    if (early)
        load_row(s, at, row);
    scheduler_fetch(&s->scheduler, fetch);
    if (!early)
        load_row(s, at, row);
    assign(row, drawn_row(s, fetch));
    FOREVER {
        BREAK_IF(ge(row, s->of.rows));
        assign(fetch, add(fetch, imm(1)));
        // first: loading this row may wait for consumers, which wait for the next row's number
        scheduler_fetch(&s->scheduler, fetch);
        load_row(s, at, row);
        assign(row, drawn_row(s, fetch));
    }
}

static void produce_phase(row_pipeline *s, val group, void *user)
{
    (void)group;
    LOOP_FROM(row, s->first_row, s->end, s->row_step)
        load_row(s, user, row);
}

static void produce(const row_pipeline *s)
{
    pipeline_state at = producer_state(&s->ring);
    row_pipeline here = *s;
    if (s->dynamic)
        produce_dynamic(s, &at);
    else
        row_pipeline_each_phase(&here, produce_phase, &at);
}

/* Set-up */

static void initialise(const row_pipeline *s)
{
    launch_dependents();
    IF(eq(thread(), imm(0))) {
        pipeline_init(&s->ring);
        cluster_allreduce_init(&s->allreduce);
        if (s->dynamic)
            scheduler_init(&s->scheduler);
        fence_mbarrier_init();
    }
    cluster_sync();
    grid_wait(); // the set-up above overlaps the end of the kernel before this one
}

row_pipeline row_pipeline_begin(const row_pipeline_split *split, const row_pipeline_matrices *of, int values,
                                val counter)
{
    int threads = split->chunk.threads;
    row_pipeline s = { .split = *split, .of = *of };
    launch_bounds(threads + ROW_PIPELINE_PRODUCER_THREADS, 0);
    cluster_size(split->cluster);
    s.of.rows = convert(I64, of->rows);
    s.of.cols = convert(U32, of->cols);
    s.first_row = convert(I64, div(cta_x(), imm(split->cluster)));
    s.row_step = convert(I64, div(grid_x(), imm(split->cluster)));
    s.stage_offset = smem_alloc("stages", (int64_t)split->stages * stage_bytes(&s), ROW_PIPELINE_STAGE_ALIGNMENT);
    s.ring = make_pipeline("ring", split->stages, 1, threads / 32);
    s.allreduce = make_cluster_allreduce("allreduce", threads, split->cluster, values);
    s.dynamic = !is_imm(counter, 0);
    if (s.dynamic)
        s.scheduler = make_dynamic_scheduler("scheduler", counter, convert(U32, sub(s.of.rows, s.row_step)),
                                             convert(U32, s.row_step), split->cluster, row_pipeline_fetched_max(split));
    s.end = s.of.rows;
    if (has_columns(&s))
        s.phases = phases_of(&s); // some divisions, while the kernel before may still run
    initialise(&s);
    begin_if(eq(warp(), imm(threads / 32)));
    IF(elect())
        produce(&s);
    begin_else(); // what follows, up to row_pipeline_end(), is the consumers' part
    s.first_state = consumer_state(&s.ring);
    s.second_state = consumer_state(&s.ring);
    s.fetched = variable(U32, imm(0));
    return s;
}

void row_pipeline_end(row_pipeline *s)
{
    end_if();
    if (s->split.cluster > 1)
        cluster_sync(); // until then peers may still send to this CTA
}

/* Consumers */

row_span row_pipeline_columns(const row_pipeline *s, int chunk)
{
    const row_spans first = has_columns(s) ? s->columns : spans_of(s, imm64(0));
    if (chunk == s->split.chunks)
        return first.of[1];
    return (row_span){ first.of[0].split, row_from(&first.of[0].place, chunk_start(s, chunk)) };
}

/* One pass over a row. */
typedef struct pass {
    row_pipeline *s;
    pipeline_state *at;
    bool is_first; // waits for its stages to be full
    bool releases; // lets the producer fill its stages again
    val past;      // where vectors are cut: bytes_past()
    row_visit *visit;
    void *user;
} pass;

/* Else the row is in registers since the first pass. */
static bool takes_stages(const pass *v)
{
    return v->is_first || v->s->split.residence == ROW_IN_RING;
}

/*
 * This thread's partitions of all inputs in the stage, each vector cut out of two. The address is computed by hand: a
 * vector begins anywhere, so no layout of elements has it, only one of the aligned 16 bytes that the two halves lie in.
 */
static void load_cut_inputs(const pass *v, const row_span *here, tensor *rX)
{
    const row_pipeline *s = v->s;
    val stage = add(stage_address(s, v->at), mul(thread(), imm(ROW_PIPELINE_BULK_BYTES))),
        from[ROW_PIPELINE_INPUTS_MAX];
    for (int i = 0; i < s->of.input_count; i++) {
        from[i] = add(stage, imm(i * row_pipeline_slot_bytes(&s->split, s->of.dtype)));
        rX[i] = fragment(s->of.dtype, compact(shape(s->split.chunk.vec, s->split.chunk.steps))); // (VEC,STEPS)
    }
    row_load_cut_shared(&here->split, &here->place, from, s->of.input_count, v->past, rX, s->fill);
}

/* This thread's partition of input i in the stage. */
static tensor load_input(const pass *v, const row_span *here, int i)
{
    const row_pipeline *s = v->s;
    const row_split *chunk = &here->split;
    val first = add(stage_address(s, v->at), imm(i * row_pipeline_slot_bytes(&s->split, s->of.dtype)));
    tensor sX = smem_view(first, s->of.dtype, compact(leaf(row_pipeline_chunk_cols(&s->split)))); // (COLS)
    return row_fetch(chunk, &here->place, row_partition(chunk, sX, thread()), s->fill);
}

/* NOTE: without the proxy fence a bulk copy may overwrite what loads in flight have yet to read: seen on an H200. */
static void leave_stage(const pass *v)
{
    if (v->releases) {
        fence_proxy_async();
        warp_sync();
        IF(eq(lane(), imm(0)))
            pipeline_release(&v->s->ring, v->at->stage);
    }
    pipeline_advance(v->at);
}

/* Loads a chunk from its stage into registers, if it exists. */
static void take_chunk(const pass *v, const row_span *here, val exists, tensor *rX)
{
    const bool always = is_imm(exists, 1);
    const row_pipeline *s = v->s;
    if (v->is_first) {
        if (always)
            pipeline_wait_full(&s->ring, v->at);
        else IF(exists)
            pipeline_wait_full(&s->ring, v->at);
    }
    if (s->split.cut)
        load_cut_inputs(v, here, rX);
    else
        for (int i = 0; i < s->of.input_count; i++)
            rX[i] = load_input(v, here, i);
    if (always)
        leave_stage(v);
    else IF(exists)
        leave_stage(v);
}

/* Where visits are long, threads without an element of the chunk skip it: mostly warps at the end of a row. */
static void visit_chunk(const pass *v, const row_span *here, int chunk, const tensor *rX)
{
    if (here->split.exact || !v->s->long_visits)
        v->visit(here, chunk, rX, v->user);
    else IF(row_inside(&here->split, &here->place, 0))
        v->visit(here, chunk, rX, v->user);
}

static void pass_of_loop(const pass *v, const row_spans *all)
{
    const row_pipeline *s = v->s;
    tensor rX[ROW_PIPELINE_INPUTS_MAX];
    LOOP_FROM(start, begin_of(s, &all->bounds), all->bounds.end, chunk_start(s, 1)) {
        const row_span *first = &all->of[0];
        row_span here = { first->split, row_from(&first->place, sub(start, begin_of(s, &all->bounds))) };
        take_chunk(v, &here, yes(), rX);
        visit_chunk(v, &here, 0, rX);
    }
}

static void pass_unrolled(const pass *v, const row_spans *all)
{
    row_pipeline *s = v->s;
    for (int chunk = 0; chunk < s->split.chunks; chunk++) {
        val start = chunk_start(s, chunk);
        row_span here = { all->of[0].split, row_from(&all->of[0].place, start) };
        here.split.exact = s->split.chunk.exact || chunk + 1 < s->split.chunks; // all but the last are whole
        val exists = here.split.exact ? yes() : lt(add(begin_of(s, &all->bounds), start), all->bounds.end);
        if (takes_stages(v))
            take_chunk(v, &here, exists, s->rHeld[chunk]);
        visit_chunk(v, &here, chunk, s->rHeld[chunk]);
    }
}

static void load_ends(row_pipeline *s, const row_span *ends)
{
    for (int i = 0; i < s->of.input_count; i++) {
        tensor gX = row_of_matrix(&ends->split, &ends->place, s->of.inputs[i].pointer, s->of.dtype,
                                  s->of.inputs[i].ld);                    // (1,1)
        s->rEnds[i] = row_fetch(&ends->split, &ends->place, gX, s->fill); // (1,1)
    }
}

/* The ends are loaded while the chunks are visited. */
static void go_over(pass *v, val row)
{
    row_pipeline *s = v->s;
    const row_spans all = spans_in(s, row);
    if (s->split.cut)
        v->past = bytes_past(s, row, &all.bounds);
    const row_span *ends = all.count > 1 ? &all.of[1] : NULL;
    if (ends && takes_stages(v))
        load_ends(s, ends);
    if (s->split.chunks)
        pass_unrolled(v, &all);
    else
        pass_of_loop(v, &all);
    if (ends)
        IF(row_may_have_ends(&s->split.chunk))
            v->visit(ends, s->split.chunks, s->rEnds, v->user);
}

void row_pipeline_first_pass(row_pipeline *s, val row, row_visit *visit, void *user)
{
    const bool releases = s->split.residence == ROW_IN_REGISTERS;
    go_over(&(pass){ s, &s->first_state, .is_first = true, .releases = releases, .visit = visit, .user = user }, row);
}

void row_pipeline_second_pass(row_pipeline *s, val row, row_visit *visit, void *user)
{
    go_over(&(pass){ s, &s->second_state, .releases = true, .visit = visit, .user = user }, row);
}

static void first_pass(row_pipeline *s, const row_passes *passes, void *user)
{
    assign(s->next, s->dynamic ? drawn_row(s, s->fetched) : add(s->row, s->row_step));
    assign(s->fetched, add(s->fetched, imm(1)));
    passes->first(s, s->row, user);
}

/*
 * Runs the first pass over a row and then the second one over the row before: one iteration more than there are rows.
 */
static void run_lookahead(row_pipeline *s, const row_passes *passes, void *user)
{
    val before = variable(I64, s->end);
    FOREVER {
        IF(lt(s->row, s->end))
            first_pass(s, passes, user);
        IF(lt(before, s->end))
            passes->second(s, before, user);
        BREAK_IF(ge(s->row, s->end));
        if (passes->carry)
            passes->carry(user);
        assign(before, s->row);
        assign(s->row, s->next);
    }
}

void row_pipeline_run(row_pipeline *s, const row_passes *passes, void *user)
{
    s->row = variable(I64, s->first_row);
    s->next = variable(I64, s->row);
    if (s->split.lookahead) {
        run_lookahead(s, passes, user);
        return;
    }
    FOREVER {
        BREAK_IF(ge(s->row, s->end));
        first_pass(s, passes, user);
        if (passes->carry)
            passes->carry(user);
        passes->second(s, s->row, user);
        assign(s->row, s->next);
    }
}

void row_pipeline_reduce_begin(const row_pipeline *s, const reduction *r, val *values)
{
    cluster_allreduce_begin(&s->allreduce, r, values);
}

void row_pipeline_reduce_end(const row_pipeline *s, const reduction *r, val *values)
{
    cluster_allreduce_end(&s->allreduce, r, values);
}
