/*
 * transpose_sm90.c - one CTA a tile: TMA brings it into swizzled shared memory as boxes of 128-byte rows, the warps
 * write its transpose into a second set of boxes, TMA stores these. Nothing meets a bank conflict, and global memory
 * sees whole lines on both sides. Several CTAs an SM keep loads in flight.
 *
 *   2 bytes      ldmatrix transposes 8x8 elements on the way to registers, stmatrix writes them as rows of y
 *   1 byte       the same with 8x8 pairs of elements; byte permutes weave the pairs of two matrices
 *   4, 8 bytes   a lane reads along a diagonal of its row, so that 32 lanes meet 32 banks when reading and when writing
 *
 * Lanes are computed by hand: diagonals and woven rows are an exclusive or of two coordinates, which no layout has, and
 * the values of a lane that ldmatrix loads lie 8 rows apart, which no product of threads and values gives.
 */
#include "operators/permute/transpose_plan.h"

FIELD_STRUCT(transpose_sm90_config, TRANSPOSE_TILE_FIELDS);

enum {
    BOX_BYTES = 128, // of a row of a box: the widest swizzle of TMA
    CHUNK_BYTES = 16,
    WARP_ROWS = 32,
    BLOCKS_AT_ONCE = 8, // of a warp: 32 registers a thread
    BARRIER_BYTES = 8,
};

/* What the phases share. A tile is (R,C); its boxes: (R,SPAN,BOXES) of x, (C,SPAN,BOXES) of y. */
typedef struct sm90 {
    const transpose_sm90_config *cfg;
    ckl_dtype type;
    int span; // elements of a row of a box
    tma_copy tmaX, tmaY;
    tensor sX, sY;
    pipeline arrival; // of x, a single stage
    transpose_tile tile;
} sm90;

static int64_t smem_bytes_of(const transpose_sm90_config *c)
{
    return 2 * (int64_t)c->tile_r * c->tile_c * c->bytes + 2 * BARRIER_BYTES;
}

/* (ROWS,SPAN,BOXES) as TMA writes it. */
static tensor boxes(const sm90 *k, const char *name, int rows, int count)
{
    layout box = tma_tile_layout(k->type, rows, k->span, BOX_BYTES);
    layout plain = make_layout(shape(rows, k->span, count), stride(k->span, 1, (int64_t)rows * k->span));
    return smem_tensor(name, k->type, with_swizzle(box.sw, plain), 1024);
}

/* One thread sets the barrier up and starts the loads. */
static void load_tile(const sm90 *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    pipeline_state start = producer_state(&k->arrival);
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->tmaX);
        tma_prefetch(&k->tmaY);
        pipeline_init(&k->arrival);
        fence_mbarrier_init();
        grid_wait(); // what is above overlaps the end of the kernel before; this thread alone touches global memory
        pipeline_expect(&k->arrival, &start, imm(cfg->tile_r * cfg->tile_c * cfg->bytes));
        for (int b = 0; b < cfg->tile_c / k->span; b++)
            tma_load_of(&k->tmaX, slice(k->sX, _, _, b), k->tile.row, add(k->tile.col, imm(b * k->span)), cfg->outer,
                        k->tile.outer, pipeline_full_barrier(&k->arrival, &start), imm(0));
    }
    launch_dependents();
}

static void store_tile(const sm90 *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    staged_store staged = { imm(0), PERMUTE_THREADS, eq(thread(), imm(0)) };
    LAST_STAGED_STORE(&staged)
        for (int b = 0; b < cfg->tile_r / k->span; b++)
            tma_store_of(&k->tmaY, slice(k->sY, _, _, b), k->tile.col, add(k->tile.row, imm(b * k->span)), cfg->outer,
                         k->tile.outer);
}

/* The shared address of an element of a tile of boxes. */
static val element_address(const sm90 *k, tensor sBoxes, val row, val col)
{
    val box = div(col, imm(k->span)), in_box = rem(col, imm(k->span));
    return tensor_address(slice(sBoxes, _, _, box), coord(row, in_box));
}

/* What a warp transposes at once: 32 rows of x from r on, a chunk of columns from c on; 16 bytes a thread. */
typedef struct block {
    val r, c;
    tensor rWords; // (4) of u32
} block;

/* 2 bytes: four 8x8 matrices, one below the other. */
static void load_pairs(const sm90 *k, block *p)
{
    ldmatrix_T(element_address(k, k->sX, add(p->r, lane()), p->c), 4, p->rWords.regs);
}

static void store_pairs(const sm90 *k, const block *p)
{
    val column = add(p->c, thread_at(lane(), 0, 8, 4)), row = add(p->r, mul(thread_at(lane(), 1, 8, 4), imm(8)));
    stmatrix(element_address(k, k->sY, column, row), 4, p->rWords.regs);
}

