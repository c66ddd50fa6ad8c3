/* attention_decode_latent_store.c - partials and results of latent caches, from the registers in which they were summed. */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

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
            const row_end e = attention_row_end(rows->max[r], rows->sum[r], attention_decode_sink_of(place, in_group));
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
