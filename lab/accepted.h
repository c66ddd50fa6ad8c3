/*
 * accepted.h - code that ptxas has accepted before, without spills: a committed file of digests, so that a quick test
 * assembles new code alone. It holds for one release of ptxas.
 */
#pragma once

#include <stdint.h>

#include "cutekernellib/base.h"

typedef struct accepted_code {
    uint64_t digest;
    int registers; // of a thread
} accepted_code;

typedef struct accepted {
    accepted_code *each;
    int count;
} accepted;

/* PTX without comments and lines of C as a number: where it is the same, so is the code. */
uint64_t accepted_digest(const char *ptx);

/* Reads the file; empty where it is of another ptxas than the installed one, or does not exist. */
ckl_status accepted_read(const char *path, accepted *out);
ckl_status accepted_write(const char *path, accepted *all); // sorted, each once
void accepted_free(accepted *all);

const accepted_code *accepted_find(const accepted *all, uint64_t digest); // NULL: it is not there
void accepted_add(accepted *all, uint64_t digest, int registers);
