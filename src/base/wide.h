/* wide.h - functions compiled for several instruction sets; the widest that the CPU has is taken at load time. */
#pragma once

/*
 * Not with the sanitizers: they instrument the resolver, which runs before they are ready. Not with clang: its
 * resolver's name is not the one that other files call (clang 14).
 */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif

/* A loop whose rounds are independent: outputs equal inputs or do not overlap them. */
#define EACH_OF(i, count) _Pragma("omp simd") for (int i = 0; i < (count); i++)
