/* status.h - how a function fails: FAIL writes this thread's sentence, TRY forwards a failure. */
#pragma once

#include <inttypes.h>
#include <stdarg.h>

#include "cutekernellib/base.h"

#define CKL_PRINTF(string, first) __attribute__((format(printf, string, first)))

/* Returns from the calling function with a status and a sentence: operator, field, value, limit, in that order. */
#define FAIL(status, ...) return status_fail((status), __VA_ARGS__)

/* Evaluates an expression of type ckl_status and returns it from the calling function unless it is CKL_OK. */
#define TRY(expression)                       \
    do {                                      \
        ckl_status try_status = (expression); \
        if (try_status != CKL_OK)             \
            return try_status;                \
    } while (0)

/* Writes the sentence of ckl_error() and returns status. The arguments may include ckl_error() itself. */
ckl_status status_fail(ckl_status status, const char *format, ...) CKL_PRINTF(2, 3);

/* Until told otherwise, this thread writes no sentences: a ranking of configs is refused often and tells one reason. */
void status_mute(bool mute);

/* Forgets this thread's sentence. */
void status_clear(void);
