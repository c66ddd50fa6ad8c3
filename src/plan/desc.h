/*
 * desc.h - descs of any operator as text for people, and how far two of them are apart.
 *
 * The text names the members of the desc as C does, those that are 0 left out: "m=1536 n=1536 k=64 a=bf16", of arrays
 * "shape=8,77,64" and "in[0].dtype=f32".
 */
#pragma once

#include "plan/plan.h"

/* Appends the operator's name and the members. */
void plan_desc_print(const operator_info *op, const void *desc, text *out);

/*
 * The largest ratio of two sizes, 64-bit members, as a power of 2: 0 for equal descs, 1 if a size is twice the other's.
 * INFINITY if something else differs, or a size is 0 in one of them.
 */
double plan_desc_distance(const operator_info *op, const void *a, const void *b);
