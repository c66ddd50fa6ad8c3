/* cache.h - plans kept for the one-call form of the operators. */
#pragma once

#include "plan/plan.h"

/*
 * Finds the plan of a desc among those that this process keeps, or makes it: plan_build(). It stays kept until work()
 * is over. A plan with workspace is kept per stream, so that calls on several streams never share it.
 */
typedef ckl_status plan_work(const ckl_plan *plan, void *user);
ckl_status plan_cached(ckl_device *device, const operator_info *op, const void *desc, ckl_stream stream,
                       plan_work *work, void *user);

/* Frees every kept plan of the device. */
void plan_cache_forget(ckl_device *device);
