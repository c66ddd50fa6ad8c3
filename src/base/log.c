/* log.c - lines on stderr. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024 };

void log_printf(const char *format, ...)
{
    const char *wanted = secure_getenv("CKL_LOG");
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0)
        return;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "ckl: %s\n", line); // one call: lines of several threads do not mix
}
