/*
 * gemm_sm90_epilogue.c - accumulators, C and bias to D through staging buffers, a box of TMA at a time, so that stores overlap
 * the next box and the next tile. What TMA cannot store goes from the buffer element by element.
 *
 * With swap=1 a tile is one of D^T: buffers hold it transposed, and rows and columns change places on the way to D.
 */
#include "operators/gemm/gemm_sm90.h"

enum { ELEMENTS_AT_ONCE = 4 }; // of a thread, where D is stored by elements

/* What one staging buffer holds of the consumer's rows and columns. */
typedef struct subtile {
    int rows, cols;     // where it starts in them
    tile_place at;      // where it starts in D
    int stores_pending; // that may still be reading their buffers, so that this one is free
    tiled_mma mma;      // of its columns
    tensor acc;         // (MMA,1,1)
    tensor sD;          // (ROWS,COLS), as D lies
    tensor sAcc;        // the same as the accumulators lie
} subtile;

/* Rows and columns of D. */
static val rows_of_D(const sm90_kernel *k)
{
    return k->cfg->swap ? k->p.n : k->p.m;
}

static val cols_of_D(const sm90_kernel *k)
{
    return k->cfg->swap ? k->p.m : k->p.n;
}

/* The first of the bias's elements that the consumer needs. */
static val bias_start(const sm90_kernel *k, const tile_place *at)
{
    return k->cfg->swap ? at->row : at->col;
}

/* This thread's elements of the bias: loads that nothing waits for before the epilogue. */
void gemm_sm90_load_bias(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val bias[BIAS_MAX])
{
    tensor gBias = gmem_tensor(k->p.bias, k->epilogue.d, make_layout(dynamic(cols_of_D(k)), leaf(1))); // (N)
    for (int i = 0; i * WARPGROUP < k->size.bias; i++) {
        val j = add(bias_start(k, at), add(c->tid, imm(i * WARPGROUP)));
        bias[i] = variable(k->epilogue.d, ir_float(k->epilogue.d, 0));
        IF(lt(j, cols_of_D(k)))
            assign(bias[i], at(gBias, j));
    }
}

/* The bias into shared memory, as f32; read after the epilogue's first barrier. */
static void share_bias(const sm90_kernel *k, const consumer_role *c, const val bias[BIAS_MAX])
{
    for (int i = 0; i * WARPGROUP < k->size.bias; i++) {
        val j = add(c->tid, imm(i * WARPGROUP));
        IF(lt(j, imm(k->size.bias)))
            set(c->sBias, j, convert(F32, bias[i]));
    }
}

/* The rows and columns of a staging buffer in steps that the threads move element by element, each at its place in D. */
typedef struct element_steps {
    tiled_copy each;
    tensor cD; // (ROWS,COLS)
    int_tuple step, all;
    int count;
} element_steps;

static element_steps steps_of(const sm90_kernel *k, const subtile *h)
{
    const int across = k->size.d_cols, down = WARPGROUP / across;
    layout threads = compact_right(shape(down, across));
    tensor cD = coordinates_from(identity_tensor(shape(k->size.d_rows, across)), 0, h->at.row); // (ROWS,COLS)
    return (element_steps){
        .each = make_tiled_copy(universal_copy(k->epilogue.d, 1), k->epilogue.d, threads, compact(shape(1, 1))),
        .cD = coordinates_from(cD, 1, h->at.col),
        .step = shape(ELEMENTS_AT_ONCE * down, across),
        .all = shape(rows_of_D(k), cols_of_D(k)),
        .count = k->size.d_rows / (ELEMENTS_AT_ONCE * down),
    };
}

/* The matrix of the batch at an address. */
static tensor matrix_of(const sm90_kernel *k, const subtile *h, val address, val ld, val batch_stride)
{
    val start = address;
    if (k->cfg->batched) {
        val elements = mul(convert(I64, h->at.batch), batch_stride);
        start = add(address, convert(U64, mul(elements, imm((int)ckl_dtype_bytes(k->epilogue.d)))));
    }
    return gmem_tensor(start, k->epilogue.d, make_layout(shape(rows_of_D(k), cols_of_D(k)), stride(ld, 1))); // (M,N)
}

