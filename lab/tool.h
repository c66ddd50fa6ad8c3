/* tool.h - programs of others, where they are installed: where they lie, and what they say. */
#pragma once

#include <stdbool.h>

#include "base/text.h"

enum { TOOL_PATH_BYTES = 4096 };

/*
 * On PATH, or the last by alphabet of what a pattern of paths finds ("/usr/local/cuda*" with the rest); patterns end
 * with NULL. If it is nowhere, found is "".
 */
bool tool_find(const char *name, const char *const *patterns, char found[TOOL_PATH_BYTES]);

/*
 * Runs argv[0] and waits for its end; what it says, to stdout or stderr, is appended to output. It is told to end
 * (SIGTERM) when the thread that runs it does.
 */
ckl_status tool_run(char *const *argv, text *output, int *exit_status);
