/*
 * coord.h - coordinates and shapes written as plain lists: coord(m, _, 3) mixes C integers, IR values, tuples and
 * wildcards.
 */
#pragma once

#include "cute/layout.h"

static inline int_tuple coord_of_tuple(int_tuple t)
{
    return t;
}

/* One C integer, IR value or tuple as an int_tuple. */
#define INT(x) _Generic((x), val : dynamic, int_tuple : coord_of_tuple, default : leaf)(x)

#define INT_1(a)                                 INT(a)
#define INT_2(a, ...)                            INT(a), INT_1(__VA_ARGS__)
#define INT_3(a, ...)                            INT(a), INT_2(__VA_ARGS__)
#define INT_4(a, ...)                            INT(a), INT_3(__VA_ARGS__)
#define INT_5(a, ...)                            INT(a), INT_4(__VA_ARGS__)
#define INT_6(a, ...)                            INT(a), INT_5(__VA_ARGS__)
#define INT_COUNTED(a, b, c, d, e, f, name, ...) name
#define INTS(...)                                INT_COUNTED(__VA_ARGS__, INT_6, INT_5, INT_4, INT_3, INT_2, INT_1, )(__VA_ARGS__)

/* A tuple of up to six of them. */
#define coord(...)  tuple(INTS(__VA_ARGS__))
#define shape(...)  coord(__VA_ARGS__)
#define stride(...) coord(__VA_ARGS__)
