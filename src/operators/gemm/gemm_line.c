/* gemm_line.c - the problem lines of gemm. */
#include <inttypes.h>
#include <string.h>

#include "base/math.h"
#include "base/number.h"
#include "operators/gemm/gemm_config.h"
#include "operators/gemm/gemm_lab.h"

static const field fields[] = {
    GEMM_DESC(FIELD_NESTED, (gemm_problem, desc))                                                                //
    FIELD_ROW(gemm_problem, bool, c, "0", "0 1", "there is a C even if beta is 0")                               //
    FIELD_ROW(gemm_problem, float, alpha, "1", "", "factor of the product")                                      //
    FIELD_ROW(gemm_problem, float, beta, "0", "", "factor of C")                                                 //
    FIELD_ROW(gemm_problem, quoted, sizes, "", "", "rows of each group: 0,1,300; not given: about as many each") //
};

/* Sets groups and offsets by the rows of each group, m in all. */
static ckl_status read_sizes(gemm_problem *p)
{
    int64_t count = 0, size;
    for (const char *at = p->sizes;; at++) {
        if (count == GEMM_LINE_GROUPS_MAX || !number_integer(&at, &size) || size < 0 || !strchr(",", *at))
            FAIL(CKL_INVALID, "gemm: sizes=%s is not a list of up to %d numbers of rows", p->sizes,
                 GEMM_LINE_GROUPS_MAX);
        p->offsets[count + 1] = sum_i64(p->offsets[count], size);
        count++;
        if (!*at)
            break;
    }
    const bool of_k = p->desc.groups_of == CKL_GEMM_GROUPS_OF_K;
    const int64_t dealt = of_k ? p->desc.k : p->desc.m;
    if (p->offsets[count] != dealt)
        FAIL(CKL_INVALID, "gemm: sizes=%s add up to %" PRId64 " %s, not to %c=%" PRId64, p->sizes, p->offsets[count],
             of_k ? "numbers of k" : "rows", of_k ? 'k' : 'm', dealt);
    p->desc.groups = count;
    return CKL_OK;
}

/* Offsets as a call takes them; without sizes groups are about equal. */
static void deal_out_on_host(gemm_problem *p)
{
    const int64_t groups = p->desc.groups, dealt = p->desc.groups_of == CKL_GEMM_GROUPS_OF_K ? p->desc.k : p->desc.m;
    for (int64_t g = 0; g <= groups && groups <= GEMM_LINE_GROUPS_MAX; g++)
        p->host_offsets[g] = (int32_t)(*p->sizes ? p->offsets[g] : dealt * g / max_i64(groups, 1));
}

/* C is of D's type. */
static ckl_status prepare(void *problem)
{
    gemm_problem *p = problem;
    p->c |= p->beta != 0;
    if (p->c)
        p->desc.c = gemm_result_type(&p->desc);
    if (*p->sizes)
        TRY(read_sizes(p));
    if (p->desc.host_offsets)
        deal_out_on_host(p);
    return CKL_OK;
}

OPERATOR_LINE(gemm, gemm_problem, prepare);