/*
 * 1 byte: matrix 2g+h holds the pairs of columns of 8 of the rows 16g..16g+15. After the transposing load, lane 4p+q
 * has in matrices 2g and 2g+1 the columns 2p and 2p+1 of rows 16g+4q .. 16g+4q+3, that is two words of y. NOTE: which
 * of the two matrices has the upper rows changes at q = 2, and which word comes first in y at p = 4, because rows whose
 * numbers agree mod 8 share their banks.
 */
static void load_bytes(const sm90 *k, block *p)
{
    val matrix = thread_at(lane(), 1, 8, 4), j = thread_at(lane(), 0, 8, 4); // this lane gives the address of row j
    val group = mul(div(matrix, imm(2)), imm(16)), upper = bit_xor(rem(matrix, imm(2)), div(j, imm(4)));
    val in_group = add(mul(div(j, imm(2)), imm(4)), add(mul(upper, imm(2)), rem(j, imm(2))));
    ldmatrix_T(element_address(k, k->sX, add(p->r, add(group, in_group)), p->c), 4, p->rWords.regs);
}

static void store_bytes(const sm90 *k, const block *p)
{
    val upper_first = ge(thread_at(lane(), 0, 4, 8), imm(2)), odd_first = ge(lane(), imm(16));
    val even = select(upper_first, imm_as(U32, 0x2064), imm_as(U32, 0x6420)); // bytes of the two matrices: column 2p
    val odd = select(upper_first, imm_as(U32, 0x3175), imm_as(U32, 0x7531));  // column 2p+1
    val first = select(odd_first, odd, even), second = select(odd_first, even, odd), words[4];
    for (int g = 0; g < 4; g += 2) {
        words[g] = permute_bytes(p->rWords.regs[g], p->rWords.regs[g + 1], first);
        words[g + 1] = permute_bytes(p->rWords.regs[g], p->rWords.regs[g + 1], second);
    }
    val matrix = thread_at(lane(), 1, 8, 4), j = thread_at(lane(), 0, 8, 4); // this lane gives the address of row j
    val column = add(mul(j, imm(2)), bit_xor(rem(matrix, imm(2)), div(j, imm(4))));
    val row = mul(div(matrix, imm(2)), imm(16));
    stmatrix(element_address(k, k->sY, add(p->c, column), add(p->r, row)), 4, words);
}

/*
 * 4 and 8 bytes: lane l owns row r+l and takes the columns of the chunk in the order i ^ (l / 8). The swizzle keeps 8
 * neighbouring lanes apart, this order the groups of 8. Changing bits of a column changes bits of an address, so that
 * the other elements follow from the first by an exclusive or.
 */
static val first_column(const sm90 *k, const block *p)
{
    return add(p->c, rem(thread_at(lane(), 1, 8, 4), imm(CHUNK_BYTES / k->cfg->bytes)));
}

static void load_words(const sm90 *k, block *p)
{
    int bytes = k->cfg->bytes;
    val from = element_address(k, k->sX, add(p->r, lane()), first_column(k, p));
    for (int i = 0; i < CHUNK_BYTES / bytes; i++)
        p->rWords.regs[i] = at(smem_view(bit_xor(from, imm(i * bytes)), k->type, compact(leaf(1))), 0);
}

static void store_words(const sm90 *k, const block *p)
{
    int next = BOX_BYTES + CHUNK_BYTES; // the row below, where the swizzle has moved on by a chunk
    val to = element_address(k, k->sY, first_column(k, p), add(p->r, lane()));
    for (int i = 0; i < CHUNK_BYTES / k->cfg->bytes; i++)
        set(smem_view(bit_xor(to, imm(i * next)), k->type, compact(leaf(1))), 0, p->rWords.regs[i]);
}

static const struct {
    void (*load)(const sm90 *k, block *p);
    void (*store)(const sm90 *k, const block *p);
} ways[] = {
    [1] = { load_bytes, store_bytes },
    [2] = { load_pairs, store_pairs },
    [4] = { load_words, store_words },
    [8] = { load_words, store_words },
};