/*
 * A staging buffer to D element by element, where it reaches past a ragged end of the rows: a TMA store would write whole
 * 16-byte chunks there.
 */
static void store_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    const element_steps s = steps_of(k, h);
    tensor gD = matrix_of(k, h, k->p.d, k->p.ldd, k->p.d_batch); // (M,N)
    LOOP(e, imm(s.count)) {
        tensor cStep = partition_S(&s.each, local_tile(s.cD, s.step, coord(e, 0)), c->tid);  // (1,STEPS,1)
        tensor sStep = partition_S(&s.each, local_tile(h->sD, s.step, coord(e, 0)), c->tid); // (1,STEPS,1)
        tensor rStep = fragment_like(cStep, k->epilogue.d);                                  // (1,STEPS,1)
        copy_tiled(&s.each, sStep, rStep);
        copy_if(&s.each, cStep, s.all, rStep, tensor_at_coordinates(gD, cStep), 0);
    }
}

/* C to a staging buffer, the same way. */
static void load_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    const element_steps s = steps_of(k, h);
    tensor gC = matrix_of(k, h, k->p.c, k->p.ldc, k->p.c_batch); // (M,N)
    LOOP(e, imm(s.count)) {
        tensor cStep = partition_S(&s.each, local_tile(s.cD, s.step, coord(e, 0)), c->tid);  // (1,STEPS,1)
        tensor sStep = partition_D(&s.each, local_tile(h->sD, s.step, coord(e, 0)), c->tid); // (1,STEPS,1)
        tensor rStep = fragment_like(cStep, k->epilogue.d);                                  // (1,STEPS,1)
        copy_if(&s.each, cStep, s.all, tensor_at_coordinates(gC, cStep), rStep, 0);
        copy_tiled(&s.each, rStep, sStep);
    }
    named_sync(c->barrier, WARPGROUP);
}

static void load_box(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    val barrier = add(smem_address(k->c_barriers), mul(c->index, imm(8)));
    IF(c->first_thread) {
        mbarrier_expect(barrier, imm((int)tma_bytes(&k->tmaC)));
        tma_load_of(&k->tmaC, h->sD, h->at.row, h->at.col, k->cfg->batched != 0, &h->at.batch, barrier, imm(0));
    }
    mbarrier_wait(barrier, c->c_parity);
}

/* C into the staging buffer, then to registers in the order of the accumulators. beta = 0 leaves zeros. */
static tensor load_C(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    int bytes = (int)ckl_dtype_bytes(k->epilogue.d);
    tensor rC = fragment_like(h->acc, F32);
    tensor tCsC = partition_C(&h->mma, h->sAcc, c->tid); // (MMA,1,1)
    fill(rC, immf(0));
    IF(ne(k->p.beta, immf(0))) {
        (k->cfg->ragged == GEMM_ALL_RAGGED ? load_elements : load_box)(k, c, h);
        copy(tCsC, rC, k->cfg->swap ? bytes : 2 * bytes);
    }
    return rC;
}

/* Where this thread's elements are among the accumulators of a subtile. */
static tensor coordinates_of_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    int columns = k->cfg->swap ? k->size.d_rows : k->size.d_cols;
    return partition_C(&h->mma, identity_tensor(shape(64, columns)), c->tid); // (MMA,1,1)
}

/* The bias of this thread's columns of a subtile: a pair in every group of 8 columns; with swap=1 of its two rows, 8 apart. */
static tensor read_bias(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    tensor cD = coordinates_of_subtile(k, c, h);
    bool swap = k->cfg->swap;
    int count = swap ? 1 : k->size.d_cols / 8;
    tensor columns = slice(c->sBias, add(coordinate(cD, swap ? 0 : 1, 0), imm(swap ? h->rows : h->cols)));
    columns.layout = make_layout(shape(2, count), swap ? stride(8, 1) : stride(1, 8));
    tensor rBias = fragment(F32, compact(shape(2, count))); // (2,COLS/8)
    copy(columns, rBias, swap ? 4 : 8);
    return rBias;
}

