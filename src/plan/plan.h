/* plan.h - from desc to loaded kernel: operators, their implementations, and plans. */
#pragma once

#include "base/fields.h"
#include "base/problem.h"
#include "cutekernellib/plan.h"
#include "device/device.h"
#include "ir/params.h"
#include "plan/check.h"

enum { PLAN_KERNELS_MAX = 6, PLAN_DESC_BYTES_MAX = 1024, PLAN_ARGS_BYTES_MAX = 512 };

/* What a config costs. */
typedef struct plan_cost {
    double us;         // predicted, of one run
    const char *bound; // what bounds it: "tensor cores", "loads", "memory" ...
} plan_cost;

/* One way to compute an operator. */
typedef struct implementation {
    const char *name;    // "sm90"
    const char *summary; // one sentence for people
    size_t config_bytes;
    field_table config;

    bool by_name;         // a step of a ladder: taken where it is forced alone
    bool order_dependent; // sums come in the order of time: two runs differ in their last bits

    /*
     * Fills a config (already at its defaults), or declines: CKL_UNSUPPORTED with the reason. Forced fields lie over
     * what it has filled, also where it declines. Pure.
     */
    ckl_status (*choose)(const void *desc, const ckl_device_info *device, void *config);

    /*
     * What a config costs, and config number i (already at its defaults) of those to consider; false after the last
     * one. Without choose the cheapest that admit() takes is chosen, the first among equals; beside it both are for
     * `ckl explain` and for `ckl tune`, and candidate may be NULL. All are pure.
     */
    bool (*candidate)(const void *desc, const ckl_device_info *device, int i, void *config);
    plan_cost (*cost)(const void *desc, const ckl_device_info *device, const void *config);

    /*
     * Beside choose and candidate: is this config among those that the cost was measured with? The cheapest such
     * candidate is taken instead of what choose() found, if it promises clearly less time. Pure; plan_trusts_all(), or
     * NULL: never.
     */
    bool (*is_trusted)(const void *config);

    /* Implementations further down, with a cost: where one's choice costs no more, this declines unless forced. */
    const struct implementation *rivals[10]; // up to NULL

    /* May this config, chosen or forced by a user or tuner, compute this desc here? The reason if not. Pure. */
    ckl_status (*admit)(const void *desc, const ckl_device_info *device, const void *config);

    /* Describes kernel number `kernel` of this config: 0 unless kernels > 1. It is printed for the device's target. */
    void (*describe)(const void *config, int kernel); // NULL: there is no kernel
    int kernels;                                      // of one plan; 0 means 1
    int (*kernels_of)(const void *config);            // of a config, where they differ; NULL: all have as many
    const char *first;            // the implementation whose kernel number 0 is: code of one text is compiled once
    const param_list *params;     // of all its kernels; each is launched with those that it uses
    const param_list *own_params; // of its kernels from number `own_from` on, where those before are another operator's
    int own_from;
    ir_target target; // the lowest that it runs on

    /*
     * Workspace bytes of one run, or NULL for none. It is zero before the first run; every run leaves it ready for the
     * next.
     */
    int64_t (*workspace_bytes)(const ckl_plan *plan);

    /* Enqueues one run; args was checked by the operator. Nothing to do is CKL_OK. */
    ckl_status (*launch)(const ckl_plan *plan, const void *args, ckl_stream stream);
} implementation;

static inline bool plan_trusts_all(const void *config)
{
    (void)config;
    return true;
}

/*
 * Members of an implementation that go by its name: for gemm's `tiled` choose_tiled(), gemm_tiled(), gemm_tiled_config
 * and so on.
 */
#define IMPLEMENTATION_PARTS(op, called) .choose = choose_##called, IMPLEMENTATION_OF_CANDIDATES(op, called)
#define IMPLEMENTATION_OF_CANDIDATES(op, called)                                                             \
    .name = #called, .config_bytes = sizeof(op##_##called##_config), .config = FIELD_TABLE(called##_fields), \
    .admit = admit_##called, .describe = op##_##called, .launch = launch_##called

/*
 * A kernel of the operator that runs before or after those of any implementation, where a config wants it. All configs
 * of the operator begin with the fields that it reads.
 */
