/* profile_json.h - profiles as files: what was run, the numbers of each kernel, and the paragraph. */
#pragma once

#include <jansson.h>

#include "bench/ncu.h"
#include "lab/profile.h"

/* The problem's numbers and "kernels". The caller adds what else the document has. */
json_t *profile_to_json(const profile *p);
json_t *ncu_to_json(const ncu_report *r);
