/* log.c - the list of topics in CKL_LOG, and lines written by one call each. */
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 2048 };

bool log_wants(const char *topic)
{
    const char *list = getenv("CKL_LOG");
    size_t length = strlen(topic);
    for (const char *at = list; at && *at; at += strspn(at, ", ")) {
        size_t word = strcspn(at, ", ");
        if ((word == length && strncmp(at, topic, word) == 0) || (word == 3 && strncmp(at, "all", word) == 0))
            return true;
        at += word;
    }
    return false;
}

void log_say(const char *topic, const char *format, ...)
{
    if (!log_wants(topic))
        return;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "ckl: %s: %s\n", topic, line);
}
