/* choose.h - from a desc to an implementation and its config: the tuned store, models, rules, and what is forced. */
#pragma once

#include "plan/desc.h"
#include "plan/tuned.h"

/* What a problem gets, and why. */
typedef struct choice_made {
    const implementation *impl;
    void *config;
    const tuned_entry *tuned; // whose config it is; NULL: the implementation's own choice, or the caller's
    bool near;                // it is one of another problem of about the same sizes
} choice_made;

/* plan_choose() for a desc that was checked; table: of the operator. */
ckl_status choose_config(const ckl_device_info *device, const operator_info *op, const checked_desc *checked,
                         const char *force, const tuned_table *table, arena *memory, choice_made *made);

/* Appends "tuned.txt:3", with a mark where it is of another problem; nothing without an entry. */
void choose_print_origin(const choice_made *made, text *out);
