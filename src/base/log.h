/* log.h - what the library says on stderr where the user asks: CKL_LOG=plan,tuned or CKL_LOG=all. Else it never prints. */
#ifndef CKL_BASE_LOG_H
#define CKL_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

/* Is the topic in the list of CKL_LOG? */
bool log_wants(const char *topic);

/* One line "ckl: TOPIC: ...", where the topic is wanted. Any thread; lines are never mixed. */
void log_say(const char *topic, const char *format, ...) CKL_PRINTF(2, 3);

#endif
