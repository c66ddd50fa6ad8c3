/* text.h - a string that grows. */
#pragma once

#include <stddef.h>

#include "base/status.h"

/* {0} is an empty text. data is NULL until something is written, then always terminated. */
typedef struct text {
    char *data;
    size_t length, capacity;
} text;

/* The characters; "" for an empty text. */
const char *text_data(const text *t);

void text_printf(text *t, const char *format, ...) CKL_PRINTF(2, 3);
void text_append(text *t, const char *data, size_t length);
void text_json(text *t, const char *s); // as a string of JSON

/* Empty again; the memory is kept (clear) or released (free). */
void text_clear(text *t);
void text_free(text *t);
