/*
 * gemm_sm90_epilogue.c - from accumulators, C and bias to D through staging buffers, a TMA box at a time, so that
 * stores overlap the next box and the next tile. What TMA cannot store goes from the buffer element by element.
 *
 * With swap=1 a tile is one of D^T: it is transposed on its way into the buffers.
 */
#include "operators/gemm/gemm_epilogues.h"
#include "operators/gemm/gemm_sm90.h"

/*
 * Are rows of C and X read element by element? Beyond a group's end others may be writing them; or they start anywhere,
 * or a list names them.
 */
static bool loads_elements(const sm90_kernel *k)
{
    return k->cfg->ragged == GEMM_ALL_RAGGED || k->cfg->groups || k->epilogue.scatter;
}

static ckl_dtype vector_type(const sm90_kernel *k, int v)
{
    return v == GEMM_BIAS ? gemm_bias_type(k->epilogue.d) : F32;
}

/*
 * Where element `index` of a consumer's vector lies in memory, from `start` on; beyond the `count` there are, the last
 * one, which nothing uses. Gated columns have two such stretches, `halves` elements each.
 */
static val place_in_vector(val start, val index, val count, int halves)
{
    const val upper = halves ? ge(index, imm(halves)) : no();
    if (halves)
        index = select(upper, sub(index, imm(halves)), index);
    const val j = add(start, index), inside = min(j, sub(count, imm(1)));
    return halves ? select(upper, add(inside, count), inside) : inside;
}

/*
 * This thread's elements of the vectors; nothing waits for these loads before the epilogue. NOTE: nothing is computed
 * under a condition: ptxas makes selects of those, whose values stay in registers from tile to tile (14 here, and
 * 128x192 with a bias spilled).
 */
epilogue_vectors gemm_sm90_load_vectors(const sm90_kernel *k, const consumer_role *c, const tile_place *at)
{
    const val addresses[] = { [GEMM_BIAS] = k->p.bias,
                              [GEMM_SCALE_OF_A] = k->p.scale_a,
                              [GEMM_SCALE_OF_B] = k->p.scale_b,
                              [GEMM_WEIGHT_OF_ROW] = k->p.row_weights };
    epilogue_vectors all;
    val elements = k->cfg->groups ? mul(convert(I64, at->batch), convert(I64, gemm_sm90_cols_of_D(k))) : imm64(0);
    if (k->epilogue.gated)
        elements = add(elements, elements);
    for (int v = 0; v < GEMM_VECTORS; v++) {
        const bool along_rows = gemm_sm90_along_rows(k->cfg, v);
        const ckl_dtype type = vector_type(k, v);
        val start = along_rows ? at->row : at->col, count = along_rows ? k->p.m : k->p.n;
        val address = addresses[v];
        if (k->size.vectors[v] && k->cfg->groups && along_rows == k->cfg->swap) // a vector of each group
            address = gmem_address(address, type, elements);
        tensor gV = gmem_vector(address, type, count); // (M) or (N), gated (2N)
        for (int i = 0; i * WARPGROUP < k->size.vectors[v]; i++)
            all.loaded[v][i] = at(gV, place_in_vector(start, add(c->tid, imm(i * WARPGROUP)), count,
                                                      k->epilogue.gated && !along_rows ? k->size.columns : 0));
    }
    return all;
}

/*
 * Stores the vectors in shared memory, as f32, to be read after the next barrier: that of a staging buffer, or their
 * own.
 */
static void share_vectors(const sm90_kernel *k, const consumer_role *c, const epilogue_vectors *all)
{
    for (int v = 0; v < GEMM_VECTORS; v++)
        for (int i = 0; i * WARPGROUP < k->size.vectors[v]; i++) {
            val j = add(c->tid, imm(i * WARPGROUP));
            tensor sElement = slice(c->sVectors[v], j);
            val element = convert(F32, all->loaded[v][i]);
            IF((i + 1) * WARPGROUP <= k->size.vectors[v] ? yes() : lt(j, imm(k->size.vectors[v])))
                set(sElement, 0, element);
        }
    bool some = false;
    for (int v = 0; v < GEMM_VECTORS; v++)
        some |= k->size.vectors[v] > 0;
    if (some && gemm_sm90_loads_ahead(k->cfg))
        named_sync(c->barrier, WARPGROUP);
}

