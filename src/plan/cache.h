/* cache.h - plans kept for the one-call form of the operators. */
#pragma once

#include "plan/plan.h"

/* A kept plan that a call uses. */
typedef struct plan_use plan_use;

/*
 * Finds the plan of a desc among those that this process keeps, or makes it: plan_build(). It stays kept until it is
 * returned. A plan with workspace is kept per stream, so that calls on several streams never share it.
 */
ckl_status plan_borrow(ckl_device *device, const operator_info *op, const void *desc, ckl_stream stream,
                       plan_use **use);
const ckl_plan *plan_borrowed(const plan_use *use);
void plan_return(plan_use *use);

/* Frees every kept plan of the device. */
void plan_cache_forget(ckl_device *device);

/* The key of plans: a copy of the desc without padding; key: op->desc_bytes. */
void plan_desc_key(const operator_info *op, const void *desc, void *key);