static void finish_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, tensor rC)
{
    const bool swap = k->cfg->swap;
    layout along = coordinate_distances(coordinates_of_subtile(k, c, h), swap ? 0 : 1); // from the thread's first
    gemm_scalars scalars = { k->p.alpha, k->p.beta };
    tensor rBias = { 0 };
    if (k->epilogue.bias)
        rBias = read_bias(k, c, h);
    tensor rD = fragment_like(h->acc, F32);
    for (int i = 0; i < static_size(rD.layout) && !ir_failed(); i++) {
        int64_t j = index_at(along, i);
        int_tuple place = swap ? coord(j / 8, 0) : coord(j % 8, j / 8);
        val bias = k->epilogue.bias ? at(rBias, place) : immf(0);
        set(rD, i, gemm_finish(k->epilogue, scalars, at_f32(h->acc, i), k->epilogue.c ? at(rC, i) : immf(0), bias));
    }
    if (ckl_dtype_bytes(k->epilogue.d) == 2)
        stmatrix_C(&h->mma, rD, h->sAcc, c->tid);
    else
        copy(rD, partition_C(&h->mma, h->sAcc, c->tid), swap ? 4 : 8);
}

/* Registers -> staging buffer -> TMA store of one subtile. */
static void store_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    const int ragged = k->cfg->ragged;
    tensor rC = { 0 };
    staged_store staged = { c->barrier, WARPGROUP, c->first_thread };
    staging_wait(&staged, h->stores_pending);
    if (k->epilogue.c)
        rC = load_C(k, c, h);
    finish_subtile(k, c, h, rC);
    if (ragged == GEMM_ALL_RAGGED) {
        named_sync(c->barrier, WARPGROUP);
        store_elements(k, c, h);
        return;
    }
    val inside = ragged ? ge(cols_of_D(k), add(h->at.col, imm(k->size.d_cols))) : yes();
    STAGED_STORE(&staged) // an empty one too: the buffers are counted by stores
        IF(inside)
            tma_store_of(&k->tmaD, h->sD, h->at.row, h->at.col, k->cfg->batched != 0, &h->at.batch);
    if (ragged)
        IF(logical_not(inside))
            store_elements(k, c, h);
}

/* A tile with rows and columns in each other's place. */
static tensor transposed(tensor t)
{
    layout plain = without_swizzle(t.layout);
    layout modes[] = { layout_mode(plain, 1), layout_mode(plain, 0) };
    return tensor_with_layout(t, with_swizzle(t.layout.sw, layouts_of(2, modes)));
}

static void place_subtile(const sm90_kernel *k, const tile_place *tile, subtile *h)
{
    val row = add(tile->row, imm(h->rows)), col = add(tile->col, imm(h->cols));
    h->at = (tile_place){ k->cfg->swap ? col : row, k->cfg->swap ? row : col, tile->batch };
}

void gemm_sm90_epilogue(const sm90_kernel *k, const consumer_role *c, const tile_place *tile, const val bias[BIAS_MAX])
{
    const gemm_sm90_config *cfg = k->cfg;
    const gemm_sm90_shape *s = &k->size;
    const int width = cfg->swap ? s->d_rows : s->d_cols, columns = s->columns / width;
    subtile h = { .mma = gemm_sm90_mma(k->epilogue.ab, width) };
    int count = s->consumer_rows / 64 * columns;
    if (k->epilogue.bias)
        share_bias(k, c, bias);
    for (int i = 0; i < count && !ir_failed(); i++) {
        h.rows = i / columns * 64;
        h.cols = i % columns * width;
        h.stores_pending = i == 0 && count % cfg->buffers ? 0 : cfg->buffers - 1;
        h.acc = slice(accumulator_columns(c->acc, h.cols, width), _, i / columns, _);
        h.sD = slice(c->sD, _, _, i % cfg->buffers);
        h.sAcc = cfg->swap ? transposed(h.sD) : h.sD;
        place_subtile(k, tile, &h);
        store_subtile(k, c, &h);
        if (k->epilogue.c)
            assign(c->c_parity, bit_xor(c->c_parity, imm(1)));
    }
}