/* The warps share the tile; each has a few blocks in registers, so that loads need not wait for stores. */
static void transpose_blocks(const sm90 *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    int columns = CHUNK_BYTES / cfg->bytes, across = cfg->tile_c / columns;
    int count = cfg->tile_r / WARP_ROWS * across, warps = PERMUTE_THREADS / 32;
    for (int first = 0; first < count; first += warps * BLOCKS_AT_ONCE) {
        block blocks[BLOCKS_AT_ONCE];
        int here = (int)min_i64(BLOCKS_AT_ONCE, (count - first) / warps);
        for (int i = 0; i < here; i++) {
            val number = add(warp(), imm(first + i * warps));
            blocks[i].r = mul(div(number, imm(across)), imm(WARP_ROWS));
            blocks[i].c = mul(rem(number, imm(across)), imm(columns));
            blocks[i].rWords = fragment(U32, compact(leaf(4)));
            ways[cfg->bytes].load(k, &blocks[i]);
        }
        for (int i = 0; i < here; i++)
            ways[cfg->bytes].store(k, &blocks[i]);
    }
}

static void transpose_by_tma(const transpose_sm90_config *cfg)
{
    launch_bounds(PERMUTE_THREADS, 0);
    transpose_values p = params_of(transpose);
    sm90 k = { .cfg = cfg, .type = transpose_type(cfg->bytes), .span = BOX_BYTES / cfg->bytes };
    k.tmaX = make_tma(p.tX, k.type, 2 + cfg->outer, cfg->tile_r, k.span, BOX_BYTES);
    k.tmaY = make_tma(p.tY, k.type, 2 + cfg->outer, cfg->tile_c, k.span, BOX_BYTES);
    k.tile = (cfg->prefetch ? transpose_tile_by_address : transpose_tile_by_coordinates)(&p, cfg->outer, cfg->tile_r,
                                                                                         cfg->tile_c, cfg->across);
    k.sX = boxes(&k, "x", cfg->tile_r, cfg->tile_c / k.span); // (R,SPAN,BOXES)
    k.sY = boxes(&k, "y", cfg->tile_c, cfg->tile_r / k.span); // (C,SPAN,BOXES)
    k.arrival = make_pipeline("arrival", 1, 1, 1);

    if (cfg->prefetch)
        transpose_prefetch(&k.tile, cfg->tile_r, cfg->tile_c, cfg->bytes);
    load_tile(&k);
    cta_sync(); // the barrier is set up
    pipeline_state first = consumer_state(&k.arrival);
    pipeline_wait_full(&k.arrival, &first);
    transpose_blocks(&k);
    store_tile(&k);
}

static transpose_sm80_config unaligned_config(const transpose_sm90_config *c)
{
    return (transpose_sm80_config){ .bytes = c->bytes,
                                    .outer = c->outer,
                                    .tile_r = c->tile_r,
                                    .tile_c = c->tile_c,
                                    .align = 32,
                                    .lanes = c->bytes == 1 ? 8 : 32 };
}

static void transpose_sm90(const void *config, int kernel)
{
    transpose_sm80_config unaligned = unaligned_config(config);
    if (kernel == 0)
        transpose_by_tma(config);
    else
        transpose_sm80(&unaligned, 0);
}

/* Choice, limits and launch */

enum { TMA_ALIGNMENT = 16, WORD_BYTES = 4 };

/* The least side of a tile: a box, and what a warp turns at once. So all warps have as many blocks of a tile. */
static int side_min(int bytes)
{
    return (int)max_i64(WARP_ROWS, BOX_BYTES / bytes);
}

/* Tiles of 16 KB with rows of 128 bytes or more on both sides; small problems get smaller ones to fill the GPU. */
static int choose_box(const permutation *p, const ckl_device_info *device)
{
    int tile = p->bytes == 1 ? 128 : p->bytes == 8 ? 32 : 64;
    if (transpose_tiles(p, tile, tile) < device->sm_count)
        tile /= 2;
    return (int)max_i64(tile, side_min(p->bytes));
}

/*
 * Rows of a tile: more where rows of y begin inside a sector, so that fewer of their cuts are inside one, up to 32 KB,
 * of which three CTAs fit an SM. 5144x12288 bf16 takes 77.6 us by 64 rows, 71.9 by 128, 66.8 by 256. Not where tiles
 * are few, or much of a taller one is empty, unless it holds whole rows of y: 88 rows by 262144 eight times take 247 us
 * by 64 and 192 by 128.
 */
static int choose_height(const permutation *p, const ckl_device_info *device, int tile)
{
    enum { SECTOR_BYTES = 32, TILE_BYTES = 32 << 10, ROWS_MAX = 256, TILES_OF_SM = 8, IDLE = 8 };
    const permute_matrix *m = &p->matrix;
    int rows = tile;
    while (m->ldy * p->bytes % SECTOR_BYTES && rows < min_i64(m->rows, ROWS_MAX) &&
           2 * rows * tile * p->bytes <= TILE_BYTES &&
           (m->rows <= 2 * rows || IDLE * round_up(m->rows, 2 * rows) <= (IDLE + 1) * m->rows) &&
           transpose_tiles(p, 2 * rows, tile) >= TILES_OF_SM * (int64_t)device->sm_count)
        rows *= 2;
    return rows;
}

