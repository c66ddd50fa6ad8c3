/* operator_help.h - what `ckl help OPERATOR` says. */
#pragma once

#include <stdbool.h>

/* Prints it; false: there is no operator of that name. */
bool operator_help(const char *name);