static void load_box(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *from)
{
    val barrier = add(smem_address(from->barriers), mul(c->index, imm(8)));
    IF(c->first_thread) {
        const outer_coordinates outer = gemm_sm90_outer_of(k, h, from);
        mbarrier_expect(barrier, imm((int)tma_bytes(from->tma)));
        tma_load_of(from->tma, h->sD, h->at.row, h->at.col, outer.count, outer.at, barrier, imm(0));
    }
    mbarrier_wait(barrier, c->c_parity);
}

/* Loads C or X into the staging buffer, unless it is there, then into registers in the order of the accumulators. */
static void load_matrix(const sm90_kernel *k, const consumer_role *c, const subtile *h, char name, tensor rX)
{
    int bytes = (int)ckl_dtype_bytes(k->epilogue.d);
    const output_matrix from = gemm_sm90_matrix(k, name);
    tensor tCsX = partition_C(&h->mma, h->sAcc, c->tid); // (MMA,1,1)
    if (loads_elements(k) && !gemm_sm90_loads_rows(k)) {
        gemm_sm90_copy_elements(k, c, h, &from, ELEMENTS_LOADED);
        named_sync(c->barrier, WARPGROUP);
    } else if (!loads_elements(k) && (!gemm_sm90_loads_ahead(k->cfg) || (name == 'x' && k->epilogue.c)))
        load_box(k, c, h, &from);
    copy(tCsX, rX, k->cfg->swap ? bytes : 2 * bytes);
}

/* C of a subtile; beta = 0 leaves zeros. */
static tensor load_C(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    tensor rC = fragment_like(h->acc, F32);
    fill(rC, immf(0));
    IF(ne(c->scalars.beta, immf(0)))
        load_matrix(k, c, h, 'c', rC);
    return rC;
}

/* X, through the same buffer: all threads have read C. */
static tensor load_X(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    tensor rX = fragment_like(h->acc, F32);
    if (k->epilogue.c) {
        fence_proxy_async();
        named_sync(c->barrier, WARPGROUP);
    }
    load_matrix(k, c, h, 'x', rX);
    return rX;
}

/* The coordinates of this thread's accumulators in a subtile. */
static tensor coordinates_of_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    return partition_C(&h->mma, identity_tensor(shape(64, k->size.subtile)), c->tid); // (MMA,1,1)
}

/*
 * Is a box of the first tile along the columns? None of its rows begins early, and the last columns are stored twice.
 */
static val is_first(const subtile *h)
{
    return eq(h->at.col, imm(h->cols));
}

/* Do this thread's rows, 8 apart, begin early in a sheared tile? */
static val is_early(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    const val row = coordinate(coordinates_of_subtile(k, c, h), 0, 0);
    return logical_or(ne(bit_and(row, imm(1)), imm(0)), is_first(h));
}

/*
 * This thread's elements of a vector in a subtile: for its two rows, 8 apart, or for a pair of columns in every group
 * of 8. Of gated columns `up` are the last ones.
 */
static tensor read_vector(const sm90_kernel *k, const consumer_role *c, const subtile *h, int v, bool up)
{
    const bool along_rows = gemm_sm90_along_rows(k->cfg, v);
    tensor cD = coordinates_of_subtile(k, c, h);
    int count = along_rows ? 1 : k->size.subtile / 8;
    const int before = along_rows ? h->rows : h->cols + (up ? k->size.columns : 0);
    val first = add(coordinate(cD, along_rows ? 0 : 1, 0), imm(before));
    if (k->size.shear && !along_rows)
        first = add(first, select(is_early(k, c, h), imm_as(U32, 0), imm_as(U32, k->size.shear)));
    tensor mine = slice(c->sVectors[v], first);
    mine.layout = make_layout(shape(2, count), along_rows ? stride(8, 1) : stride(1, 8));
    tensor rV = fragment(F32, compact(shape(2, count))); // (2,COLS/8)
    copy(mine, rV, along_rows ? 4 : 8);
    return rV;
}

