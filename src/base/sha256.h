/* sha256.h - SHA-256 (FIPS 180-4): names and checksums of files in the cache. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK_BYTES = 64 };

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes; // so far
    unsigned char block[SHA256_BLOCK_BYTES];
} sha256;

void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t bytes);
void sha256_end(sha256 *s, unsigned char digest[SHA256_BYTES]);