typedef struct plan_step {
    const char *name; // of the kernel, behind the operator's
    bool (*wanted)(const void *config);
    void (*describe)(const void *config);
    const param_list *params;

    /* Its workspace lies after the implementation's, under the same rules. */
    int64_t (*workspace_bytes)(const ckl_plan *plan);

    /* Enqueues it as kernel number `kernel`. args are a copy: what comes first may change them for the others. */
    ckl_status (*launch)(const ckl_plan *plan, int kernel, void *workspace, void *args, ckl_stream stream);
} plan_step;

/*
 * A member of a desc that is no field of its table, as an array is: DESC_MEMBER(ckl_permute_desc, int64_t, shape). Its
 * kind is that of its elements, of characters `quoted`.
 */
typedef struct desc_member {
    const char *name;
    field_kind kind;
    size_t offset, bytes;
} desc_member;

#define DESC_MEMBER(owner, kind, member)                                                \
    {                                                                                   \
#member, FIELD_##kind, offsetof(owner, member), sizeof(((owner *)NULL)->member) \
    }

/* One operator. The table is const and complete: the public functions of <op>.h are thin calls of plan_*(). */
typedef struct operator_info {
    const char *name;
    const char *summary;
    size_t desc_bytes, args_bytes;

    field_table desc;           // its fields with their limits, which are checked first
    const desc_member *members; // its other members, { 0 } at the end; NULL: there are none

    /* Fills in defaults that follow from other fields, and checks relations between fields, in place. NULL: none. */
    ckl_status (*check)(void *desc);

    /*
     * Lists the tensors of a checked desc; returns their count. Their extents are checked with the desc, their pointers
     * with the args, which begin with these in this order. The laboratory makes its operands of them.
     */
    int (*tensors)(const void *desc, plan_tensor *list);
    size_t workspace; // offset of the caller's workspace in the args; 0: none
    const char
        *numbers; // names of the host floats whose pointers follow the tensors in the args: "alpha beta"; NULL: none

    /*
     * What check_args and the implementations get in place of a checked desc, as choose(), admit() and plan->desc: the
     * problem in other terms, which several operators may share. NULL: the desc itself. CKL_INVALID with a sentence.
     */
    ckl_status (*view)(const void *desc, void *view);
    size_t view_bytes;

    /*
     * Reads a problem line into a desc, which is checked, and the text that its impl= and config= force, NULL without
     * these. CKL_INVALID with a sentence. NULL: there are no such lines.
     */
    ckl_status (*read)(const problem_line *line, arena *memory, void *desc, const char **force);

    /* Checks what else is in the args of a call. NULL: nothing. */
    ckl_status (*check_args)(const void *desc, const void *args);

    const implementation *const *implementations; // in order of preference, NULL at the end
    const plan_step *before, *after;              // NULL: there are none
} operator_info;

/* Kernels of a plan: those of the implementation, which are numbered first, and the operator's steps. */
int plan_kernels(const operator_info *op, const implementation *impl, const void *config);
const plan_step *plan_step_at(const operator_info *op, const implementation *impl, const void *config,
                              int which); // NULL: it is the implementation's

/* A parameter of a loaded kernel: where the launch finds it. */
typedef struct plan_param {
    size_t offset;     // in the implementation's struct of parameters
    ir_tensor_map map; // rank 0: a scalar
} plan_param;

/* A loaded kernel shared by all plans of the same implementation and config on a device. */
typedef struct plan_kernel {
    device_kernel *loaded;
    int threads; // per CTA
    int cluster;
    int clusters_resident; // that the device holds at once
    int64_t smem_bytes;
    int param_count;
    plan_param params[IR_PARAMS_MAX];
} plan_kernel;

struct ckl_plan {
    ckl_device *device;
    const operator_info *op;
    const implementation *impl;
    const void *desc; // checked, with defaults filled in; the operator's view of it where there is one
    const void *config;
    const plan_tensor *tensors;
    int tensor_count;
    const char *text;           // "gemm sm90 tile_m=128 ..."
    const plan_kernel *kernels; // plan_kernels() of them
    int64_t workspace_bytes;
    int64_t own_workspace_bytes; // of the implementation, at its start
    void *workspace;             // the plan's own, used when the caller passes none: one run at a time
};

