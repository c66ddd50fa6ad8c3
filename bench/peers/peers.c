/* peers.c - the list of peers. */
#include "bench/peers/peers.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"

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

/* A place with the program's folder for @. */
static const char *expand(const char *place, char path[PEER_PATH_BYTES])
{
    char folder[PEER_PATH_BYTES] = "";
    if (*place == '@') {
        ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
        folder[length > 0 ? length : 0] = '\0';
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = '\0';
    }
    snprintf(path, PEER_PATH_BYTES, "%s%s", folder, place + (*place == '@'));
    return path;
}

bool peer_find_file(const char *variable, const char *const *places, char path[PEER_PATH_BYTES])
{
    const char *given = getenv(variable);
    if (given && *given) {
        snprintf(path, PEER_PATH_BYTES, "%s", given);
        return access(path, R_OK) == 0;
    }
    for (; *places; places++)
        if (access(expand(*places, path), R_OK) == 0)
            return true;
    return false;
}

static void *open_first(const peer_library *l)
{
    const char *given = getenv(l->variable);
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *opened = NULL;
    char path[PEER_PATH_BYTES];
    for (const char *const *place = l->places; *place && !opened; place++)
        opened = dlopen(expand(*place, path), RTLD_NOW | RTLD_LOCAL);
    return opened;
}

ckl_status peer_open(const peer_library *l, void *functions)
{
    static void *const absent = NULL;
    if (memcmp(functions, &absent, sizeof absent) != 0)
        return CKL_OK;
    void *opened = open_first(l), *found[32];
    if (!opened)
        FAIL(CKL_UNSUPPORTED, "no %s: %s", l->name, l->advice);
    assert(l->count <= COUNT_OF(found));
    for (int i = 0; i < l->count; i++) {
        found[i] = dlsym(opened, l->functions[i].name);
        if (!found[i])
            FAIL(CKL_UNSUPPORTED, "%s is too old: it has no %s; %s is needed", l->name, l->functions[i].name,
                 l->needed);
    }
    for (int i = l->count - 1; i >= 0; i--) // the first one says that all are there
        memcpy((char *)functions + l->functions[i].offset, &found[i], sizeof found[i]);
    return CKL_OK;
}