/* The vectors of a subtile, by accumulators. */
typedef struct subtile_vectors {
    tensor rV[GEMM_VECTORS], rUp[GEMM_VECTORS]; // up: of the last columns of gated products
    layout along[GEMM_VECTORS];                 // distance of accumulator i from the thread's first, along the vector
    bool along_rows[GEMM_VECTORS];
} subtile_vectors;

static subtile_vectors read_vectors(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    tensor cD = coordinates_of_subtile(k, c, h);
    subtile_vectors all = { 0 };
    for (int v = 0; v < GEMM_VECTORS; v++)
        if (k->size.vectors[v]) {
            all.along_rows[v] = gemm_sm90_along_rows(k->cfg, v);
            all.along[v] = coordinate_distances(cD, all.along_rows[v] ? 0 : 1);
            all.rV[v] = read_vector(k, c, h, v, false);
            if (k->epilogue.gated && !all.along_rows[v])
                all.rUp[v] = read_vector(k, c, h, v, true);
        }
    return all;
}

static val vector_at_element(const sm90_kernel *k, const subtile_vectors *all, int v, int i, bool up)
{
    if (!k->size.vectors[v])
        return immf(0);
    int64_t j = index_at(all->along[v], i);
    return at(up ? all->rUp[v] : all->rV[v], all->along_rows[v] ? coord(j / 8, 0) : coord(j % 8, j / 8));
}

/* The elements of X and D of a subtile, in the order of its accumulators. */
typedef struct subtile_results {
    tensor rX, rD;
} subtile_results;

static subtile_results finish_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, tensor rC,
                                      tensor rX)
{
    const bool backward = gemm_is_backward(k->epilogue.activation);
    if (k->epilogue.d == CKL_I32)
        return (subtile_results){ .rD = h->acc };
    const subtile_vectors vectors = read_vectors(k, c, h);
    const tensor cD = coordinates_of_subtile(k, c, h);
    const bool swap = k->cfg->swap, custom = gemm_epilogue_find(k->epilogue.epilogue);
    const bool placed = custom || k->epilogue.amax;
    const val first = custom && k->cfg->groups ? convert(U32, at(k->sFirst, h->at.batch)) : imm(0); // of the group
    subtile_results out = { .rD = fragment_like(h->acc, F32) };
    if (k->epilogue.preactivation)
        out.rX = fragment_like(h->acc, F32);
    UNROLL(i, static_size(out.rD.layout)) {
        gemm_element in = { .product = at_f32(h->acc, i),
                            .row = placed ? add(h->at.row, coordinate(cD, swap ? 1 : 0, i)) : imm(0),
                            .col = placed ? add(h->at.col, coordinate(cD, swap ? 0 : 1, i)) : imm(0),
                            .up = k->epilogue.gated ? at_f32(h->up, i) : immf(0),
                            .c = k->epilogue.c ? at(rC, i) : immf(0),
                            .bias = vector_at_element(k, &vectors, GEMM_BIAS, i, false),
                            .x = backward ? at(rX, i) : immf(0),
                            .scale_a = vector_at_element(k, &vectors, GEMM_SCALE_OF_A, i, false),
                            .scale_b = vector_at_element(k, &vectors, GEMM_SCALE_OF_B, i, false),
                            .weight = vector_at_element(k, &vectors, GEMM_WEIGHT_OF_ROW, i, false) };
        if (k->epilogue.gated) {
            in.bias_up = vector_at_element(k, &vectors, GEMM_BIAS, i, true);
            in.scale_up = vector_at_element(k, &vectors, GEMM_SCALE_OF_B, i, true);
        }
        in.inside = k->epilogue.amax
                        ? logical_and(lt(in.row, gemm_sm90_last_row(k, h)), lt(in.col, gemm_sm90_cols_of_D(k)))
                        : yes();
        in.row = sub(in.row, first);
        const gemm_finished done = gemm_finish(k->epilogue, c->scalars, in);
        set(out.rD, i, done.d);
        if (k->epilogue.preactivation)
            set(out.rX, i, done.x);
    }
    return out;
}

