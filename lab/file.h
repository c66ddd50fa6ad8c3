/* file.h - files that the laboratory writes. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/*
 * Writes a file, whole or not at all: if the program is stopped in between, it is as it was before. What is no file, as
 * a pipe, is written to. `what` opens the sentence of a failure: "report: page.html cannot be written: ...".
 */
ckl_status file_write(const char *what, const char *path, const text *content);
