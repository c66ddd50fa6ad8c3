/*
 * cubin_cache.h - cubins that the driver made of PTX, kept in a folder of the user's for later processes.
 *
 * An entry is a file of its own, named by its key and checked before it is used: what is damaged is thrown away. Files
 * appear whole, by renaming, so any number of processes and threads may use one folder. Above a limit the entries that
 * were not used for longest leave. A cubin is code: the checks find accidents; against others the folder protects
 * (docs/caching.md).
 *
 * Nothing here fails a plan: without a cache, an entry or room for one, kernels are compiled. The log says why.
 */
#pragma once

#include "base/sha256.h"
#include "base/status.h"

/* A folder that is open. */
typedef struct cubin_cache cubin_cache;

typedef struct cubin_key {
    unsigned char digest[SHA256_BYTES];
} cubin_key;

/* What is in the folder. */
typedef struct cubin_cache_sums {
    int64_t entries, bytes;
} cubin_cache_sums;

#define CUBIN_CACHE_BYTES_MAX (INT64_C(256) << 20)

/*
 * Opens the folder that CKL_CACHE names, or $XDG_CACHE_HOME/cutekernellib, or $HOME/.cache/cutekernellib, and makes it
 * where it is absent. At most bytes_max stay in it. CKL_UNSUPPORTED with a sentence: CKL_CACHE=off, there is no such
 * folder, or it may not be trusted. It must be this user's, and nobody else may write to it; the folders above it are
 * this user's or root's, no symbolic links, and nobody else may write to them either, unless they are sticky as /tmp
 * is.
 */
ckl_status cubin_cache_open(int64_t bytes_max, cubin_cache **cache);

/* NULL is allowed. */
void cubin_cache_close(cubin_cache *cache);

const char *cubin_cache_path(const cubin_cache *cache);
cubin_cache_sums cubin_cache_count(const cubin_cache *cache);

/* The key of what a driver makes of PTX for a device: `made_by` tells driver and device. */
cubin_key cubin_cache_key(const char *made_by, const char *ptx);

/* The cubin of a key in memory of malloc(), or NULL. */
void *cubin_cache_find(cubin_cache *cache, const cubin_key *key, size_t *bytes);

/* Keeps the cubin of a key, in place of one that is there. */
void cubin_cache_keep(cubin_cache *cache, const cubin_key *key, const void *cubin, size_t bytes);
