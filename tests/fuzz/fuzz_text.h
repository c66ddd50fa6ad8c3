/* fuzz_text.h - a libFuzzer harness over texts: the file that includes this once defines fuzz_one(). */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Tries one text, which ends with a zero. */
void fuzz_one(const char *text);

/* Stops the fuzzer, which keeps the text, unless good. */
static inline void fuzz_demand(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* Was it all right? A failure must be the caller's fault or a decline, and have a sentence. */
static inline bool fuzz_said(ckl_status status)
{
    fuzz_demand(status == CKL_OK || *ckl_error(), "a failure without a sentence");
    fuzz_demand(status == CKL_OK || status == CKL_INVALID || status == CKL_UNSUPPORTED, ckl_error());
    return status == CKL_OK;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = malloc(size + 1); // of its own size, so that a read past the end is seen
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    status_clear();
    fuzz_one(text);
    free(text);
    return 0;
}
