/* gemm_epilogues.c - custom epilogues by their names. */
#include "operators/gemm/gemm_epilogues.h"

#include <string.h>

#include "plan/named.h"

static ckl_gemm_epilogue added[NAMED_MAX];
static const void *const own[] = { &gemm_relu2, &gemm_tril, NULL };
static named_list epilogues = { "gemm_epilogue_add", "epilogue", sizeof(ckl_gemm_epilogue), own, added, 0 };

const ckl_gemm_epilogue *gemm_epilogue_find(const char *name)
{
    return named_find(&epilogues, name);
}

ckl_status gemm_epilogue_check(const char *op, const char **name)
{
    const ckl_gemm_epilogue *custom = gemm_epilogue_find(*name);
    if (!custom && *name && **name && strcmp(*name, "none") != 0)
        FAIL(CKL_INVALID, "%s: epilogue=%s is not known; ckl_gemm_epilogue_add() makes it so", op, *name);
    *name = custom ? custom->name : NULL;
    return CKL_OK;
}

ckl_status ckl_gemm_epilogue_add(const ckl_gemm_epilogue *epilogue)
{
    if (!epilogue || !epilogue->name || !epilogue->apply)
        FAIL(CKL_INVALID, "gemm_epilogue_add: an epilogue wants a name and a function");
    return named_add(&epilogues, epilogue);
}
