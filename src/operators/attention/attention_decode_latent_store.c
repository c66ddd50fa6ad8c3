/* attention_decode_latent_store.c - results of latent caches, from the registers in which they were summed. */
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

void attention_decode_latent_store(const decode_place *place, const online_rows *rows, tensor out, tensor cO,
                                   val has_lse)
{
    const ckl_dtype dtype = place->form.dtype;
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
