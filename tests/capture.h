/* capture.h - what is written to standard output or error meanwhile. */
#pragma once

#include <stdio.h>
#include <unistd.h>

typedef struct capture {
    FILE *stream, *file;
    int before;
} capture;

static inline capture capture_begin(FILE *stream)
{
    fflush(stream);
    capture c = { stream, tmpfile(), dup(fileno(stream)) };
    assert_non_null(c.file);
    dup2(fileno(c.file), fileno(stream));
    return c;
}

/* The words since the beginning, until another capture ends. */
static inline const char *capture_end(const capture *c)
{
    static char words[1 << 14];
    fflush(c->stream);
    dup2(c->before, fileno(c->stream));
    close(c->before);
    rewind(c->file);
    words[fread(words, 1, sizeof words - 1, c->file)] = '\0';
    fclose(c->file);
    return words;
}
