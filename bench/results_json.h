/* results_json.h - structs of results.h as JSON objects, for files that have other lines than a benchmark's. */
#pragma once

#include <jansson.h>

#include "bench/results.h"

/* A new object with every member. */
json_t *result_to_json(const result_table *table, const void *object);

/* Fills in the members that are there; those that are missing or of another kind stay as they are. */
void result_from_json(const result_table *table, const json_t *from, void *object);

/* The same where every member must be there and of its kind: else CKL_INVALID, "WHAT: median_us is not a number". */
ckl_status result_demand_json(const result_table *table, const json_t *from, const char *what, void *object);

/* Writes a document, whole or not at all. */
ckl_status json_write(const json_t *document, const char *path);