static void stage_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, tensor rD)
{
    const int bytes = (int)ckl_dtype_bytes(k->epilogue.d);
    if (bytes == 2)
        stmatrix_C(&h->mma, rD, h->sAcc, c->tid);
    else
        copy(rD, partition_C(&h->mma, h->sAcc, c->tid), k->cfg->swap ? bytes : 2 * bytes);
}

/* Both halves of a buffer, each by a map of its rows. */
static void store_sheared(const sm90_kernel *k, const subtile *h)
{
    const int rows = k->size.d_rows / 2;
    const val pair = shift_right(h->at.row, imm(1));
    const int_tuple half = shape(rows, k->size.d_cols);
    const val late = add(h->at.col, select(is_first(h), imm_as(U32, 0), imm_as(U32, k->size.shear)));
    tma_store_of(&k->tmaD, local_tile(h->sD, half, coord(0, 0)), pair, late, 0, NULL);
    tma_store_same(&k->tmaC, local_tile(h->sD, half, coord(1, 0)), pair, h->at.col, 0, NULL);
}

/* Registers -> staging buffer -> TMA store of one subtile of D or X. */
static void send_subtile(const sm90_kernel *k, const consumer_role *c, const subtile *h, const output_matrix *to,
                         tensor rD)
{
    const int ragged = k->cfg->ragged;
    staged_store staged = { c->barrier, WARPGROUP, c->first_thread };
    stage_subtile(k, c, h, rD);
    if (ragged == GEMM_ALL_RAGGED || k->epilogue.scatter) {
        gemm_sm90_store_elements(k, c, h, to);
        return;
    }
    val inside = ragged ? ge(gemm_sm90_cols_of_D(k), add(h->at.col, imm(k->size.d_cols))) : yes();
    if (k->cfg->groups)
        inside = logical_and(inside, ge(h->at.end, add(h->at.row, imm(k->size.d_rows))));
    STAGED_STORE(&staged) // an empty one counts, too: the buffers are counted by stores
        IF(inside) {
            const outer_coordinates outer = gemm_sm90_outer_of(k, h, to);
            if (k->size.shear)
                store_sheared(k, h);
            else if (k->size.within[0] || k->size.within[1])
                tma_store_same(to->tma, h->sD, h->at.row, h->at.col, outer.count, outer.at);
            else
                tma_store_of(to->tma, h->sD, h->at.row, h->at.col, outer.count, outer.at);
        }
    if (ragged || k->cfg->groups)
        IF(logical_not(inside)) // a TMA store would write whole 16 bytes at the end of a row
            gemm_sm90_copy_elements(k, c, h, to, ELEMENTS_STORED);
}

/* A buffer whose first half has every other row, and the second those between. */
static tensor rows_in_turn(tensor sD)
{
    const layout plain = without_swizzle(sD.layout), rows = layout_mode(plain, 0);
    const int64_t half = static_size(rows) / 2, row = index_at(rows, 1);
    const layout modes[] = { make_layout(shape(2, half), stride(half * row, row)), layout_mode(plain, 1) };
    return tensor_with_layout(sD, with_swizzle(sD.layout.sw, layouts_of(2, modes))); // ((2,ROWS/2),COLS)
}

