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

latent_shares attention_decode_latent_add_rows(const online_rows *rows, const val *top, const val *sum)
{
    latent_shares s;
    for (int r = 0; r < COUNT_OF(s.own); r++) {
        const val larger = max(rows->max[r], top[r]);
        s.own[r] = exp2_ftz(sub(rows->max[r], larger));
        s.other[r] = exp2_ftz(sub(top[r], larger));
        assign(rows->max[r], larger);
        assign(rows->sum[r], add(mul(rows->sum[r], s.own[r]), mul(sum[r], s.other[r])));
    }
    return s;
}

/* A thread's quads of sums in shared memory, each beside those of the other threads. */
enum { THREADS = 128, QUAD = 4, QUAD_BYTES = 16 };

static int64_t quad_at(int64_t quad)
{
    return quad * THREADS * QUAD_BYTES;
}

/* Leaves maxima, sums and columns for another CTA. */
static void publish(const latent_part *part, val memory)
{
    const online_rows *rows = part->online;
    const val to = add(memory, mul(part->tid, imm(QUAD_BYTES)));
    const int64_t count = static_size(part->out.layout);
    const val states[QUAD] = { rows->max[0], rows->max[1], rows->sum[0], rows->sum[1] };
    store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, QUAD, to, 0, states);
    for (int64_t i = 0; i < count; i += QUAD) {
        val o[QUAD];
        for (int j = 0; j < QUAD; j++)
            o[j] = at(part->out, i + j);
        store_at(IR_SHARED, IR_CACHE_DEFAULT, F32, QUAD, to, quad_at(1 + i / QUAD), o);
    }
}

static void load_quad(val from, int64_t quad, val *words)
{
    for (int j = 0; j < QUAD; j++)
        words[j] = unwritten(F32);
    load_at(IR_SHARED_CLUSTER, IR_CACHE_DEFAULT, F32, QUAD, from, quad_at(quad), words);
}

/*
 * Adds what the same thread of another CTA has left. NOTE: sums go through a shuffle, as ptxas else keeps what was loaded
 * beside O until the sums are used, and spills 424 bytes.
 */
static void add_published(const latent_part *part, val peer)
{
    const online_rows *rows = part->online;
    const val from = add(peer, mul(part->tid, imm(QUAD_BYTES)));
    val state[QUAD];
    load_quad(from, 0, state);
    const latent_shares shares = attention_decode_latent_add_rows(rows, state, state + 2);
    for (int64_t i = 0; i < static_size(part->out.layout); i += QUAD) {
        val o[QUAD];
        load_quad(from, 1 + i / QUAD, o);
        for (int j = 0; j < QUAD; j++) {
            const val x = at(part->out, i + j);
            const int r = attention_online_row_of(part->out, i + j);
            assign(x, shuffle(fma(o[j], shares.other[r], mul(x, shares.own[r])), lane()));
        }
    }
}

/* Of the first pair each CTA keeps the columns of one consumer; of the others the lower one keeps what it has. */
void attention_decode_latent_add_cluster(const latent_part *part, val memory, int cluster)
{
    const val rank = cluster_rank(), one = imm_as(U32, 1), none = imm_as(U32, 0), keeps = variable(U32, one);
    for (int apart = 1; apart < cluster; apart *= 2) {
        const val kept = apart == 1 ? part->index : none;
        IF(logical_and(ne(keeps, none), ne(bit_and(div(rank, imm(apart)), one), kept))) {
            publish(part, memory);
            assign(keeps, none);
        }
        cluster_sync(); // what is published is there
        IF(ne(keeps, none)) {
            add_published(part, mapa(memory, bit_xor(rank, imm(apart))));
            if (2 * apart == cluster)
                attention_decode_latent_store(part);
        }
        cluster_sync(); // and has been read
    }
}

void attention_decode_latent_wait_cluster(int cluster)
{
    for (int apart = 1; apart < cluster; apart *= 2) {
        cluster_sync();
        cluster_sync();
    }
}
