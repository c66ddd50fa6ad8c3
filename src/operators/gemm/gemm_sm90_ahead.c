/*
 * gemm_sm90_ahead.c - boxes of C or X are loaded into a consumer's staging buffers while it finishes others; D is
 * stored from the same ones.
 *
 * The buffers are a ring over the boxes of all its tiles. When the store of box i is issued, that of box i-1 has mostly
 * been read, and the next box is loaded into its buffer: so all buffers but one are in flight, even during the
 * mainloop. With one box at a time 16640x384x32 with C in f32 moved 1.4 TB/s.
 *
 *   C arrived, X arrived   for each buffer: 1 arrival and the bytes of a box; the consumer's threads wait
 */
#include "operators/gemm/gemm_sm90.h"

int gemm_sm90_boxes(const sm90_kernel *k)
{
    const gemm_sm90_shape *s = &k->size;
    return s->consumer_rows / 64 * (int)ceil_div(s->columns, s->subtile);
}

void gemm_sm90_place_box(const sm90_kernel *k, const tile_place *tile, int i, subtile *box)
{
    const gemm_sm90_shape *s = &k->size;
    const int across = (int)ceil_div(s->columns, s->subtile);
    box->rows = i / across * 64;
    box->cols = (int)min_i64(i % across * s->subtile, s->columns - s->subtile);
    val row = add(tile->row, imm(box->rows)), col = add(tile->col, imm(box->cols));
    box->at = *tile;
    box->at.row = k->cfg->swap ? col : row;
    box->at.col = k->cfg->swap ? row : col;
}

output_matrix gemm_sm90_matrix(const sm90_kernel *k, char name)
{
    const gemm_sm90_values *p = &k->p;
    return name == 'c'   ? (output_matrix){ &k->tmaC, p->c, p->ldc, p->c_batch, k->c_barriers }
           : name == 'd' ? (output_matrix){ &k->tmaD, p->d, p->ldd, p->d_batch, 0 }
                         : (output_matrix){ &k->tmaX, p->x, p->ldx, p->x_batch, k->x_barriers };
}

outer_coordinates gemm_sm90_outer_of(const sm90_kernel *k, const subtile *h, const output_matrix *x)
{
    return gemm_sm90_outer(k, k->epilogue.pointers ? GEMM_MAP_RANK - 2 : k->cfg->batched != 0, x->address, h->at.batch);
}

static output_matrix matrix_ahead(const sm90_kernel *k)
{
    return gemm_sm90_matrix(k, k->epilogue.c ? 'c' : 'x');
}

/* Is anything loaded? Where beta is 0, C is not. */
static val is_loaded(const sm90_kernel *k, const consumer_role *c)
{
    return k->epilogue.c ? ne(c->scalars.beta, immf(0)) : yes();
}

static val arrival(const sm90_kernel *k, const consumer_role *c, val buffer)
{
    val first = mul(c->index, imm(8 * k->cfg->buffers));
    return add(add(smem_address(matrix_ahead(k).barriers), first), mul(buffer, imm(8)));
}

/* Loads box i, counted from the first of a tile, into a free buffer; for one thread. */
static void load_box(const sm90_kernel *k, const consumer_role *c, const tile_place *tile, int i, val buffer)
{
    const output_matrix from = matrix_ahead(k);
    const int boxes = gemm_sm90_boxes(k), tiles = i / boxes;
    val number = add(tile->number, mul(c->tile_step, imm(tiles)));
    IF(tiles ? lt(number, k->count) : yes()) {
        const tile_place later = tiles ? gemm_sm90_own_tile(k, c, number) : *tile;
        subtile box = { 0 };
        gemm_sm90_place_box(k, &later, i % boxes, &box);
        const outer_coordinates outer = gemm_sm90_outer_of(k, &box, &from);
        val barrier = arrival(k, c, buffer);
        mbarrier_expect(barrier, imm((int)tma_bytes(from.tma)));
        tma_load_of(from.tma, slice(c->sD, _, _, buffer), box.at.row, box.at.col, outer.count, outer.at, barrier,
                    imm(0));
    }
}

void gemm_sm90_begin_ahead(const sm90_kernel *k, const consumer_role *c, val first_tile)
{
    val starts = logical_and(logical_and(c->first_thread, is_loaded(k, c)), lt(first_tile, k->count));
    if (k->cfg->split > 1)
        starts = logical_and(starts, lt(k->rank_k, imm(k->size.finishers)));
    IF(starts) {
        const tile_place tile = gemm_sm90_own_tile(k, c, first_tile);
        for (int i = 0; i < k->cfg->buffers - 1; i++)
            load_box(k, c, &tile, i, imm(i));
    }
}

void gemm_sm90_take_ahead(const sm90_kernel *k, const consumer_role *c, subtile *box)
{
    const staged_store staged = { c->barrier, WARPGROUP, c->first_thread };
    box->sD = slice(c->sD, _, _, c->buffer.stage);
    box->sAcc = k->cfg->swap ? gemm_sm90_transposed(box->sD) : box->sD;
    if (!k->epilogue.c) {
        mbarrier_wait(arrival(k, c, c->buffer.stage), c->buffer.parity);
        return;
    }
    IF(is_loaded(k, c)) {
        mbarrier_wait(arrival(k, c, c->buffer.stage), c->buffer.parity);
    }
    ELSE staging_wait(&staged, k->cfg->buffers - 1);
}

void gemm_sm90_next_ahead(const sm90_kernel *k, consumer_role *c, const tile_place *tile, int i)
{
    const int buffers = k->cfg->buffers;
    IF(logical_and(c->first_thread, is_loaded(k, c))) {
        val before = select(eq(c->buffer.stage, imm(0)), imm(buffers - 1), sub(c->buffer.stage, imm(1)));
        tma_store_wait_read(1);
        load_box(k, c, tile, i - 1 + buffers, before);
    }
    pipeline_advance(&c->buffer);
}
