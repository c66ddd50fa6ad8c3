/* tuned_file.c - where the user's store lies, and reading it without trusting who wrote it. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/heap.h"
#include "plan/tuned.h"

bool tuned_user_path(char path[TUNED_PATH_BYTES])
{
    int length = folder_cache_path("/tuned.txt", path, TUNED_PATH_BYTES);
    return length >= 0 && length < TUNED_PATH_BYTES;
}

/* Another user could have written, or could write, what these bits allow. */
static bool is_ours(const struct stat *s)
{
    return s->st_uid == geteuid() && !(s->st_mode & (S_IWGRP | S_IWOTH));
}

static ckl_status check_folder(const char *path)
{
    char copy[TUNED_PATH_BYTES];
    struct stat s;
    snprintf(copy, sizeof copy, "%s", path);
    const char *folder = dirname(copy);
    if (lstat(folder, &s) == 0 && (!S_ISDIR(s.st_mode) || !is_ours(&s)))
        FAIL(CKL_INVALID, "%s is not a folder that only its owner, this user, can write to", folder);
    return CKL_OK;
}

static ckl_status check_file(const char *path, const struct stat *s, bool ours)
{
    if (!S_ISREG(s->st_mode))
        FAIL(CKL_INVALID, "%s is not a file", path);
    if (ours && !is_ours(s))
        FAIL(CKL_INVALID, "%s can be written to by others than this user", path);
    if (s->st_size > TUNED_FILE_BYTES_MAX)
        FAIL(CKL_INVALID, "%s has %" PRId64 " bytes, more than %d", path, (int64_t)s->st_size, TUNED_FILE_BYTES_MAX);
    return CKL_OK;
}

/* At most so many bytes. */
static ckl_status read_all(const char *path, int file, char *buffer, size_t bytes, size_t *length)
{
    ssize_t got = 1;
    for (*length = 0; *length < bytes && got > 0; *length += (size_t)got) {
        got = read(file, buffer + *length, bytes - *length);
        if (got < 0)
            FAIL(CKL_INVALID, "%s: %s", path, strerror(errno));
    }
    return CKL_OK;
}

/* Nothing is allocated while the file is open (heap.h). */
static ckl_status read_open(const char *path, int file, bool ours, char *buffer, size_t bytes, size_t *length)
{
    struct stat s;
    if (fstat(file, &s))
        FAIL(CKL_INVALID, "%s: %s", path, strerror(errno));
    TRY(check_file(path, &s, ours));
    return read_all(path, file, buffer, bytes, length);
}

ckl_status tuned_read_file(const char *path, bool ours, text *content)
{
    struct stat s;
    TRY(ours ? check_folder(path) : CKL_OK);
    if (stat(path, &s))
        return errno == ENOENT ? CKL_OK : status_fail(CKL_INVALID, "%s: %s", path, strerror(errno));
    TRY(check_file(path, &s, ours));
    size_t bytes = (size_t)s.st_size, length = 0;
    char *buffer = heap_alloc(bytes + 1, 1);
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (ours ? O_NOFOLLOW : 0)); // a FIFO must not block
    ckl_status status = file < 0 ? status_fail(CKL_INVALID, "%s: %s", path, strerror(errno))
                                 : read_open(path, file, ours, buffer, bytes, &length);
    if (file >= 0)
        close(file);
    if (status == CKL_OK)
        text_append(content, buffer, length);
    heap_free(buffer);
    return status;
}
