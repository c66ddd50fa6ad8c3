/* log.h - what the library tells those who ask: CKL_LOG=1 in the environment sends it to stderr. */
#ifndef CKL_BASE_LOG_H
#define CKL_BASE_LOG_H

#include "base/status.h"

/* One line, "ckl: ...". Nothing unless CKL_LOG is set to anything but 0. Any thread. */
void log_printf(const char *format, ...) CKL_PRINTF(1, 2);

#endif
