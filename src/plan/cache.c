/* cache.c - plans of the one-call form, found by the fields of the desc. */
#include "plan/cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 256, KEPT_MAX = 4096 };

/* What plans are found by: plan_desc_key(). */
typedef union cache_key {
    max_align_t align;
    unsigned char bytes[PLAN_DESC_BYTES_MAX];
} cache_key;

struct plan_use {
    struct plan_use *next;
    ckl_device *device;
    const operator_info *op;
    ckl_plan *plan;
    ckl_stream stream; // that a plan with workspace belongs to
    int users;         // calls under way
    unsigned char key[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static plan_use *buckets[BUCKETS];
static int kept;

/* Field by field: padding between them does not count. */
void plan_desc_key(const operator_info *op, const void *desc, void *key)
{
    memset(key, 0, op->desc_bytes);
    for (int i = 0; i < op->desc.count; i++) {
        const field *f = &op->desc.rows[i];
        memcpy((char *)key + f->offset, (const char *)desc + f->offset, field_bytes(f));
    }
    for (const desc_member *m = op->members; m && m->bytes; m++)
        memcpy((char *)key + m->offset, (const char *)desc + m->offset, m->bytes);
}

/* FNV-1a over 64-bit words. */
static plan_use **bucket_of(const operator_info *op, const void *key)
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
static bool serves(const plan_use *e, ckl_stream stream)
{
    return e->plan->workspace_bytes == 0 || e->stream == stream;
}

static plan_use *find(ckl_device *device, const operator_info *op, const void *key, ckl_stream stream)
{
    for (plan_use *e = *bucket_of(op, key); e; e = e->next)
        if (e->device == device && e->op == op && memcmp(e->key, key, op->desc_bytes) == 0 && serves(e, stream))
            return e;
    return NULL;
}

static void free_entry(plan_use *e)
{
    ckl_plan_free(e->plan);
    free(e);
}

/* Takes some unused plan out of a full cache; NULL if it is not full. Holds the lock. */
static plan_use *make_room(void)
{
    if (kept < KEPT_MAX)
        return NULL;
    for (int b = 0; b < BUCKETS; b++)
        for (plan_use **link = &buckets[b]; *link; link = &(*link)->next)
            if ((*link)->users == 0) {
                plan_use *taken = *link;
                *link = taken->next;
                kept--;
                return taken;
            }
    return NULL;
}

/* Keeps a plan; its first user is the caller. */
static plan_use *keep(ckl_device *device, const operator_info *op, const void *key, ckl_stream stream, ckl_plan *plan)
{
    plan_use *e = malloc(sizeof *e + op->desc_bytes);
    if (!e)
        return NULL;
    *e = (plan_use){ .device = device, .op = op, .plan = plan, .stream = stream, .users = 1 };
    memcpy(e->key, key, op->desc_bytes);

    pthread_mutex_lock(&lock);
    plan_use *surplus = make_room();
    plan_use **bucket = bucket_of(op, key);
    e->next = *bucket;
    *bucket = e;
    kept++;
    pthread_mutex_unlock(&lock);
    if (surplus)
        free_entry(surplus); // releasing its memory waits for the work that still uses it
    return e;
}

ckl_status plan_borrow(ckl_device *device, const operator_info *op, const void *desc, ckl_stream stream, plan_use **use)
{
    cache_key key;
    assert(op->desc_bytes <= sizeof key.bytes);
    plan_desc_key(op, desc, &key);
    pthread_mutex_lock(&lock);
    plan_use *e = find(device, op, &key, stream);
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
    *use = e;
    return CKL_OK;
}

const ckl_plan *plan_borrowed(const plan_use *use)
{
    return use->plan;
}

void plan_return(plan_use *use)
{
    pthread_mutex_lock(&lock);
    use->users--;
    pthread_mutex_unlock(&lock);
}

ckl_status plan_once(ckl_device *device, const operator_info *op, const void *desc, const void *args, ckl_stream stream)
{
    if (!desc || !args)
        FAIL(CKL_INVALID, "%s: %s is NULL", op->name, desc ? "args" : "desc");
    plan_use *use;
    TRY(plan_borrow(device, op, desc, stream, &use));
    ckl_status status = plan_run(use->plan, op, args, stream);
    plan_return(use);
    return status;
}

void plan_cache_forget(ckl_device *device)
{
    pthread_mutex_lock(&lock);
    for (int b = 0; b < BUCKETS; b++)
        for (plan_use **link = &buckets[b], *e; (e = *link);) {
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
