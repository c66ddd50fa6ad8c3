/* folder.c - walks a path from the root and judges every folder on it. */
#define _GNU_SOURCE // O_PATH, secure_getenv

#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    OTHERS_WRITE = S_IWGRP | S_IWOTH,
    PLACE = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
    FOLDERS_MADE_MAX = 2 // ~/.cache and cutekernellib in it, but not ~
};

/* A relative $XDG_CACHE_HOME is to be ignored, says the XDG base directory specification. */
int folder_cache_path(const char *name, char *path, size_t bytes)
{
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    if (cache && *cache == '/')
        return snprintf(path, bytes, "%s/cutekernellib%s", cache, name);
    return home && *home == '/' ? snprintf(path, bytes, "%s/.cache/cutekernellib%s", home, name) : -1;
}

/* How far a path has been walked. */
typedef struct walk {
    const char *path;
    int walked; // characters
    int folder;
} walk;

static ckl_status refuse(const walk *w, const char *why)
{
    FAIL(CKL_UNSUPPORTED, "%.*s %s", w->walked, w->path, why);
}

static ckl_status refuse_errno(const walk *w)
{
    if (errno == ENOTDIR || errno == ELOOP)
        return refuse(w, "is no folder, or a symbolic link");
    FAIL(CKL_UNSUPPORTED, "%.*s cannot be opened: %s", w->walked, w->path, strerror(errno));
}

/* The next folder of the path, and the length of its name: 0 at the end. */
static const char *next_name(const walk *w, size_t *length)
{
    const char *name = w->path + w->walked;
    name += strspn(name, "/");
    *length = strcspn(name, "/");
    return name;
}

/* Folders not yet walked. */
static int folders_left(const walk *w)
{
    int count = 0;
    size_t length;
    walk ahead = *w;
    for (const char *name; name = next_name(&ahead, &length), length; count++)
        ahead.walked = (int)(name + length - w->path);
    return count;
}

static ckl_status judge(const walk *w)
{
    struct stat s;
    bool last = folders_left(w) == 0;
    if (fstat(w->folder, &s) != 0)
        return refuse_errno(w);
    if (s.st_uid != geteuid() && (last || s.st_uid != 0))
        return refuse(w, "belongs to another user");
    if ((s.st_mode & OTHERS_WRITE) && (last || !(s.st_mode & S_ISVTX)))
        return refuse(w, "may be written to by others");
    return CKL_OK;
}

/* Goes down into the next folder of the path; another process may make it at the same time. */
static ckl_status descend(walk *w, const char *name)
{
    int next = openat(w->folder, name, PLACE);
    bool make = next < 0 && errno == ENOENT && folders_left(w) < FOLDERS_MADE_MAX;
    if (make && (mkdirat(w->folder, name, S_IRWXU) == 0 || errno == EEXIST))
        next = openat(w->folder, name, PLACE);
    if (next < 0)
        return refuse_errno(w);
    close(w->folder);
    w->folder = next;
    return judge(w);
}

static ckl_status walk_path(walk *w)
{
    char name[NAME_MAX + 1];
    size_t length;
    TRY(judge(w));
    for (const char *from; from = next_name(w, &length), length;) {
        w->walked = (int)(from + length - w->path);
        if (length > NAME_MAX)
            return refuse(w, "has too long a name");
        memcpy(name, from, length);
        name[length] = '\0';
        TRY(descend(w, name));
    }
    return CKL_OK;
}

ckl_status folder_open(const char *path, int *descriptor)
{
    walk w = { .path = path, .walked = 1 };
    if (*path != '/')
        FAIL(CKL_UNSUPPORTED, "%s is no absolute path", path);
    w.folder = open("/", PLACE);
    if (w.folder < 0)
        return refuse_errno(&w);
    ckl_status status = walk_path(&w);
    int opened = status == CKL_OK ? openat(w.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (status == CKL_OK && opened < 0)
        status = refuse_errno(&w);
    close(w.folder);
    if (status == CKL_OK)
        *descriptor = opened;
    return status;
}
