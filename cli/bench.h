/* bench.h - a run of ckl bench: cmd_bench.c reads what is asked, bench_rows.c measures row after row. */
#pragma once

#include "bench/ahead.h"
#include "bench/race.h"
#include "bench/suites.h"

typedef struct bench {
    const char *device_id, *json, *csv; // as given; NULL: not given
    ckl_device *device;
    race_options race;
    double seconds_max, begin; // of the run
    bench_suites work;
    ahead *ahead;   // of its rows
    int done;       // of them
    bool cut_short; // threads still work for rows that nobody will measure
    result_header header;
    ckl_status status; // the first failure of a row
} bench;

/* Utilization by other processes: this one has not begun. Waits until work that has just ended no longer counts. */
int bench_busy_percent(const bench *b);

/* All rows, or those begun in time; every implementation of each; the peers alone, once. */
ckl_status bench_rows(bench *b);
ckl_status bench_ladders(bench *b);
ckl_status bench_peers(bench *b);
