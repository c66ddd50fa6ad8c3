/* folder.h - folders of this user that nobody else can change. */
#pragma once

#include <stddef.h>

#include "base/status.h"

/*
 * The path of `name`, "" or with a slash before it, in the library's folder of this user's cache:
 * $XDG_CACHE_HOME/cutekernellib, or $HOME/.cache/cutekernellib. Returns its length, as snprintf() does; -1 where
 * neither variable holds an absolute path.
 */
int folder_cache_path(const char *name, char *path, size_t bytes);

/*
 * Opens the folder of an absolute path; the last two are made where they are absent, mode 0700. CKL_UNSUPPORTED with a
 * sentence where it cannot be opened or trusted: the folder must be this user's, and nobody else may write to it. Those
 * above it are this user's or root's, and others may write to them only if they are sticky, as /tmp is. Symbolic links
 * are refused.
 * The caller closes the descriptor: openat() from it reaches the folder that was judged, whatever the path becomes.
 */
ckl_status folder_open(const char *path, int *descriptor);
