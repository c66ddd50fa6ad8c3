/* cache.c - plans of the one-call form, found by the fields of the desc. */
#include "plan/cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plan/desc.h"

enum { BUCKETS = 256, KEPT_MAX = 4096 };

/* What plans are found by: plan_desc_key(). */
typedef union cache_key {
    max_align_t align;
    unsigned char bytes[PLAN_DESC_BYTES_MAX];
} cache_key;

typedef struct entry {
    struct entry *next;
    ckl_device *device;
    const operator_info *op;
    ckl_plan *plan;
    ckl_stream stream; // that a plan with workspace belongs to
    int users;         // calls under way
    unsigned char key[];
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *buckets[BUCKETS];
static int kept;

/* FNV-1a over 64-bit words. */
static entry **bucket_of(const operator_info *op, const void *key)
{
    uint64_t hash = 0xcbf29ce484222325, word = 0;
    const unsigned char *bytes = key;
    for (size_t i = 0; i < op->desc_bytes; i += sizeof word) {
        memcpy(&word, bytes + i, op->desc_bytes - i < sizeof word ? op->desc_bytes - i : sizeof word);
        hash = (hash ^ word) * 0x100000001b3;
    }
    return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

/* Runs on two streams may overlap, and then a workspace cannot serve both. */
static bool serves(const entry *e, ckl_stream stream)
{
    return e->plan->workspace_bytes == 0 || e->stream == stream;
}

static entry *find(ckl_device *device, const operator_info *op, const void *key, ckl_stream stream)
{
    for (entry *e = *bucket_of(op, key); e; e = e->next)
        if (e->device == device && e->op == op && memcmp(e->key, key, op->desc_bytes) == 0 && serves(e, stream))
            return e;
    return NULL;
}

static void free_entry(entry *e)
{
    ckl_plan_free(e->plan);
    free(e);
}

/* Takes some unused plan out of a full cache; NULL if it is not full. Holds the lock. */
static entry *make_room(void)
{
    if (kept < KEPT_MAX)
        return NULL;
    for (int b = 0; b < BUCKETS; b++)
        for (entry **link = &buckets[b]; *link; link = &(*link)->next)
            if ((*link)->users == 0) {
                entry *taken = *link;
                *link = taken->next;
                kept--;
                return taken;
            }
    return NULL;
}

/* Keeps a plan; its first user is the caller. */
static entry *keep(ckl_device *device, const operator_info *op, const void *key, ckl_stream stream, ckl_plan *plan)
{
    entry *e = malloc(sizeof *e + op->desc_bytes);
    if (!e)
        return NULL;
    *e = (entry){ .device = device, .op = op, .plan = plan, .stream = stream, .users = 1 };
    memcpy(e->key, key, op->desc_bytes);

    pthread_mutex_lock(&lock);
    entry *surplus = make_room();
    entry **bucket = bucket_of(op, key);
    e->next = *bucket;
    *bucket = e;
    kept++;
    pthread_mutex_unlock(&lock);
    if (surplus)
        free_entry(surplus); // releasing its memory waits for the work that still uses it
    return e;
}

/* The plan of a desc, kept; the caller is one of its users. */
static ckl_status borrow(ckl_device *device, const operator_info *op, const void *desc, ckl_stream stream, entry **out)
{
    cache_key key;
    assert(op->desc_bytes <= sizeof key.bytes);
    plan_desc_key(op, desc, &key);
    pthread_mutex_lock(&lock);
    entry *e = find(device, op, &key, stream);
    if (e)
        e->users++;
    pthread_mutex_unlock(&lock);

    if (!e) { // two threads may both come here: then both plans are kept, which is harmless
        ckl_plan *plan;
        TRY(plan_build(device, op, desc, NULL, &plan));
        e = keep(device, op, &key, stream, plan);
        if (!e) {
            ckl_plan_free(plan);
            FAIL(CKL_NO_MEMORY, "%s: no memory for a plan", op->name);
        }
    }
    *out = e;
    return CKL_OK;
}

ckl_status plan_cached(ckl_device *device, const operator_info *op, const void *desc, ckl_stream stream,
                       plan_work *work, void *user)
{
    entry *e;
    TRY(borrow(device, op, desc, stream, &e));
    ckl_status status = work(e->plan, user);
    pthread_mutex_lock(&lock);
    e->users--;
    pthread_mutex_unlock(&lock);
    return status;
}

typedef struct once {
    const operator_info *op;
    const void *args;
    ckl_stream stream;
} once;

static ckl_status run_once(const ckl_plan *plan, void *user)
{
    const once *o = user;
    return plan_run(plan, o->op, o->args, o->stream);
}

ckl_status plan_once(ckl_device *device, const operator_info *op, const void *desc, const void *args, ckl_stream stream)
{
    if (!desc || !args)
        FAIL(CKL_INVALID, "%s: %s is NULL", op->name, desc ? "args" : "desc");
    return plan_cached(device, op, desc, stream, run_once, &(once){ op, args, stream });
}

void plan_cache_forget(ckl_device *device)
{
    pthread_mutex_lock(&lock);
    for (int b = 0; b < BUCKETS; b++)
        for (entry **link = &buckets[b], *e; (e = *link);) {
            if (e->device != device) {
                link = &e->next;
                continue;
            }
            *link = e->next;
            kept--;
            free_entry(e);
        }
    pthread_mutex_unlock(&lock);
}
