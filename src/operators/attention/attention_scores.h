/* attention_scores.h - the scores known by name: the library's own, and those that the process added. */
#pragma once

#include "cutekernellib/operators/attention_score.h"

extern const ckl_attention_score attention_alibi, attention_documents, attention_prefix;

/* The score of that name; NULL: there is none. */
const ckl_attention_score *attention_score_find(const char *name);

/* Is its derivative other than 1? Of a NULL or "none" it is not. */
bool attention_score_bends(const char *name);

/* Can it skip whole blocks, or leave them as they are? */
bool attention_score_has_blocks(const char *name);
