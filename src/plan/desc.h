/* desc.h - descs of any operator: checked, as keys, as text for people, and how far two of them are apart. */
#pragma once

#include "plan/plan.h"

/* A desc that was checked. */
typedef struct checked_desc {
    const void *desc;
    const void *view; // the desc itself, where the operator has no other view of it
    plan_tensor tensors[PLAN_TENSORS_MAX];
    int tensor_count;
    bool empty; // nothing to compute: then every pointer may be NULL
} checked_desc;

/* A checked copy of a desc, in memory. CKL_INVALID with a sentence. */
ckl_status plan_desc_checked(const operator_info *op, const void *desc, arena *memory, checked_desc **checked);

/* The key of plans: a copy of the desc without padding; key: op->desc_bytes. */
void plan_desc_key(const operator_info *op, const void *desc, void *key);

/*
 * Appends the operator's name and the members as C names them, those that are 0 left out: "m=1536 n=1536 k=64 a=bf16",
 * of arrays "shape=8,77,64" and "in[0].dtype=f32".
 */
void plan_desc_print(const operator_info *op, const void *desc, text *out);

/*
 * The largest ratio of two sizes, 64-bit members, as a power of 2: 0 for equal descs, 1 if a size is twice the other's.
 * INFINITY if something else differs, or a size is 0 in one of them.
 */
double plan_desc_distance(const operator_info *op, const void *a, const void *b);