/* The accumulators of a box. */
static tensor sheared_accumulators(const sm90_kernel *k, const consumer_role *c, const subtile *h)
{
    const int width = k->size.subtile;
    const tensor early = slice(accumulator_columns(c->acc, h->cols, width), _, h->rows / 64, _),
                 others = slice(accumulator_columns(c->acc, h->cols + k->size.shear, width), _, h->rows / 64, _);
    const val begins_early = is_early(k, c, h);
    tensor all = fragment_like(early, F32);
    UNROLL(i, static_size(all.layout))
        set(all, i, select(begins_early, at(early, i), at(others, i)));
    return all;
}

/* Takes the staging buffer of store `store` of `count` in a tile, once so few stores are in flight that it is free. */
static void take_buffer(const sm90_kernel *k, const consumer_role *c, subtile *h, int store, int count)
{
    const int buffers = k->cfg->buffers;
    staged_store staged = { c->barrier, WARPGROUP, c->first_thread };
    h->sD = slice(c->sD, _, _, store % buffers);
    h->sAcc = k->cfg->swap ? gemm_sm90_transposed(h->sD) : k->size.shear ? rows_in_turn(h->sD) : h->sD;
    const bool in_turn =
        count % buffers == 0 && !k->cfg->groups; // buffers go round across tiles; groups' last tiles have fewer stores
    staging_wait(&staged, store == 0 && !in_turn ? 0 : buffers - 1);
}

/* Subtile number i of `count`. */
static void store_subtile(const sm90_kernel *k, const consumer_role *c, subtile *h, int i, int count)
{
    const output_matrix D = gemm_sm90_matrix(k, 'd'), X = gemm_sm90_matrix(k, 'x');
    const int stores = k->epilogue.preactivation ? 2 : 1;
    tensor rC = { 0 }, rX = { 0 };
    if (gemm_sm90_loads_ahead(k->cfg))
        gemm_sm90_take_ahead(k, c, h);
    else {
        if (gemm_sm90_loads_rows(k) && h->cols == 0)
            cp_async_wait(0);
        take_buffer(k, c, h, i * stores, count * stores);
    }
    if (k->epilogue.c)
        rC = load_C(k, c, h);
    if (gemm_is_backward(k->epilogue.activation))
        rX = load_X(k, c, h);
    const subtile_results out = finish_subtile(k, c, h, rC, rX);
    if (k->epilogue.preactivation) {
        send_subtile(k, c, h, &X, out.rX);
        take_buffer(k, c, h, i * stores + 1, count * stores);
    }
    send_subtile(k, c, h, &D, out.rD);
}

void gemm_sm90_epilogue(const sm90_kernel *k, consumer_role *c, const tile_place *tile, const epilogue_vectors *vectors)
{
    const gemm_sm90_config *cfg = k->cfg;
    const int width = k->size.subtile, count = gemm_sm90_boxes(k);
    subtile h = { .mma = gemm_sm90_mma(cfg, width) };
    share_vectors(k, c, vectors);
    UNROLL(i, count) {
        gemm_sm90_place_box(k, tile, i, &h);
        h.acc = k->size.shear ? sheared_accumulators(k, c, &h)
                              : slice(accumulator_columns(c->acc, h.cols, width), _, h.rows / 64, _);
        if (k->epilogue.gated)
            h.up = slice(accumulator_columns(c->acc, k->size.columns + h.cols, width), _, h.rows / 64, _);
        if (cfg->groups && !cfg->swap) {
            IF(lt(h.at.row, h.at.end)) // else all that follow are empty, too
                store_subtile(k, c, &h, i, count);
        } else
            store_subtile(k, c, &h, i, count);
        if (gemm_sm90_loads_ahead(cfg))
            gemm_sm90_next_ahead(k, c, tile, i);
        if (gemm_sm90_loads_rows(k) && h.cols + k->size.d_cols == k->size.row_cols && i + 1 < count) {
            gemm_sm90_place_box(k, tile, i + 1, &h);
            gemm_sm90_load_rows(k, c, &h.at);
        }
        if (gemm_reads_matrix(&k->epilogue))
            assign(c->c_parity, bit_xor(c->c_parity, imm(1)));
    }
}
