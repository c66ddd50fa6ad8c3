/* named.c - lists of what a process made known by a name, under one lock. */
#include "plan/named.h"

#include <ctype.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *name_of(const void *one)
{
    return *(const char *const *)one;
}

static bool is_none(const char *name)
{
    return !name || !*name || strcmp(name, "none") == 0;
}

/* Holds the lock. */
static const void *find(const named_list *list, const char *name)
{
    for (const void *const *own = list->own; *own; own++)
        if (strcmp(name_of(*own), name) == 0)
            return *own;
    for (int i = 0; i < list->count; i++) {
        const void *one = (const char *)list->added + (size_t)i * list->bytes;
        if (strcmp(name_of(one), name) == 0)
            return one;
    }
    return NULL;
}

const void *named_find(named_list *list, const char *name)
{
    if (is_none(name))
        return NULL;
    pthread_mutex_lock(&lock);
    const void *one = find(list, name);
    pthread_mutex_unlock(&lock);
    return one;
}

/* All but their names, which are equal texts. */
static bool is_same(const named_list *list, const void *a, const void *b)
{
    const size_t name = sizeof(const char *);
    return memcmp((const char *)a + name, (const char *)b + name, list->bytes - name) == 0;
}

static ckl_status check_name(const named_list *list, const char *name)
{
    bool is_word = !is_none(name);
    for (const char *c = name; is_word && *c; c++)
        is_word = isalnum((unsigned char)*c) || *c == '_';
    if (!is_word)
        FAIL(CKL_INVALID, "%s: the name '%s' is none, or not of letters, digits and _", list->adder, name);
    return CKL_OK;
}

ckl_status named_add(named_list *list, const void *one)
{
    TRY(check_name(list, name_of(one)));
    pthread_mutex_lock(&lock);
    const void *there = find(list, name_of(one));
    const bool is_full = !there && list->count == NAMED_MAX;
    if (!there && !is_full)
        memcpy((char *)list->added + (size_t)list->count++ * list->bytes, one, list->bytes);
    pthread_mutex_unlock(&lock);
    if (is_full)
        FAIL(CKL_UNSUPPORTED, "%s: there are %d %ss already", list->adder, NAMED_MAX, list->noun);
    if (there && !is_same(list, there, one))
        FAIL(CKL_INVALID, "%s: there is another %s '%s'", list->adder, list->noun, name_of(one));
    return CKL_OK;
}
