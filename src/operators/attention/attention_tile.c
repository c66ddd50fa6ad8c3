/* attention_tile.c - the order of tiles, the keys that they see, chunks of columns in shared memory. */
#include "operators/attention/attention_tile.h"

#include "cute/kernel.h"

columns columns_of(int d)
{
    int chunk = d <= 32 ? 32 : 64, used = (d + 15) / 16 * 16;
    return (columns){ chunk, (d + chunk - 1) / chunk, used, used % 64 == 0 ? 64 : used % 32 == 0 ? 32 : 16 };
}

int64_t columns_bytes(columns c, int rows)
{
    return (int64_t)rows * c.chunk * c.chunks * 2;
}

layout chunks_layout(ckl_dtype dtype, columns c, int rows, int chunks, int count, int64_t next)
{
    swizzle sw = tma_tile_layout(dtype, rows, c.chunk, 2 * c.chunk).sw;
    return with_swizzle(sw, make_layout(shape(rows, c.chunk, chunks, count), stride(c.chunk, 1, rows * c.chunk, next)));
}

tensor turned_chunks(tensor sV, columns c, int count, int64_t next)
{
    int rows = (int)static_size(layout_mode(sV.layout, 0));
    layout turned =
        make_layout(shape(shape(c.chunk, c.chunks), rows, count), stride(stride(1, rows * c.chunk), c.chunk, next));
    return tensor_with_layout(sV, with_swizzle(sV.layout.sw, turned));
}

/* How much later than query 0 its key is, i32. */
static val shift_of(const tile_grid *g)
{
    return sub(convert(I32, g->kv), convert(I32, g->q));
}

tile tile_of(const tile_grid *g, val number)
{
    val of_section = mul(g->tiles_m, g->section);
    val first = mul(div(number, of_section), g->section), r = rem(number, of_section);
    val heads = min(g->section, sub(g->all_heads, first)), m = div(r, heads);
    if (g->causal)
        m = sub(sub(g->tiles_m, imm(1)), m);
    tile t = { .row = mul(m, imm(g->rows)), .head = add(first, rem(r, heads)) };
    val end = convert(I32, g->kv);
    if (g->causal)
        end = min(add(add(convert(I32, t.row), imm(g->rows)), shift_of(g)), end);
    end = max(end, imm(1));
    t.blocks = div(add(convert(U32, end), imm(g->keys - 1)), imm(g->keys));
    return t;
}

tile_place place_of(const tile_grid *g, const tile *t, bool of_keys)
{
    val head = rem(t->head, g->heads), batch = div(t->head, g->heads);
    return (tile_place){ of_keys ? div(head, g->group) : head, batch };
}

/* The last key that a query sees, i32. */
static val last_key(const tile_rows *r, val query)
{
    return add(convert(I32, query), shift_of(r->grid));
}

val is_cut(const tile_rows *r, val block)
{
    val end = convert(I32, mul(add(block, imm(1)), imm(r->grid->keys))), past = lt(convert(I32, r->grid->kv), end);
    return r->grid->causal ? logical_or(past, lt(last_key(r, r->row), sub(end, imm(1)))) : past;
}

/* Rows and columns of this thread's scores. */
static tensor coordinates_of(const tile_rows *r)
{
    return partition_C(r->mma, identity_tensor(shape(r->rows, r->grid->keys)), r->tid); // (MMA,MMA_M,MMA_N)
}

void mask_block(const tile_rows *r, val block, tensor scores)
{
    tensor cS = coordinates_of(r);
    val first = add(convert(I32, mul(block, imm(r->grid->keys))), convert(I32, coordinate(cS, 1, 0)));
    val last = sub(sub(convert(I32, r->grid->kv), imm(1)), first),
        ends[ONLINE_ROWS_MAX]; // relative to its first column
    for (int i = 0; i < online_row_count(scores); i++) {
        val row = coordinate(cS, 0, online_row_value(scores, i));
        ends[i] = r->grid->causal ? min(last, sub(last_key(r, add(r->row, row)), first)) : last;
    }
    mask_scores(scores, coordinate_distances(cS, 1), ends);
}

void store_logarithms(const tile_rows *r, const online_rows *rows, val lse, val head)
{
    tensor cS = coordinates_of(r);
    tensor gLse = gmem_tensor(
        lse, F32, make_layout(shape(r->grid->q, r->grid->all_heads), stride(1, convert(I64, r->grid->q)))); // (Q,HEADS)
    for (int i = 0; i < rows->count; i++) {
        val row = add(r->row, coordinate(cS, 0, online_row_value(cS, i)));
        IF(logical_and(eq(rem(lane(), imm(4)), imm(0)), lt(row, r->grid->q)))
            set(gLse, coord(row, head), online_logarithm(rows, i));
    }
}
