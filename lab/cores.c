/* cores.c - the affinity mask, and the limits of control groups of both versions. */
#define _GNU_SOURCE // sched_getaffinity

#include "lab/cores.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>

/* The first numbers of a file; how many there are. */
static int read_numbers(const char *path, double numbers[2])
{
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    int count = fscanf(file, "%lf %lf", &numbers[0], &numbers[1]);
    fclose(file);
    return count;
}

/* Processors' worth of time; infinite where it is not limited. */
static double quota(void)
{
    double now[2], before[2];
    if (read_numbers("/sys/fs/cgroup/cpu.max", now) == 2) // else "max 100000"
        return now[0] / now[1];
    if (read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", now) >= 1 && now[0] > 0 &&
        read_numbers("/sys/fs/cgroup/cpu/cpu.cfs_period_us", before) >= 1)
        return now[0] / before[0];
    return INFINITY;
}

int cores_available(void)
{
    cpu_set_t mine;
    int count = sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : 1;
    return (int)fmax(1, fmin(count, floor(quota())));
}
