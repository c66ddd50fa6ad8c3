/* random.h - random numbers that are a function of a seed and a counter, so that they can be drawn in any order. */
#ifndef CKL_LAB_RANDOM_H
#define CKL_LAB_RANDOM_H

#include <stdint.h>

/* SplitMix64 as a function of its counter (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static inline uint64_t random_at(uint64_t stream, uint64_t counter)
{
    uint64_t x = stream + (counter + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* A sequence; {seed} is at its beginning. */
typedef struct random_sequence {
    uint64_t stream, counter;
} random_sequence;

static inline uint64_t random_next(random_sequence *r)
{
    return random_at(r->stream, r->counter++);
}

/* 0 .. count - 1; count > 0. */
static inline int64_t random_below(random_sequence *r, int64_t count)
{
    return (int64_t)((random_next(r) >> 1) % (uint64_t)count);
}

#endif
