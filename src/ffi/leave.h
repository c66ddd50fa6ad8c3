/* leave.h - threads that are at work when their interpreter leaves: they cannot return into it, so they stay. */
#pragma once

/* From now on calls of other threads do not return; they end with the process. The calling thread's do. */
void ffi_leave(void);

/* Before and after a call's work: does not return in a thread that stays. */
void ffi_stay_if_leaving(void);
