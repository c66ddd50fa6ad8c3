/* cache.h - plans kept for the one-call form of the operators. */
#ifndef CKL_PLAN_CACHE_H
#define CKL_PLAN_CACHE_H

#include "plan/plan.h"

/* Frees every kept plan of the device. */
void plan_cache_forget(ckl_device *device);

/* A copy of the desc without what lies between its fields, by which plans are kept; key: op->desc_bytes. */
void plan_desc_key(const operator_info *op, const void *desc, void *key);

#endif
