/* folder.c - walks a path from the root and judges every folder on it. */
#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHERS_WRITE = S_IWGRP | S_IWOTH, PLACE = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* A path, and how much of it has been walked. */
typedef struct walk {
    const char *path;
    int walked; // characters
    int folder;
} walk;

static ckl_status refuse(const walk *w, const char *why)
{
    FAIL(CKL_UNSUPPORTED, "%.*s %s", w->walked, w->path, why);
}

static ckl_status judge(const walk *w)
{
    struct stat s;
    bool last = w->path[w->walked] == '\0';
    if (fstat(w->folder, &s) != 0)
        return refuse(w, strerror(errno));
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
    if (next < 0 && errno == ENOENT && (mkdirat(w->folder, name, S_IRWXU) == 0 || errno == EEXIST))
        next = openat(w->folder, name, PLACE);
    if (next < 0)
        return refuse(w, errno == ENOTDIR || errno == ELOOP ? "is no folder, or a symbolic link" : strerror(errno));
    close(w->folder);
    w->folder = next;
    return judge(w);
}

static ckl_status walk_path(walk *w)
{
    char name[NAME_MAX + 1];
    TRY(judge(w));
    while (w->path[w->walked]) {
        const char *from = w->path + w->walked + strspn(w->path + w->walked, "/");
        size_t length = strcspn(from, "/");
        if (length > NAME_MAX)
            return refuse(w, strerror(ENAMETOOLONG));
        memcpy(name, from, length);
        name[length] = '\0';
        w->walked = (int)(from + length - w->path);
        w->walked += (int)strspn(from + length, "/");
        if (length)
            TRY(descend(w, name));
    }
    return CKL_OK;
}

ckl_status folder_open(const char *path, int *descriptor)
{
    walk w = { .path = path };
    if (*path != '/')
        FAIL(CKL_UNSUPPORTED, "%s is no absolute path", path);
    w.walked = 1;
    w.folder = open("/", PLACE);
    if (w.folder < 0)
        return refuse(&w, strerror(errno));
    ckl_status status = walk_path(&w);
    int opened = status == CKL_OK ? openat(w.folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (status == CKL_OK && opened < 0)
        status = refuse(&w, strerror(errno));
    close(w.folder);
    if (status == CKL_OK)
        *descriptor = opened;
    return status;
}
