/* norm_samples.c - a number near the mean of a row, which its first elements give before the row is read. */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"

tensor norm_sample_registers(const norm_config *cfg)
{
    tensor rInputs = fragment(cfg->dtype, compact(leaf(1 + cfg->residual))); // (INPUTS)
    fill(rInputs, immf(0));
    return rInputs;
}

/* The column of a lane's sample; of a shorter row lanes share the last one. */
static val sample_column(const norm_forward_values *o)
{
    return min(lane(), sub(o->cols, imm(1)));
}

/*
 * Addresses of single elements are computed by hand, here and where statistics are saved: as elements of tensors they
 * took 16 more instructions, 3 % of a kernel of short rows.
 */
static void load_element(const norm_config *cfg, const norm_forward_values *o, val row, val column, tensor rInputs)
{
    val index = add(mul(row, convert(I64, o->ldx)), convert(I64, column));
    val offset = mul(convert(U64, index), imm(dtype_bytes(cfg->dtype))); // shared by both tensors
    const val pointers[] = { o->x, o->residual };
    for (int i = 0; i < 1 + cfg->residual; i++)
        set(rInputs, i, at(gmem_tensor(add(pointers[i], offset), cfg->dtype, compact(leaf(1))), 0));
}

void norm_load_sample(const norm_config *cfg, const norm_forward_values *o, val row, tensor rInputs)
{
    load_element(cfg, o, row, sample_column(o), rInputs);
}

val norm_sample_value(const norm_config *cfg, tensor rInputs)
{
    val x = at_f32(rInputs, 0);
    return cfg->residual ? convert(F32, convert(cfg->dtype, add(x, at_f32(rInputs, 1)))) : x;
}

val norm_sample(const norm_config *cfg, const norm_forward_values *o, val row)
{
    val column = sample_column(o);
    tensor rInputs = norm_sample_registers(cfg);
    IF(logical_and(lt(column, o->cols), lt(row, o->rows)))
        load_element(cfg, o, row, column, rInputs);
    return norm_sample_value(cfg, rInputs);
}

void norm_find_near_mean(val own, val mean)
{
    const reduction sum = reduce_sums(1);
    val others[2]; // far apart, as elements that lie together may be large together
    for (int i = 0; i < COUNT_OF(others); i++)
        others[i] = shuffle(own, bit_and(add(lane(), imm(11 * (i + 1))), imm(31)));
    assign(mean, median_f32(own, others[0], others[1]));
    warp_reduce(&sum, 32, &mean);
    assign(mean, mul(mean, immf(1.0 / 32)));
}
