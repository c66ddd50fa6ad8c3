/* attention_decode_latent_store.c - partials and results of latent caches, from the registers in which they were summed. */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

/* A row's maximum in bits and sum, with its head's sink, which is one more weight; the factor for O. */
typedef struct row_end {
    val top, sum, factor;
} row_end;

static row_end end_of(const decode_place *place, const online_rows *rows, int r, val in_group)
{
    row_end e = { .top = rows->max[r], .sum = rows->sum[r] };
    val share = immf(1);
    if (place->form.sinks) {
        const val group = imm(place->form.group), head = add(mul(place->kv_head, group), rem(in_group, group));
        tensor gSinks = gmem_vector(place->p.sinks, F32, mul(place->p.kv_heads, group)); // (HEADS)
        const val sink = mul(at(gSinks, head), immf(M_LOG2E)), larger = max(e.top, sink);
        share = exp2_ftz(sub(e.top, larger));
        e.sum = fma(e.sum, share, exp2_ftz(sub(sink, larger)));
        e.top = larger;
    }
    e.factor = select(eq(e.sum, immf(0)), immf(0), mul(share, rcp(e.sum)));
    return e;
}

val attention_decode_latent_row(const latent_part *part, int r)
{
    const tensor cO =
        partition_C(part->mma, identity_tensor(shape(part->rows, part->width)), part->tid); // (MMA,1,MMA_N)
    return coordinate(cO, 0, attention_online_row_value(part->out, r));
}

latent_partial attention_decode_latent_partial_of(const latent_part *part, const decode_sums *sums, val split)
{
    const decode_place *place = part->place;
    const int dv = place->form.dv;
    const int_tuple sizes = shape(part->rows, part->width);
    const decode_partial partial = attention_decode_partial_of(sums, split); // (2,BM), (DV,BM)
    const val rows = sub(imm_as(U32, place->rows_all), mul(place->tile, imm(part->rows)));
    latent_partial p = { .each = make_tiled_copy_C("UniversalCopy<64>", F32, part->mma, part->rows, part->width),
                         .limits = shape(rows, part->width),
                         .states = partial.states };
    tensor gO =
        with_cache(tensor_with_layout(partial.values, make_layout(shape(part->rows, dv), stride(dv, 1))), part->cache);
    p.cO = partition_D(&p.each, identity_tensor(sizes), part->tid);
    p.tOgO = partition_D(&p.each, local_tile(gO, sizes, coord(0, part->index)), part->tid);
    return p;
}

void attention_decode_latent_store_partial(const latent_part *part, const decode_sums *sums, val split)
{
    const latent_partial p = attention_decode_latent_partial_of(part, sums, split);
    copy_if(&p.each, p.cO, p.limits, part->out, p.tOgO, 0);
    IF(eq(part->index, imm(0)))
        for (int r = 0; r < part->online->count; r++) { // all four lanes of a row have it
            const val row = attention_decode_latent_row(part, r);
            set(p.states, coord(0, row), part->online->max[r]);
            set(p.states, coord(1, row), part->online->sum[r]);
        }
}

void attention_decode_latent_store(const latent_part *part)
{
    const decode_place *place = part->place;
    const online_rows *rows = part->online;
    const tensor out = part->out;
    const ckl_dtype dtype = place->form.dtype;
    const tensor all = coordinates_from(identity_tensor(shape(part->rows, part->width)), 1,
                                        mul(part->index, imm(part->width))),
                 cO = partition_C(part->mma, all, part->tid); // (MMA,1,MMA_N)
    const val has_lse = logical_and(eq(part->index, imm(0)), eq(thread_at(lane(), 0, 4, 8), imm(0)));
    for (int r = 0; r < rows->count; r++) {
        const val row = coordinate(cO, 0, attention_online_row_value(out, r)),
                  in_group = add(row, mul(place->tile, imm(place->rows)));
        IF(lt(in_group, imm(place->rows_all))) {
            const row_end e = end_of(place, rows, r, in_group);
            tensor gRow = attention_decode_row_of(place, ATTENTION_O, in_group); // (DV)
            for (int64_t i = 0; i < static_size(out.layout); i += 2) {
                if (attention_online_row_of(out, i) != r)
                    continue;
                tensor rPair = fragment(dtype, compact(leaf(2)));
                for (int j = 0; j < 2; j++) // zeros are positive
                    set(rPair, j, convert(dtype, fma(at(out, i + j), e.factor, immf(0))));
                const val to = tensor_address(gRow, coord(coordinate(cO, 1, i)));
                copy(rPair, gmem_tensor(to, dtype, compact(leaf(2))), 4);
            }
            if (place->form.lse)
                IF(has_lse)
                    attention_decode_store_logarithm(place, in_group, e.top, e.sum);
        }
    }
}
