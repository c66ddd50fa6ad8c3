/* threads.h - OpenMP's threads; a compiler without OpenMP ignores its pragmas, and there is one thread. */
#pragma once

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_max_threads(void)
{
    return 1;
}

static inline void omp_set_num_threads(int count)
{
    (void)count;
}
#endif
