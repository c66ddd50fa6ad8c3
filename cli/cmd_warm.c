/* cmd_warm.c - ckl warm: compiles the kernels of problems ahead, into the cache on disk. */
#include <stdio.h>
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "cli/cli.h"
#include "lab/case.h"
#include "lab/clock.h"
#include "plan/kernel_cache.h"

enum { THREADS_MAX = 256 };

static const char *device_id, *suite, *threads;
static const cli_option options[] = {
    { "--device", "D", &device_id, "the best present if not given" },
    { "--suite", "FILE", &suite, "the problems of a file, one a line, instead of LINE" },
    { "--threads", "N", &threads, "that compile at once; as many as there are processors, up to 16, if not given" },
};

typedef struct line_list {
    const char **lines;
    int count, failed;
    arena memory;
} line_list;

static ckl_status keep_line(const char *line, void *user)
{
    line_list *list = user;
    list->lines = heap_resize(list->lines, (size_t)list->count + 1, sizeof *list->lines);
    list->lines[list->count++] = arena_text(&list->memory, line);
    return CKL_OK;
}

static void print_failure(int line, ckl_status status, const char *sentence, void *user)
{
    line_list *list = user;
    printf("FAILED %s\n  %s: %s\n", list->lines[line], ckl_status_name(status), sentence);
    list->failed++;
}

/* Lines that fail are counted; they do not end the command. */
static ckl_status warm(line_list *list, int count)
{
    ckl_device *device;
    TRY(ckl_device_open(device_id, &device));
    double begin = clock_seconds();
    ckl_status status = ckl_warm(device, list->lines, list->count, count, print_failure, list);
    double seconds = clock_seconds() - begin;
    const kernel_cache_sums made = kernel_cache_count(device);
    if (status == CKL_OK || list->failed)
        printf("%s: %.3f s; %d kernels of %d configs, made in %.3f s of all threads together\n%d passed, %d failed\n",
               ckl_device_properties(device)->id, seconds, made.kernels, made.sets, made.seconds,
               list->count - list->failed, list->failed);
    ckl_device_close(device);
    return list->failed ? CKL_OK : status;
}

static int command(int argc, char **argv)
{
    line_list list = { 0 };
    int64_t count = 0;
    ckl_status status = cli_integer("--threads", threads, 0, THREADS_MAX, &count);
    if (status == CKL_OK)
        status = cli_lines(argc, argv, suite, keep_line, &list);
    if (status == CKL_OK && list.count == 0)
        status = status_fail(CKL_INVALID, "warm: there is no problem in %s", suite);
    if (status == CKL_OK)
        status = warm(&list, (int)count);
    heap_free(list.lines);
    arena_clear(&list.memory);
    return status != CKL_OK ? cli_exit(status) : list.failed ? EXIT_FAILED : EXIT_PASSED;
}

CLI_COMMAND(
    warm, "LINE | --suite FILE [options]",
    "compiles the kernels of problems ahead, for every process that will need them",
    "Compiles the kernels that problems get, so that processes of this user find them on disk (CKL_CACHE; `ckl\n"
    "info` says where and how many). In a program ckl_warm() does it, and loads them. Says how many kernels that\n"
    "were, and what they took. Lines that fail are named, each with its reason.");
