/* random.h - random numbers as functions of a seed and a counter: they can be drawn in any order. */
#pragma once

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). *state begins as the seed. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* What call number `counter` of random_next() gives, from 0, with `stream` as first state. */
static inline uint64_t random_at(uint64_t stream, uint64_t counter)
{
    uint64_t state = stream + counter * 0x9e3779b97f4a7c15;
    return random_next(&state);
}

/* 0 .. count - 1; count > 0. */
static inline int64_t random_below(uint64_t *state, int64_t count)
{
    return (int64_t)((random_next(state) >> 1) % (uint64_t)count);
}
