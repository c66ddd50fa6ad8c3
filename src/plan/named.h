/*
 * named.h - what a process makes known by a name, such as functions that its kernels call.
 *
 * Kernels, plans and problem lines have the name alone, so it stands for one thing as long as the process lives. Any
 * thread may ask and add.
 */
#pragma once

#include "base/status.h"

enum { NAMED_MAX = 256 };

/* A list of structs without padding that begin with their name. */
typedef struct named_list {
    const char *adder;      // "gemm_epilogue_add": its sentences begin with it
    const char *noun;       // "epilogue"
    size_t bytes;           // of a struct
    const void *const *own; // the library's, up to a NULL
    void *added;            // of the process, room for NAMED_MAX
    int count;
} named_list;

/* The one of that name, which stays where it is. NULL: there is none, as of NULL, "" and "none". */
const void *named_find(named_list *list, const char *name);

/* Copies it. The same again is CKL_OK; another one of a known name, or a name that is not a word, is CKL_INVALID. */
ckl_status named_add(named_list *list, const void *one);
