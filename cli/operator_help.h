/* operator_help.h - what `ckl help OPERATOR` says. */
#ifndef CKL_CLI_OPERATOR_HELP_H
#define CKL_CLI_OPERATOR_HELP_H

#include <stdbool.h>

/* Prints it; false: there is no operator of that name. */
bool operator_help(const char *name);

#endif
