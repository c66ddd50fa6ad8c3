/* tuned.c - the sources of tuned lines, read once, and the table of each operator, made when it is first planned. */
#define _GNU_SOURCE // secure_getenv

#include "plan/tuned.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/log.h"
#include "plan/desc.h"

static const char *const TOPIC = "tuned";

/* The text of a file or of the table that is built in: lines, each ended by a zero. */
typedef struct source {
    const char *name;
    const char *const *lines;
    int count;
} source;

typedef struct operator_table {
    struct operator_table *next;
    const operator_info *op;
    tuned_table table;
} operator_table;

enum { SOURCES_MAX = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tuned_store {
    arena memory;
    bool loaded;
    source sources[SOURCES_MAX];
    int source_count;
    operator_table *tables;
} store;

/* Lines */

const char *tuned_device_name(const ckl_device_info *device)
{
    static const char emulated[] = "emulated ";
    size_t length = sizeof emulated - 1;
    return device->emulated && strncmp(device->name, emulated, length) == 0 ? device->name + length : device->name;
}

bool tuned_is_for(const tuned_entry *entry, const ckl_device_info *device)
{
    return strcmp(entry->device, tuned_device_name(device)) == 0;
}

/* Does the text name an implementation, fields that it has, and values that these take? */
static ckl_status check_config(const operator_info *op, const char *force, arena *memory)
{
    problem_line line;
    TRY(problem_split(memory, force, &line));
    const implementation *impl = line.op ? plan_find_implementation(op, line.op) : NULL;
    if (!impl)
        FAIL(CKL_INVALID, "%s: config='%s' does not begin with an implementation", op->name, force);
    void *config = arena_alloc(memory, 1, impl->config_bytes);
    for (int i = 0; i < line.count; i++)
        TRY(fields_set(impl->config, op->name, line.pairs[i].key, line.pairs[i].value, config));
    return CKL_OK;
}

/* The line without device=, which is taken from it. */
static problem_line take_device(const problem_line *split, arena *memory, const char **device)
{
    problem_line rest = { .op = split->op, .pairs = arena_alloc(memory, (size_t)split->count, sizeof *rest.pairs) };
    for (int i = 0; i < split->count; i++)
        if (strcmp(split->pairs[i].key, "device") == 0)
            *device = split->pairs[i].value;
        else
            rest.pairs[rest.count++] = split->pairs[i];
    return rest;
}

ckl_status tuned_parse(const operator_info *op, const problem_line *split, arena *memory, tuned_entry *entry)
{
    void *desc = arena_alloc(memory, 1, op->desc_bytes), *key = arena_alloc(memory, 1, op->desc_bytes);
    entry->device = entry->force = NULL;
    const problem_line problem = take_device(split, memory, &entry->device);
    TRY(op->read(&problem, memory, desc, &entry->force));
    if (!entry->device || !entry->force)
        FAIL(CKL_INVALID, "%s: the line has no %s=", op->name, entry->device ? "config" : "device");
    TRY(check_config(op, entry->force, memory));
    plan_desc_key(op, desc, key);
    entry->desc = desc;
    entry->key = key;
    return CKL_OK;
}

/* Sources */

/* Cuts a text at its ends of lines. */
static source cut(const char *name, const text *content)
{
    source s = { .name = arena_text(&store.memory, name), .count = 1 };
    char *copy = arena_alloc(&store.memory, content->length + 1, 1);
    memcpy(copy, text_data(content), content->length);
    for (size_t i = 0; i < content->length; i++)
        s.count += copy[i] == '\n';
    const char **lines = arena_alloc(&store.memory, (size_t)s.count, sizeof *lines);
    lines[0] = copy;
    for (size_t i = 0, line = 0; i < content->length; i++)
        if (copy[i] == '\n') {
            copy[i] = '\0';
            lines[++line] = copy + i + 1;
        }
    s.lines = lines;
    return s;
}

static void add_file(const char *path, bool ours)
{
    text content = { 0 };
    if (tuned_read_file(path, ours, &content) != CKL_OK)
        log_say(TOPIC, "%s; it is left out", ckl_error());
    else if (content.length)
        store.sources[store.source_count++] = cut(path, &content);
    else if (!ours)
        log_say(TOPIC, "%s is empty, or there is no such file", path);
    text_free(&content);
}

static ckl_status load(void *user)
{
    (void)user;
    char path[TUNED_PATH_BYTES];
    const char *given = secure_getenv("CKL_TUNED");
    if (given && strcmp(given, "off") == 0)
        return CKL_OK;
    if (given && *given)
        add_file(given, false);
    if (tuned_user_path(path))
        add_file(path, true);
    source *shipped = &store.sources[store.source_count++];
    *shipped = (source){ .name = "built-in table", .lines = tuned_shipped };
    while (tuned_shipped[shipped->count])
        shipped->count++;
    return CKL_OK;
}

/* Tables */

/* Is the line's first word the operator's name? Only then it is taken apart. */
static bool begins_with(const char *line, const char *name)
{
    line += strspn(line, " \t");
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '\t');
}

static int count_lines(const operator_info *op)
{
    int count = 0;
    for (const source *s = store.sources; s < store.sources + store.source_count; s++)
        for (int i = 0; i < s->count; i++)
            count += begins_with(s->lines[i], op->name);
    return count;
}

static ckl_status parse_line(const operator_info *op, const char *line, tuned_entry *entry)
{
    problem_line split;
    TRY(problem_split(&store.memory, line, &split));
    return tuned_parse(op, &split, &store.memory, entry);
}

static ckl_status make_table(void *user)
{
    operator_table *t = arena_alloc(&store.memory, 1, sizeof *t);
    t->op = user;
    tuned_entry *entries = arena_alloc(&store.memory, (size_t)count_lines(t->op), sizeof *entries);
    for (const source *s = store.sources; s < store.sources + store.source_count; s++)
        for (int i = 0; i < s->count; i++) {
            if (!t->op->read || !begins_with(s->lines[i], t->op->name))
                continue;
            tuned_entry *e = &entries[t->table.count];
            *e = (tuned_entry){ .source = s->name, .line = i + 1 };
            if (parse_line(t->op, s->lines[i], e) == CKL_OK)
                t->table.count++;
            else
                log_say(TOPIC, "%s:%d: %s; the line is left out", e->source, e->line, ckl_error());
        }
    t->table.entries = entries;
    t->next = store.tables;
    store.tables = t;
    return CKL_OK;
}

/* Where memory runs out, the guard frees what was added: the store is as before. */
static ckl_status guarded(ckl_status (*work)(void *user), const void *user)
{
    struct tuned_store before = store;
    ckl_status status = heap_guard("the tuned store", work, (void *)(uintptr_t)user);
    if (status != CKL_OK)
        store = before;
    return status;
}

static ckl_status find_or_make(const operator_info *op, const tuned_table **table)
{
    if (!store.loaded)
        TRY(guarded(load, NULL));
    store.loaded = true;
    for (;;) {
        for (const operator_table *t = store.tables; t; t = t->next)
            if (t->op == op) {
                *table = &t->table;
                return CKL_OK;
            }
        TRY(guarded(make_table, op));
    }
}

ckl_status tuned_table_of(const operator_info *op, const tuned_table **table)
{
    pthread_mutex_lock(&lock);
    ckl_status status = find_or_make(op, table);
    pthread_mutex_unlock(&lock);
    return status;
}

void tuned_forget(void)
{
    pthread_mutex_lock(&lock);
    arena_clear(&store.memory);
    memset(&store, 0, sizeof store);
    pthread_mutex_unlock(&lock);
}
