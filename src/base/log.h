/* log.h - what the library prints on stderr if asked: CKL_LOG=plan,tuned or CKL_LOG=all. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* Is the topic in the list of CKL_LOG? */
bool log_wants(const char *topic);

/* Prints "ckl: TOPIC: ..." if the topic is wanted. From any thread; lines never mix. */
void log_say(const char *topic, const char *format, ...) CKL_PRINTF(2, 3);
