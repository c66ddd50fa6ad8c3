/*
 * column_sums.c - sums of columns over any number of lines: the workers of a CTA take lines in turn, and are added in a
 * fixed order.
 */
#include "cute/kernel.h"
#include "skeletons/column.h"

enum { UNROLLED = 4 }; // lines of a worker whose loads are under way together

column_sums column_sums_begin(int threads, int lanes, int count)
{
    column_sums s = { .warps = threads / 32, .lanes = lanes, .per_warp = 32 / lanes, .count = count };
    launch_bounds(threads, 0);
    s.number = add(mul(cta_x(), imm(lanes)), thread_at(lane(), 1, s.per_warp, lanes));
    for (int i = 0; i < count; i++)
        s.sum[i] = variable(F32, immf(0));
    return s;
}

/* Adds a line if it exists; its loads do not wait for the answer. */
static void add_if_exists(const column_sums *s, val line, val lines, void (*add_line)(void *user, val line), void *user)
{
    val exists = lt(line, lines), before[COLUMN_SUMS_MAX];
    for (int i = 0; i < s->count; i++)
        before[i] = variable(F32, s->sum[i]);
    add_line(user, select(exists, line, imm(0)));
    for (int i = 0; i < s->count; i++)
        assign(s->sum[i], select(exists, s->sum[i], before[i]));
}

void column_sums_over(const column_sums *s, val lines, void (*add_line)(void *user, val line), void *user)
{
    const int workers = s->warps * s->per_warp;
    val worker = add(mul(warp(), imm(s->per_warp)), thread_at(lane(), 0, s->per_warp, s->lanes));
    val next = variable(I64, convert(I64, worker));
    LOOP_FROM(i, next, sub(lines, imm((UNROLLED - 1) * workers)), imm(UNROLLED * workers)) {
        for (int u = 0; u < UNROLLED; u++)
            add_line(user, add(i, imm(u * workers)));
        assign(next, add(i, imm(UNROLLED * workers)));
    }
    IF(lt(next, lines))
        for (int u = 0; u < UNROLLED - 1; u++)
            add_if_exists(s, add(next, imm(u * workers)), lines, add_line, user);
}

void column_sums_finish(column_sums *s, void (*store)(void *user, val number, val i, val total), void *user)
{
    const reduction all = reduce_sums(s->count);
    warp_reduce(&all, s->per_warp, s->sum);
    val place = thread_at(lane(), 1, s->per_warp, s->lanes);
    tensor sSums = smem_tensor("sums", F32, compact(shape(s->lanes, s->warps, s->count)), 16); // (LANES,WARPS,SUMS)
    for (int i = 0; i < s->count; i++)
        set(sSums, coord(place, warp(), i), s->sum[i]);
    cta_sync();
    IF(lt(thread(), imm(s->lanes * s->count))) {
        val here = rem(thread(), imm(s->lanes)), i = div(thread(), imm(s->lanes));
        val total = at(sSums, here, 0, i);
        for (int w = 1; w < s->warps; w++)
            total = add(total, at(sSums, here, w, i));
        store(user, add(mul(cta_x(), imm(s->lanes)), here), i, total);
    }
}
