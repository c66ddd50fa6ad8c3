/* hash.h - bytes as a number: FNV-1a of 64 bits. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static const uint64_t HASH_START = 0xcbf29ce484222325;

/* The hash of bytes that follow those already hashed. */
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3;
    return hash;
}
