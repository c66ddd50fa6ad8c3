/* file.c - a new file beside the old one, which then takes its name. */
#include "lab/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_no_file(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

static bool write_all(const char *path, const text *content)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return false;
    bool written = fwrite(text_data(content), 1, content->length, file) == content->length;
    return (fclose(file) == 0) && written;
}

static bool replace(const char *path, const text *content)
{
    text beside = { 0 };
    text_printf(&beside, "%s.new", path);
    bool written = write_all(text_data(&beside), content) && rename(text_data(&beside), path) == 0;
    int why = errno;
    if (!written)
        unlink(text_data(&beside));
    text_free(&beside);
    errno = why;
    return written;
}

ckl_status file_write(const char *what, const char *path, const text *content)
{
    bool written = is_no_file(path) ? write_all(path, content) : replace(path, content);
    if (!written)
        FAIL(CKL_INVALID, "%s: %s cannot be written: %s", what, path, strerror(errno));
    return CKL_OK;
}
