/*
 * host_operator.h - an operator whose kernel is a C function on host memory: it takes every desc. The test that
 * includes this once defines launch() and the list of implementations.
 */
#pragma once

#include "plan/plan.h"

static ckl_status choose(const void *desc, const ckl_device_info *info, void *config)
{
    return CKL_OK;
}

static void describe(const void *config, int kernel)
{
}

#define HOST_IMPLEMENTATION .name = "plain", .choose = choose, .describe = describe, .launch = launch

/* The operator of that name, whose desc is its problem. */
#define HOST_OPERATOR(op_name, problem_type)                                                    \
    {                                                                                           \
        .name = op_name, .desc_bytes = sizeof(problem_type), .implementations = implementations \
    }
