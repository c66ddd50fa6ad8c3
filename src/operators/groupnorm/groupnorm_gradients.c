/* groupnorm_gradients.c - dgamma and dbeta: adds up the lines of sums of the slices. */
#include "skeletons/column.h"
#include "operators/groupnorm/groupnorm_slice.h"

void groupnorm_gradients(const groupnorm_config *cfg)
{
    const column_split split = {
        .threads = 1024, .lanes = GROUPNORM_GRADIENT_COLUMNS, .cluster = 1, .vec = 1, .steps = 8
    };
    const reduction sum = reduce_sums(1);
    groupnorm_values a = params_of(groupnorm);
    val columns = mul(a.channels, imm(GROUPNORM_KINDS)), lines = convert(U32, a.lines);
    column_place p = column_here(&split, lines, columns, grid_x());
    groupnorm_wait();
    tensor rSums = fragment(F32, compact(shape(1, split.steps))); // (VEC,STEPS)
    val total = variable(F32, immf(0));
    LOOP_FROM(begin, imm_as(U32, 0), lines, imm((int)column_split_lines(&split))) {
        column_place here = column_from(&p, begin);
        column_load(&split, &here, a.partial, F32, columns, a.lines, rSums, 0);
        for (int i = 0; i < split.steps; i++)
            assign(total, add(total, at(rSums, i)));
    }
    column_reduce(&split, &sum, &total);
    IF(logical_and(eq(p.line, imm(0)), lt(p.column, columns))) {
        val is_beta = ge(p.column, a.channels), channel = select(is_beta, sub(p.column, a.channels), p.column);
        val bytes = mul(convert(U64, channel), imm((int)ckl_dtype_bytes(cfg->dtype)));
        tensor gSum = gmem_tensor(add(select(is_beta, a.dbeta, a.dgamma), bytes), cfg->dtype, compact(leaf(1))); // (1)
        set(gSum, 0, convert(cfg->dtype, total));
    }
}
