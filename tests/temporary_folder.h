/* temporary_folder.h - a fresh folder for a test, and its end with all that is in it. */
#pragma once

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct temporary_folder {
    char path[PATH_MAX];
} temporary_folder;

static inline int temporary_folder_make(temporary_folder *out)
{
    const char *parent = getenv("TMPDIR");
    snprintf(out->path, sizeof out->path, "%s/ckl-test-XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(out->path) ? 0 : -1;
}

static inline int temporary_folder_remove_one(const char *path, const struct stat *s, int type, struct FTW *walk)
{
    return remove(path);
}

static inline int temporary_folder_remove(const temporary_folder *folder)
{
    return nftw(folder->path, temporary_folder_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
