/* python.h - Python inside this process: its library is opened at run time, and building needs none of its headers. */
#pragma once

#include "base/status.h"
#include "base/text.h"

/*
 * Starts Python, once: the python3 of the PATH with its packages, or the one that CKL_PYTHON names; CKL_UNSUPPORTED
 * says what is missing. The thread that calls it is Python's main thread. Any thread may use Python afterwards.
 */
ckl_status python_start(void);

/* Starts Python and loads a script as a module, once; other threads wait meanwhile, and get the same status. */
ckl_status python_load(const char *script);

/*
 * Calls a function of the script that returns text. The format is Py_BuildValue()'s of a tuple: "(siK)" are a string,
 * an int and an unsigned long long. An exception is CKL_UNSUPPORTED; Python has told about it on stderr.
 */
ckl_status python_call(text *result, const char *function, const char *format, ...);
