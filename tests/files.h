/* files.h - whole files of words: what a test writes for what it tests, and what that has written. */
#pragma once

#include "unit.h"
#include "base/text.h"

/* mode: as of fopen(). */
static inline void write_words(const char *path, const char *mode, const char *words)
{
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    assert_true(fputs(words, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#define read_words(path, array) read_words_(path, array, sizeof(array))
static inline const char *read_words_(const char *path, char *to, size_t size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t length = fread(to, 1, size, file);
    assert_true(length < size);
    to[length] = '\0';
    fclose(file);
    return to;
}

/* A file of any length; false: it cannot be read. */
static inline bool read_text(const char *path, text *out)
{
    char bytes[1 << 14];
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    for (size_t count; (count = fread(bytes, 1, sizeof bytes, file)) > 0;)
        text_append(out, bytes, count);
    return fclose(file) == 0;
}
