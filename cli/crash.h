/* crash.h - what ckl prints when it crashes: kernels are described by C functions, which may crash here. */
#pragma once

/*
 * From now on a fatal signal prints which kernel was being described and the last line of it that was reached, and then
 * ends the process as before. For programs only: the library installs no handlers.
 */
void crash_report(void);