/*
 * Makes a plan. A problem whose outputs have no elements gets one without a kernel. force is NULL, or an implementation
 * and some fields of its config, numbers of which are at most 2^20: "sm90", "sm90 tile_m=128 stages=3". When every
 * implementation declines, the sentence lists each of them and its reason.
 */
ckl_status plan_build(ckl_device *device, const operator_info *op, const void *desc, const char *force,
                      ckl_plan **plan);

/*
 * Loads the kernels that plan_build() would, and keeps them until the device is closed. Where another thread is loading
 * the same ones and this one does not wait, *busy is true: it can do something else, and ask again.
 */
ckl_status plan_warm(ckl_device *device, const operator_info *op, const void *desc, const char *force, bool wait,
                     bool *busy);

/* Checks the arguments and enqueues. The plan must be one of op. */
ckl_status plan_run(const ckl_plan *plan, const operator_info *op, const void *args, ckl_stream stream);

/*
 * plan_build() through this process's cache of plans, then plan_run(). A plan with workspace is cached per stream, so
 * that calls on several streams never share it.
 */
ckl_status plan_once(ckl_device *device, const operator_info *op, const void *desc, const void *args,
                     ckl_stream stream);

/* Checks a desc and fills in its defaults, in place: fields, relations, extents. CKL_INVALID with a sentence. */
ckl_status plan_check_desc(const operator_info *op, void *desc);

/* A checked copy of a desc, defaults filled in, or the operator's view of it: what implementations get. In memory. */
ckl_status plan_desc(const operator_info *op, const void *desc, arena *memory, const void **checked);

/* A candidate that may compute a desc, and what it would cost. */
typedef struct plan_candidate {
    int number; // what implementation.candidate() takes
    plan_cost cost;
} plan_candidate;

/*
 * The cheapest candidates of an implementation that has some, in order, `most` of them or fewer; returns how many.
 * `config` is room for one. If none may compute the desc, the thread's sentence says why the last one may not.
 */
int plan_rank(const ckl_device_info *device, const implementation *impl, const void *desc, void *config, int most,
              plan_candidate *out);

/* Fills in candidate number i over the defaults; false after the last. */
bool plan_candidate_config(const ckl_device_info *device, const implementation *impl, const void *desc, int i,
                           void *config);

/* The target that kernels are printed for on a device. */
ir_target plan_target(const ckl_device_info *device);

/* Describes and verifies kernel number `which` of a config for a target, without a device. The caller frees it. */
ckl_status plan_describe(const operator_info *op, const implementation *impl, const void *config, int which,
                         ir_target target, ir_kernel **kernel);

/*
 * Finds the parameters of a described kernel in its implementation's list. CKL_INTERNAL: one is missing there, or has
 * another type, or is a tensor map of which the kernel has not said the box.
 */
ckl_status plan_bind_params(const ir_kernel *kernel, const param_list *list, plan_kernel *bound);

/* CTAs of a launch; 0 along y and z means 1. */
typedef struct plan_grid {
    int64_t x, y, z;
} plan_grid;

/* Enqueues kernel number `which`, unless the grid has no CTA; params: the struct that KERNEL_PARAMS() made. */
ckl_status plan_launch(const ckl_plan *plan, int which, plan_grid grid, const void *params, ckl_stream stream);

/* The workspace of a run: the caller's if there is one, else the plan's own. */
static inline void *plan_workspace(const ckl_plan *plan, void *workspace)
{
    return workspace ? workspace : plan->workspace;
}

/* Chooses as plan_build() does but compiles nothing; *config is in memory. */
ckl_status plan_choose(const ckl_device_info *device, const operator_info *op, const void *desc, const char *force,
                       arena *memory, const implementation **impl, void **config);

/* Appends where the tuned entry stands that plan_choose() takes without force (tuned.h): nothing if it takes none. */
ckl_status plan_origin(const ckl_device_info *device, const operator_info *op, const void *desc, arena *memory,
                       text *out);

/* The implementation of that name, or NULL. */
const implementation *plan_find_implementation(const operator_info *op, const char *name);

/* Frees the kernels and plans cached for a device; ckl_device_close() calls it. */
void plan_forget_device(ckl_device *device);

/* Device memory of one run's arguments overlaps: [a, a+a_bytes) and [b, b+b_bytes). */
bool plan_overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes);
