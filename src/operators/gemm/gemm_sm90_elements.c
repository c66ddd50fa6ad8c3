/*
 * gemm_sm90_elements.c - what TMA cannot copy goes between a staging buffer and C, D or X element by element: rows that
 * start or end anywhere, that a list names, or beyond which others write.
 */
#include "operators/gemm/gemm_sm90.h"

enum { ELEMENTS_AT_ONCE = 4 }; // of a thread, where D is stored by elements

static bool in_whole_rows(const sm90_kernel *k)
{
    return k->size.row_cols > k->size.d_cols;
}

bool gemm_sm90_loads_rows(const sm90_kernel *k)
{
    return in_whole_rows(k) && k->epilogue.c;
}

/* A staging buffer in steps that the threads copy by vectors; coordinates are those in D. */
typedef struct element_steps {
    tiled_copy each;
    tensor cD; // (ROWS,COLS)
    int_tuple step, all;
    int count;
} element_steps;

static element_steps steps_of(const sm90_kernel *k, const subtile *h, bool async)
{
    enum { LONGEST = 8 }; // a buffer of 16 rows has too few longer vectors
    const int widest = 16 / (int)ckl_dtype_bytes(k->epilogue.d);
    const int vec = k->cfg->ragged && !k->cfg->row_vectors ? 1 : widest < LONGEST ? widest : LONGEST;
    int across = WARPGROUP;
    while (k->size.row_cols / vec % across)
        across /= 2;
    const int down = WARPGROUP / across;
    const bool listed = k->epilogue.scatter; // such rows have addresses of their own
    const int at_once = k->cfg->ragged && !listed ? ELEMENTS_AT_ONCE : 1;
    layout threads = compact_right(shape(down, across));
    tensor cD = coordinates_from(identity_tensor(shape(k->size.d_rows, k->size.row_cols)), 0, h->at.row); // (ROWS,COLS)
    return (element_steps){
        .each = make_tiled_copy(!async     ? universal_copy(k->epilogue.d, vec)
                                : vec == 1 ? "SM80_CP_ASYNC_CACHEALWAYS<32>"
                                           : "SM80_CP_ASYNC_CACHEGLOBAL<128>",
                                k->epilogue.d, threads, compact(shape(1, vec))),
        .cD = coordinates_from(cD, 1, h->at.col),
        .step = shape(at_once * down, k->size.row_cols),
        .all = shape(gemm_sm90_last_row(k, h), gemm_sm90_cols_of_D(k)),
        .count = k->size.d_rows / (at_once * down),
    };
}

/* The batch's matrix in global memory. */
static tensor elements_of(const sm90_kernel *k, const subtile *h, const output_matrix *x)
{
    val start = x->address;
    if (k->epilogue.pointers)
        start = gemm_sm90_pointer(k, start, h->at.batch);
    else if (k->cfg->batched)
        start = gmem_address(start, k->epilogue.d, mul(convert(I64, h->at.batch), x->batch_stride));
    return gmem_tensor(start, k->epilogue.d,
                       make_layout(shape(gemm_sm90_rows_of_D(k), gemm_sm90_cols_of_D(k)), stride(x->ld, 1))); // (M,N)
}

/* The elements at a thread's coordinates; where a list names rows, all are of one. */
static tensor elements_at(const sm90_kernel *k, const subtile *h, const output_matrix *x, tensor gX, tensor cStep)
{
    if (k->epilogue.scatter) {
        tensor gList = gmem_vector(k->p.rows_d, I32, gemm_sm90_rows_of_D(k));
        val row = coordinate(cStep, 0, 0), listed = at(gList, min(row, sub(gemm_sm90_last_row(k, h), imm(1))));
        val moved = mul(sub(convert(I64, listed), convert(I64, row)), x->ld);
        gX.address = gmem_address(gX.address, k->epilogue.d, moved);
    }
    return tensor_at_coordinates(gX, cStep);
}

void gemm_sm90_copy_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *x,
                             element_way way)
{
    const element_steps s = steps_of(k, h, way == ELEMENTS_BY_CP_ASYNC);
    tensor gX = elements_of(k, h, x); // (M,N)
    LOOP(e, imm(s.count)) {
        tensor cStep = partition_S(&s.each, local_tile(s.cD, s.step, coord(e, 0)), c->tid); // (1,STEPS,1)
        tensor sTile = local_tile(h->sD, s.step, coord(e, 0));
        tensor gStep = elements_at(k, h, x, gX, cStep); // (1,STEPS,1)
        tensor sStep =
            way == ELEMENTS_STORED ? partition_S(&s.each, sTile, c->tid) : partition_D(&s.each, sTile, c->tid);
        tensor rStep = fragment_like(cStep, k->epilogue.d); // (1,STEPS,1)
        if (way == ELEMENTS_BY_CP_ASYNC)
            copy_if(&s.each, cStep, s.all, gStep, sStep, 0);
        else if (way == ELEMENTS_STORED) {
            copy_tiled(&s.each, sStep, rStep);
            copy_if(&s.each, cStep, s.all, rStep, gStep, 0);
        } else {
            copy_if(&s.each, cStep, s.all, gStep, rStep, 0);
            copy_tiled(&s.each, rStep, sStep);
        }
    }
}

/* A consumer's buffers, each a box of the same rows of D, as these rows. */
static tensor rows_of_buffers(tensor sD)
{
    const layout plain = without_swizzle(sD.layout);
    const layout columns[] = { layout_mode(plain, 1), layout_mode(plain, 2) };
    const layout modes[] = { layout_mode(plain, 0), layouts_of(2, columns) };
    return tensor_with_layout(sD, with_swizzle(sD.layout.sw, layouts_of(2, modes))); // (ROWS,(COLS,BUFFERS))
}

/* No barrier: a thread's elements take the places of those that it has stored. */
void gemm_sm90_load_rows(const sm90_kernel *k, const consumer_role *c, const tile_place *at)
{
    const output_matrix C = gemm_sm90_matrix(k, 'c');
    const subtile rows = { .at = *at, .sD = rows_of_buffers(c->sD) };
    IF(ne(c->scalars.beta, immf(0)))
        gemm_sm90_copy_elements(k, c, &rows, &C, ELEMENTS_BY_CP_ASYNC);
    cp_async_commit();
}

void gemm_sm90_store_elements(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *to)
{
    subtile rows = *h;
    if (in_whole_rows(k)) {
        if (h->cols + k->size.d_cols < k->size.row_cols)
            return;
        rows.at.col = sub(h->at.col, imm(h->cols));
        rows.sD = rows_of_buffers(c->sD);
    }
    named_sync(c->barrier, WARPGROUP);
    gemm_sm90_copy_elements(k, c, &rows, to, ELEMENTS_STORED);
}
