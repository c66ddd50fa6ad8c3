/* status.c - status names and the error sentence of each thread. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 8192 }; // an emulator report of several warps is the longest

static _Thread_local char sentence[SENTENCE_BYTES];
static _Thread_local bool muted;

const char *ckl_status_name(ckl_status status)
{
    static const char *const names[] = {
        [CKL_OK] = "ok",
        [CKL_INVALID] = "invalid",
        [CKL_UNSUPPORTED] = "unsupported",
        [CKL_NO_MEMORY] = "no memory",
        [CKL_DEVICE_FAULT] = "device",
        [CKL_INTERNAL] = "internal",
    };
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "unknown";
}

const char *ckl_error(void)
{
    return sentence;
}

const char *ckl_version(void)
{
#define TEXT(x)                      #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)
    return VERSION(CKL_VERSION_MAJOR, CKL_VERSION_MINOR, CKL_VERSION_PATCH);
}

ckl_status status_fail(ckl_status status, const char *format, ...)
{
    if (muted)
        return status;
    char written[SENTENCE_BYTES]; // apart: the arguments may point into the old sentence
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(written, sizeof written, format, arguments);
    va_end(arguments);
    memcpy(sentence, written, strlen(written) + 1);
    return status;
}

void status_mute(bool mute)
{
    muted = mute;
}

void status_clear(void)
{
    sentence[0] = '\0';
}