static ckl_status choose_sm90(const void *problem, const ckl_device_info *device, void *config)
{
    enum { SHORT_ELEMENTS_SIDE_MIN = 64 }; // bytes of a side: gather turns squares of short elements
    // two turns of CTAs, of which the first loads while nobody stores: 864x4736 f32 takes 10.3 us by 64 columns, 9.3 by
    // 32
    enum { TILES_OF_SM = 16 };
    const permutation *p = problem;
    transpose_sm90_config *c = config;
    TRY(transpose_check_sides(p, "sm90", p->bytes < WORD_BYTES ? SHORT_ELEMENTS_SIDE_MIN : TRANSPOSE_SIDE_BYTES_MIN));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    const int tile = choose_box(p, device), least = side_min(p->bytes);
    c->tile_r = choose_height(p, device, tile);
    const bool few = transpose_tiles(p, c->tile_r, tile) < TILES_OF_SM * (int64_t)device->sm_count;
    c->tile_c = few || p->matrix.cols <= least ? least : tile;
    c->across = transpose_goes_across(p, c->tile_c, device);
    c->prefetch = permute_pays_prefetch(transpose_tiles(p, c->tile_r, c->tile_c), device);
    return CKL_OK;
}

static ckl_status check_distance(const permutation *p, const char *name, int64_t elements)
{
    if (elements == 0 || elements * p->bytes % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED, "%s sm90: %s=%" PRId64 " elements of %d bytes are not a positive multiple of 16 bytes",
             p->op, name, elements, p->bytes);
    return CKL_OK;
}

/*
 * Tensor maps want every distance in multiples of 16 bytes, and TMA stores write whole chunks of 16 bytes of rows of y.
 */
static ckl_status check_distances(const permutation *p)
{
    const permute_matrix *m = &p->matrix;
    TRY(check_distance(p, "rows", m->rows));
    TRY(check_distance(p, "ldx", m->ldx));
    TRY(check_distance(p, "ldy", m->ldy));
    for (int i = 0; i < m->outer_count; i++) {
        TRY(check_distance(p, "stride_x", m->outer[i].x));
        TRY(check_distance(p, "stride_y", m->outer[i].y));
    }
    return CKL_OK;
}

static ckl_status admit_sm90(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_sm90_config *c = config;
    TRY(transpose_check_tiles(p, "sm90", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(transpose_check_power(p, "sm90", "tile_r", c->tile_r, side_min(p->bytes), 256));
    TRY(transpose_check_power(p, "sm90", "tile_c", c->tile_c, side_min(p->bytes), 256));
    TRY(transpose_check_memory(p, "sm90", smem_bytes_of(c), device));
    return check_distances(p);
}

static plan_cost cost_sm90(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { BYTES_A_CYCLE = 5, NO_REDUCTION = 1900 }; // of a tile: TMA moves all of it, inside the matrix or not
    static const double of_bytes[] = { [1] = 24, [2] = 16, [4] = 16, [8] = 16 };
    const transpose_sm90_config *c = config;
    const transpose_tiling t = { .rows = c->tile_r,
                                 .cols = c->tile_c,
                                 .threads = PERMUTE_THREADS,
                                 .smem_bytes = smem_bytes_of(c),
                                 .rate = 0.94,
                                 .wait = (double)c->tile_r * c->tile_c * c->bytes / BYTES_A_CYCLE - NO_REDUCTION -
                                         (c->prefetch ? TRANSPOSE_EARLIER : 0),
                                 .of_bytes = of_bytes[c->bytes],
                                 .cut_x = true,
                                 .cut_y = true };
    return transpose_tiling_cost(problem, &t, device);
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm90_config *c = plan->config;
    const permute_pointers *a = args;
    const int kernel = PLAN_ALIGNED(TMA_ALIGNMENT, a->x, a->y) ? 0 : 1; // of the same tiles
    return transpose_launch(plan, kernel, args, c->tile_r, c->tile_c, stream);
}

static const field sm90_fields[] = { TRANSPOSE_TILE_FIELDS(FIELD_ROW, transpose_sm90_config) };

const implementation transpose_sm90_implementation = {
    IMPLEMENTATION_PARTS(transpose, sm90),
    .summary = "swizzled tiles by TMA in and out, transposed between them without bank conflicts; Hopper",
    .cost = cost_sm90,
    .rivals = { &transpose_narrow_implementation, &permute_boxes_implementation },
    .kernels = 2,
    .params = &transpose_param_list,
    .target = IR_SM90A,
};
