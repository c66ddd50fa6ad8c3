/* stream.c - a ring of pieces; stage s holds one piece of every input, side by side. */
#include "cute/stream.h"

#include <string.h>

#include "cute/kernel.h"
#include "cute/residency.h"
#include "cute/vectors.h"

enum { BULK_BYTES = 16, STAGE_ALIGNMENT = 128, BARRIERS_OF_STAGE_BYTES = 16 };

/* On the host */

static int64_t piece_cols(const stream_split *s)
{
    return row_split_cols(&s->piece);
}

static int64_t piece_bytes(const stream_split *s, ckl_dtype dtype)
{
    return piece_cols(s) * (int64_t)ckl_dtype_bytes(dtype);
}

/*
 * Turns from the oldest row in the ring to the one drawn last: a row a stage at most, one that waits for room, and the one
 * after it. While that oldest row is at work, everyone in the cluster has sent, and so has taken, the one before it.
 */
static int turns_under_way(const stream_split *s)
{
    return s->stages + 2;
}

int64_t stream_smem_bytes(const stream_split *s, ckl_dtype dtype, int inputs, int values)
{
    int64_t ring = s->stages * (piece_bytes(s, dtype) * inputs + BARRIERS_OF_STAGE_BYTES);
    int64_t messages = mailbox_bytes(s->piece.threads, s->cluster, values) + tickets_bytes(turns_under_way(s));
    return ring + messages + STAGE_ALIGNMENT;
}

int stream_ctas_per_sm(const stream_split *s, ckl_dtype dtype, int inputs, int values, const ckl_device_info *device)
{
    return residency_ctas_per_sm(device, s->piece.threads + STREAM_PRODUCER_THREADS,
                                 stream_smem_bytes(s, dtype, inputs, values));
}

int64_t stream_pieces(const stream_split *s, int64_t cols)
{
    return ceil_div(ceil_div(cols, piece_cols(s)), s->cluster);
}

int stream_cluster_max(const ckl_device_info *device)
{
    enum { UNDIVIDED_SMS = 100, CLUSTER_LARGE = 16, CLUSTER_PORTABLE = 8 };
    return device->sm_count >= UNDIVIDED_SMS ? CLUSTER_LARGE : CLUSTER_PORTABLE;
}

stream_split stream_split_choose(int64_t cols, ckl_dtype dtype, int inputs, const ckl_device_info *device)
{
    enum { THREADS = 256, PIECE_BYTES = 16 << 10, PIECES = 4, STAGES = 6, STAGES_MAX = 13, CLUSTER_SLOW = 4 };
    int vec = BULK_BYTES / (int)ckl_dtype_bytes(dtype),
        steps = (int)max_i64(1, PIECE_BYTES / (BULK_BYTES * THREADS * inputs));
    stream_split s = { .piece = { THREADS, THREADS, 1, vec, steps, false }, .cluster = 1 };
    while (s.cluster < stream_cluster_max(device) && stream_pieces(&s, cols) > PIECES)
        s.cluster *= 2;
    s.ahead = s.cluster >= CLUSTER_SLOW && s.cluster < stream_cluster_max(device) && stream_pieces(&s, cols) <= PIECES;
    if (s.ahead)
        s.cluster *= 2;
    int64_t pieces = stream_pieces(&s, cols), wanted = max_i64(STAGES, pieces + (pieces + 1) / 2);
    s.hold = wanted <= STAGES_MAX ? STREAM_RING : STREAM_ANEW;
    s.stages = wanted <= STAGES_MAX ? (int)wanted : STAGES;
    s.piece.whole = cols > 0 && cols % piece_cols(&s) == 0;
    return s;
}

