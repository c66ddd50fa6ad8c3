/* kernel_cache.c - a list of loaded kernel sets; those that no plan uses stay for a while, the oldest leave first. */
#include "plan/kernel_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/heap.h"
#include "ir/build.h"

enum { IDLE_MAX = 64 }; // unused sets kept: a tuner walks through thousands of configs, a program through a few dozen

struct kernel_set {
    kernel_set *next;
    ckl_device *device;
    const implementation *impl;
    char *key;         // operator, implementation and config
    uint64_t hash;     // of key
    bool ready;        // false: another thread is building it
    int users;         // plans, and threads that wait
    uint64_t released; // when the last user left: the value of `releases` then
    double seconds;    // of building it
    plan_kernel kernels[PLAN_KERNELS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t built = PTHREAD_COND_INITIALIZER; // a set became ready, or was dropped because building failed
static kernel_set *sets;
static uint64_t releases;

static void unlink_set(kernel_set *set)
{
    kernel_set **link = &sets;
    while (*link != set)
        link = &(*link)->next;
    *link = set->next;
}

static void free_set(kernel_set *set)
{
    for (int i = 0; i < PLAN_KERNELS_MAX; i++)
        if (set->kernels[i].loaded)
            set->device->ops->unload(set->device, set->kernels[i].loaded);
    free(set->key);
    free(set);
}

static kernel_set *find(ckl_device *device, const implementation *impl, const char *key, uint64_t hash)
{
    for (kernel_set *set = sets; set; set = set->next)
        if (set->hash == hash && set->device == device && set->impl == impl && strcmp(set->key, key) == 0)
            return set;
    return NULL;
}

static ckl_status load(ckl_device *device, const param_list *params, const ir_kernel *described, plan_kernel *kernel)
{
    TRY(device_check_limits(&device->info, described));
    plan_kernel made = { .threads = described->threads,
                         .cluster = described->cluster,
                         .smem_bytes = described->smem_bytes };
    TRY(plan_bind_params(described, params, &made));
    TRY(device->ops->load(device, described, &made.loaded));
    ckl_status status = device->ops->clusters_resident(device, made.loaded, &made.clusters_resident);
    if (status == CKL_OK && made.clusters_resident < 1)
        status = status_fail(CKL_UNSUPPORTED, "%s: no cluster of %d CTAs finds room on %s", described->name,
                             described->cluster, device->info.id);
    if (status != CKL_OK) {
        device->ops->unload(device, made.loaded);
        return status;
    }
    *kernel = made;
    return CKL_OK;
}

/* A kernel to be built. */
typedef struct kernel_request {
    kernel_set *set;
    const operator_info *op;
    const void *config;
    int which;
} kernel_request;

static ckl_status build_kernel(void *user)
{
    const kernel_request *r = user;
    kernel_set *set = r->set;
    ir_kernel *described;
    TRY(plan_describe(r->op, set->impl, r->config, r->which, plan_target(&set->device->info), &described));
    const implementation *impl = set->impl;
    const plan_step *step = plan_step_at(r->op, impl, r->config, r->which);
    const param_list *own = impl->own_params && r->which >= impl->own_from ? impl->own_params : impl->params;
    ckl_status status = load(set->device, step ? step->params : own, described, &set->kernels[r->which]);
    ir_kernel_free(described);
    if (status != CKL_OK)
        FAIL(status, "%s: %s", set->key, ckl_error());
    return CKL_OK;
}

/* Each kernel under its own guard: those before it are loaded, and belong to the device. */
static ckl_status build(kernel_set *set, const operator_info *op, const void *config)
{
    int count = plan_kernels(op, set->impl, config);
    assert(count <= PLAN_KERNELS_MAX);
    for (int which = 0; which < count; which++) {
        ckl_status status = heap_guard(set->key, build_kernel, &(kernel_request){ set, op, config, which });
        if (status == CKL_NO_MEMORY)
            ir_describe_forget();
        TRY(status);
    }
    return CKL_OK;
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A new set, not ready, in the list. */
static kernel_set *add(ckl_device *device, const implementation *impl, const char *key, uint64_t hash)
{
    kernel_set *set = malloc(sizeof *set);
    if (!set)
        return NULL;
    *set = (kernel_set){ .next = sets, .device = device, .impl = impl, .key = strdup(key), .hash = hash, .users = 1 };
    if (!set->key) {
        free(set);
        return NULL;
    }
    return sets = set;
}

/*
 * The set with that key, once it is ready, or as it is if this caller does not wait; NULL if there is none. Holds the
 * lock.
 */
static kernel_set *join(ckl_device *device, const implementation *impl, const char *key, uint64_t hash, bool wait)
{
    kernel_set *set;
    while ((set = find(device, impl, key, hash)) && !set->ready && wait)
        pthread_cond_wait(&built, &lock);
    return set;
}

/*
 * The set of a config for one more user; NULL if another thread builds it and this one does not wait. Building takes
 * milliseconds to seconds and happens outside of the lock.
 */
static ckl_status get(ckl_device *device, const operator_info *op, const implementation *impl, const void *config,
                      const char *key, bool wait, kernel_set **set)
{
    uint64_t hash = hash_bytes(HASH_START, key, strlen(key));
    pthread_mutex_lock(&lock);
    kernel_set *found = join(device, impl, key, hash, wait);
    kernel_set *made = found ? NULL : add(device, impl, key, hash);
    if (found && !found->ready)
        *set = NULL;
    else if (found) {
        found->users++;
        *set = found;
    }
    pthread_mutex_unlock(&lock);
    if (found)
        return CKL_OK;
    if (!made)
        FAIL(CKL_NO_MEMORY, "%s: no memory for a plan", key);

    const double begin = now_seconds();
    ckl_status status = build(made, op, config);
    pthread_mutex_lock(&lock);
    made->seconds = now_seconds() - begin;
    made->ready = status == CKL_OK;
    if (status != CKL_OK)
        unlink_set(made);
    pthread_cond_broadcast(&built);
    pthread_mutex_unlock(&lock);
    if (status != CKL_OK)
        free_set(made);
    else
        *set = made;
    return status;
}

ckl_status kernel_cache_get(ckl_device *device, const operator_info *op, const implementation *impl, const void *config,
                            const char *key, kernel_set **set)
{
    return get(device, op, impl, config, key, true, set);
}

ckl_status kernel_cache_warm(ckl_device *device, const operator_info *op, const implementation *impl,
                             const void *config, const char *key, bool wait, bool *busy)
{
    kernel_set *set;
    TRY(get(device, op, impl, config, key, wait, &set)); // and never released
    *busy = !set;
    return CKL_OK;
}

/* Takes the longest unused set out of the list if there are too many; NULL if not. Holds the lock. */
static kernel_set *take_oldest_idle(void)
{
    kernel_set *oldest = NULL;
    int idle = 0;
    for (kernel_set *set = sets; set; set = set->next)
        if (set->users == 0) {
            idle++;
            if (!oldest || set->released < oldest->released)
                oldest = set;
        }
    if (idle <= IDLE_MAX)
        return NULL;
    unlink_set(oldest);
    return oldest;
}

void kernel_cache_release(kernel_set *set)
{
    pthread_mutex_lock(&lock);
    kernel_set *surplus = NULL;
    if (--set->users == 0) {
        set->released = ++releases;
        surplus = take_oldest_idle();
    }
    pthread_mutex_unlock(&lock);
    if (surplus)
        free_set(surplus);
}

const plan_kernel *kernel_cache_kernels(const kernel_set *set)
{
    return set->kernels;
}

kernel_cache_sums kernel_cache_count(const ckl_device *device)
{
    kernel_cache_sums sums = { 0 };
    pthread_mutex_lock(&lock);
    for (const kernel_set *set = sets; set; set = set->next) {
        if (set->device != device || !set->ready)
            continue;
        sums.sets++;
        sums.seconds += set->seconds;
        for (int i = 0; i < PLAN_KERNELS_MAX; i++)
            sums.kernels += set->kernels[i].loaded != NULL;
    }
    pthread_mutex_unlock(&lock);
    return sums;
}

void kernel_cache_forget(ckl_device *device)
{
    pthread_mutex_lock(&lock);
    for (kernel_set **link = &sets, *set; (set = *link);) {
        if (set->device != device) {
            link = &set->next;
            continue;
        }
        *link = set->next;
        free_set(set);
    }
    pthread_mutex_unlock(&lock);
}
