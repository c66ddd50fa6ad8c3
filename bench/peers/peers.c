/* peers.c - the list of peers. */
#include "bench/peers/peers.h"

#include <string.h>

const peer *const peers[] = {
    &cublaslt_peer,
    &cub_peer,
#define X(op) &torch_##op##_peer,
    TORCH_PEERS(X)
#undef X
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
