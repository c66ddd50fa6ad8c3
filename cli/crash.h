/* crash.h - what ckl says when it crashes: a kernel's function is C that runs here while the kernel is described. */
#ifndef CKL_CLI_CRASH_H
#define CKL_CLI_CRASH_H

/*
 * From now on a fatal signal prints which kernel was being described and the last line of it that was reached, and then ends
 * the process as it would have done. For programs only: the library installs no handlers.
 */
void crash_report(void);

#endif