ckl_status stream_split_admit(const char *what, const stream_split *s, int64_t cols, ckl_dtype dtype, int inputs,
                              int values, const ckl_device_info *device)
{
    int64_t bytes = stream_smem_bytes(s, dtype, inputs, values);
    if (!device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: the device has no bulk copies", what);
    TRY(row_split_admit(what, &s->piece, min_i64(cols, piece_cols(s)), dtype, device));
    if (s->piece.whole && cols % (s->pieces ? s->pieces * s->cluster * piece_cols(s) : piece_cols(s)))
        FAIL(CKL_INVALID, "%s: whole=1, but rows of %" PRId64 " elements are no whole pieces", what, cols);
    if (s->piece.row_threads != s->piece.threads ||
        s->piece.threads + STREAM_PRODUCER_THREADS > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s: threads=%d must share a row and leave room for a warp", what, s->piece.threads);
    if (s->piece.vec * (int)ckl_dtype_bytes(dtype) != BULK_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d is not %d bytes", what, s->piece.vec, BULK_BYTES);
    if (s->cluster < 1 || s->cluster > 16 || !is_power_of_two(s->cluster))
        FAIL(CKL_INVALID, "%s: cluster=%d is no power of two up to 16", what, s->cluster);
    if (s->stages < 2 || bytes > (int64_t)device->smem_per_cta_bytes)
        FAIL(CKL_INVALID, "%s: stages=%d is less than 2 or takes %" PRId64 " bytes of shared memory", what, s->stages,
             bytes);
    if (s->pieces < 0 || s->pieces > STREAM_PIECES_MAX || (s->pieces && s->pieces != stream_pieces(s, cols)))
        FAIL(CKL_INVALID, "%s: pieces=%d, but a row has %" PRId64 " for each CTA, and %d at most are unrolled", what,
             s->pieces, stream_pieces(s, cols), STREAM_PIECES_MAX);
    if (s->hold == STREAM_REGISTERS && s->pieces == 0)
        FAIL(CKL_INVALID, "%s: hold=registers needs pieces=", what);
    if (s->ahead && s->hold != STREAM_RING)
        FAIL(CKL_INVALID, "%s: ahead=1 needs hold=ring", what);
    if (s->hold == STREAM_RING && stream_pieces(s, cols) * (1 + s->ahead) > s->stages)
        FAIL(CKL_INVALID, "%s: hold=ring ahead=%d, but %d times %" PRId64 " pieces do not fit %d stages", what,
             s->ahead, 1 + s->ahead, stream_pieces(s, cols), s->stages);
    if (cols * (int64_t)ckl_dtype_bytes(dtype) % BULK_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s: rows of %" PRId64 " elements are no multiple of %d bytes", what, cols, BULK_BYTES);
    return CKL_OK;
}

ckl_status stream_draw_admit(const char *what, const stream_split *s, int64_t cols)
{
    if (s->cluster > 1 && cols <= (s->cluster - 1) * piece_cols(s))
        FAIL(CKL_INVALID, "%s: cluster=%d, but rows have only %" PRId64 " pieces", what, s->cluster,
             ceil_div(cols, piece_cols(s)));
    return CKL_OK;
}

/* In the kernel */

static int stage_bytes(const row_stream *s)
{
    return (int)piece_bytes(&s->split, s->dtype) * s->input_count;
}

/* The start of this CTA's first piece in a row, and from one piece to its next. */
static val first_start(const row_stream *s)
{
    return s->split.cluster > 1 ? mul(cluster_rank(), imm((int)piece_cols(&s->split))) : ir_int(U32, 0);
}

static val start_step(const row_stream *s)
{
    return imm((int)(piece_cols(&s->split) * s->split.cluster));
}

static val stage_address(const row_stream *s, const pipeline_state *at)
{
    return add(ir_smem_address(s->stage_offset), mul(at->stage, imm(stage_bytes(s))));
}

/* The producer */

static void bring_piece(const row_stream *s, pipeline_state *at, val row, val start)
{
    int64_t size = (int64_t)ckl_dtype_bytes(s->dtype), whole = piece_bytes(&s->split, s->dtype);
    val bytes =
        s->split.piece.whole ? ir_int(U32, whole) : min(mul(sub(s->cols, start), imm((int)size)), imm((int)whole));
    val barrier = pipeline_full_barrier(&s->ring, at), stage = stage_address(s, at);
    pipeline_wait_empty(&s->ring, at);
    pipeline_expect(&s->ring, at, mul(bytes, imm(s->input_count)));
    for (int i = 0; i < s->input_count; i++) {
        val element = add(mul(row, convert(I64, s->inputs[i].ld)), convert(I64, start));
        val from = add(s->inputs[i].pointer, mul(convert(U64, element), ir_int(U64, size)));
        ir_bulk_load(stage, i * whole, from, bytes, barrier);
    }
    pipeline_advance(at);
}

static void bring_row(const row_stream *s, pipeline_state *at, val row)
{
    const int visits = s->split.hold == STREAM_ANEW ? 2 : 1;
    for (int visit = 0; visit < visits; visit++) {
        LOOP_FROM(start, first_start(s), s->cols, start_step(s))
        bring_piece(s, at, row, start);
    }
}

static void produce_drawn(const row_stream *s, pipeline_state *at)
{
    val turn = variable(U32, imm(0));
    tickets_draw(&s->tickets, turn);
    val row = variable(U32, tickets_take(&s->tickets, turn));
    FOREVER {
        BREAK_IF(ge(row, s->tickets.count));
        assign(turn, add(turn, imm(1)));
        tickets_draw(&s->tickets, turn); // before the row is brought: that may have to wait for those who take this
        bring_row(s, at, convert(I64, row));
        assign(row, tickets_take(&s->tickets, turn));
    }
}

static void produce(const row_stream *s)
{
    pipeline_state at = producer_state(&s->ring);
    if (s->drawn) {
        produce_drawn(s, &at);
        return;
    }
    LOOP_FROM(row, s->first_row, s->rows, s->row_step)
    {
        bring_row(s, &at, row);
    }
}

/* Set-up */

static void initialise(const row_stream *s)
{
    grid_launch();
    IF(eq(thread(), imm(0))) {
        pipeline_init(&s->ring);
        mailbox_init(&s->mail);
        if (s->drawn)
            tickets_init(&s->tickets);
        fence_mbarrier_init();
    }
    if (s->split.cluster > 1)
        cluster_sync();
    else
        cta_sync();
    grid_wait(); // what is above overlaps the end of the kernel before
}

static void set_launch(const stream_split *split)
{
    ir_current()->threads = split->piece.threads + STREAM_PRODUCER_THREADS;
    ir_current()->cluster = split->cluster;
    ir_current()->target = IR_SM90A;
}

row_stream row_stream_begin(const stream_split *split, ckl_dtype dtype, const stream_input *inputs, int input_count,
                            int values, val rows, val cols, val counter)
{
    int threads = split->piece.threads;
    row_stream s = { .split = *split, .dtype = dtype, .input_count = input_count };
    memcpy(s.inputs, inputs, (size_t)input_count * sizeof *inputs);
    set_launch(split);
    s.rows = convert(I64, rows);
    s.cols = convert(U32, cols);
    s.first_row = convert(I64, div(cta_x(), imm(split->cluster)));
    s.row_step = convert(I64, div(grid_x(), imm(split->cluster)));
    s.stage_offset = ir_smem_alloc("stages", (int64_t)split->stages * stage_bytes(&s), STAGE_ALIGNMENT);
    s.ring = make_pipeline("ring", split->stages, 1, threads / 32);
    s.mail = make_mailbox("mail", threads, split->cluster, values);
    s.drawn = !ir_is_int(counter, 0);
    if (s.drawn)
        s.tickets = make_tickets("tickets", counter, convert(U32, rows), convert(U32, s.row_step), split->cluster,
                                 turns_under_way(split));
    initialise(&s);
    ir_if(eq(warp(), imm(threads / 32)));
    IF(elect())
        produce(&s);
    ir_else();
    s.seen = consumer_state(&s.ring);
    s.written = consumer_state(&s.ring);
    s.turn = variable(U32, imm(0));
    s.row = variable(I64, s.drawn ? convert(I64, tickets_take(&s.tickets, s.turn)) : s.first_row);
    s.next = variable(I64, s.row);
    return s;
}

void row_stream_end(row_stream *s)
{
    ir_end_if();
    if (s->split.cluster > 1)
        cluster_sync(); // peers may still send to this CTA
}

/* Consumers */

row_place row_stream_place(const row_stream *s, val row)
{
    row_place p = { .row = row, .exists = yes(), .limit = s->cols };
    p.first = add(first_start(s), mul(thread(), imm(s->split.piece.vec)));
    return p;
}

/* Elements of a row from one piece of a CTA to its next. */
static val piece_start(const row_stream *s, int piece)
{
    return imm((int)piece_cols(&s->split) * s->split.cluster * piece);
}

row_place row_stream_columns(const row_stream *s, int piece)
{
    row_place first = row_stream_place(s, ir_int(I64, 0));
    return row_from(&first, piece_start(s, piece));
}

/* One visit to a row. */
typedef struct pass {
    row_stream *s;
    pipeline_state *at;
    bool arrived; // seen before: there is nothing to wait for
    bool leaves;  // stages may be filled again
    bool held;    // the row is in registers
    stream_visit *visit;
    void *user;
} pass;

/* NOTE: without the proxy fence a bulk copy may overwrite what loads under way have yet to read: seen on the H200. */
static void free_stage(const row_stream *s, const pipeline_state *at)
{
    fence_proxy_async();
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(eq(lane(), imm(0)))
        pipeline_release(&s->ring, at->stage);
}

/* This thread's part of input i in the stage. */
static tensor load_part(const row_stream *s, const pipeline_state *at, const row_place *p, int i)
{
    const row_split *piece = &s->split.piece;
    int64_t size = (int64_t)ckl_dtype_bytes(s->dtype), step_bytes = size * piece->vec * piece->threads;
    layout part = make_layout(shape(piece->vec, piece->steps), stride(1, (int64_t)piece->vec * piece->threads));
    val first = add(stage_address(s, at), mul(thread(), imm((int)size * piece->vec)));
    tensor sX = smem_view(first, s->dtype, part); // (VEC,STEPS)
    tensor rX = fragment_like(sX, s->dtype);      // (VEC,STEPS)
    vector_at *each = ir_alloc((size_t)piece->steps, sizeof *each);
    for (int step = 0; step < piece->steps; step++)
        each[step] =
            (vector_at){ first, i * piece_bytes(&s->split, s->dtype) + step * step_bytes, row_inside(piece, p, step) };
    vectors_load(each, piece->steps, piece->vec, sX, rX.regs, s->fill);
    return rX;
}

/* Brings a piece that may not exist into registers. */
static void take_piece(const pass *v, const row_place *p, val exists, tensor *rX)
{
    const bool sure = ir_is_int(exists, 1);
    const row_stream *s = v->s;
    if (!v->arrived) {
        if (!sure)
            ir_if(exists);
        pipeline_wait_full(&s->ring, v->at);
        if (!sure)
            ir_end_if();
    }
    for (int i = 0; i < s->input_count; i++)
        rX[i] = load_part(s, v->at, p, i);
    if (!sure)
        ir_if(exists);
    if (v->leaves)
        free_stage(s, v->at);
    pipeline_advance(v->at);
    if (!sure)
        ir_end_if();
}

static void pass_of_loop(const pass *v, const row_place *first)
{
    const row_stream *s = v->s;
    tensor rX[STREAM_INPUTS_MAX];
    LOOP_FROM(start, first_start(s), s->cols, start_step(s))
    {
        row_place p = row_from(first, sub(start, first_start(s)));
        take_piece(v, &p, yes(), rX);
        v->visit(&p, 0, rX, v->user);
    }
}

static void pass_unrolled(const pass *v, const row_place *first)
{
    row_stream *s = v->s;
    for (int piece = 0; piece < s->split.pieces; piece++) {
        val start = piece_start(s, piece);
        row_place p = row_from(first, start);
        val exists = s->split.piece.whole ? yes() : lt(add(first_start(s), start), s->cols);
        if (!v->held)
            take_piece(v, &p, exists, s->rHeld[piece]);
        v->visit(&p, piece, s->rHeld[piece], v->user);
    }
}

static void go_over(const pass *v, val row)
{
    const row_place first = row_stream_place(v->s, row);
    if (v->s->split.pieces)
        pass_unrolled(v, &first);
    else
        pass_of_loop(v, &first);
}

void row_stream_see(row_stream *s, val row, stream_visit *visit, void *user)
{
    go_over(&(pass){ s, &s->seen, .leaves = s->split.hold != STREAM_RING, .visit = visit, .user = user }, row);
}

void row_stream_write(row_stream *s, val row, stream_visit *visit, void *user)
{
    const bool ring = s->split.hold == STREAM_RING, held = s->split.hold == STREAM_REGISTERS;
    go_over(&(pass){ s, ring ? &s->written : &s->seen, ring, true, held, visit, user }, row);
}

static void hand_over(const row_steps *steps, void *user)
{
    if (steps->hand_over)
        steps->hand_over(user);
}

static void see(row_stream *s, const row_steps *steps, void *user)
{
    assign(s->turn, add(s->turn, imm(1)));
    assign(s->next, s->drawn ? convert(I64, tickets_take(&s->tickets, s->turn)) : add(s->row, s->row_step));
    steps->see(s, s->row, user);
}

/* One turn more than there are rows: each sees a row and writes the one of the turn before. */
static void walk_ahead(row_stream *s, const row_steps *steps, void *user)
{
    val before = variable(I64, s->rows);
    FOREVER {
        IF(lt(s->row, s->rows))
            see(s, steps, user);
        IF(lt(before, s->rows))
            steps->write(s, before, user);
        BREAK_IF(ge(s->row, s->rows));
        hand_over(steps, user);
        assign(before, s->row);
        assign(s->row, s->next);
    }
}

void row_stream_walk(row_stream *s, const row_steps *steps, void *user)
{
    if (s->split.ahead) {
        walk_ahead(s, steps, user);
        return;
    }
    FOREVER {
        BREAK_IF(ge(s->row, s->rows));
        see(s, steps, user);
        hand_over(steps, user);
        steps->write(s, s->row, user);
        assign(s->row, s->next);
    }
}

void row_stream_send(const row_stream *s, const reduction *r, val *values)
{
    mailbox_send(&s->mail, r, values);
}

void row_stream_receive(const row_stream *s, const reduction *r, val *values)
{
    mailbox_receive(&s->mail, r, values);
}
