/* peers.c - the list of peers. */
#include "bench/peers/peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const peer *const peers[] = {
    &cublaslt_peer,
    &cub_peer,
#define X(op) &torch_##op##_peer,
    TORCH_PEERS(X)
#undef X
        & cudnn_peer,
    NULL,
};

ckl_status peer_get(const char *name, const peer **out)
{
    *out = NULL;
    if (strcmp(name, "none") == 0)
        return CKL_OK;
    text known = { 0 };
    for (const peer *const *p = peers; *p; p++) {
        if (strcmp((*p)->name, name) == 0)
            *out = *p;
        if (p == peers || strcmp(p[-1]->name, (*p)->name) != 0)
            text_printf(&known, " %s", (*p)->name);
    }
    if (!*out)
        status_fail(CKL_INVALID, "peer: there is no '%s'; known peers: none%s", name, text_data(&known));
    text_free(&known);
    return *out ? CKL_OK : CKL_INVALID;
}

bool peer_competes(const peer *p, const char *op, const peer *only)
{
    return strcmp(p->op, op) == 0 && (!only || strcmp(p->name, only->name) == 0);
}

const peer *peer_of(const char *op, const peer *only)
{
    if (only && strcmp(only->op, op) == 0)
        return only;
    for (const peer *const *p = peers; *p; p++)
        if (peer_competes(*p, op, only))
            return *p;
    return NULL;
}

static void find_program_folder(char folder[PEER_PATH_BYTES])
{
    ssize_t length = readlink("/proc/self/exe", folder, PEER_PATH_BYTES - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

bool peer_find_file(const char *variable, const char *const *places, char path[PEER_PATH_BYTES])
{
    char folder[PEER_PATH_BYTES];
    const char *given = getenv(variable);
    if (given && *given) {
        snprintf(path, PEER_PATH_BYTES, "%s", given);
        return access(path, R_OK) == 0;
    }
    find_program_folder(folder);
    for (; *places; places++) {
        bool beside = **places == '@';
        snprintf(path, PEER_PATH_BYTES, "%s%s", beside ? folder : "", *places + beside);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

ckl_status peer_bind(void *library, const char *name, const char *needed, const peer_function *functions, int count,
                     void *to)
{
    for (int i = 0; i < count; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            FAIL(CKL_UNSUPPORTED, "%s is too old: it has no %s; %s or later is needed", name, functions[i].name,
                 needed);
        memcpy((char *)to + functions[i].offset, &function, sizeof function);
    }
    return CKL_OK;
}
