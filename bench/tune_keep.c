/* tune_keep.c - the winner becomes a line of a tuned store. */
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/tune.h"
#include "plan/desc.h"
#include "plan/tuned.h"

/* The problem that is kept: lines of the same one go. */
typedef struct subject {
    const test_case *c;
    const operator_info *op;
    const char *device;
    const void *key;
    arena memory;
} subject;

/* A config inside of quotes. What would need quotes itself, an expression, is taken from the problem. */
static ckl_status print_config(subject *s, const char *config, text *out)
{
    problem_line split;
    TRY(problem_split(&s->memory, config, &split));
    text_printf(out, " config='%s", split.op);
    for (int i = 0; i < split.count; i++)
        if (problem_is_word(split.pairs[i].value))
            text_printf(out, " %s=%s", split.pairs[i].key, split.pairs[i].value);
    text_printf(out, "'");
    return CKL_OK;
}

static ckl_status print_line(subject *s, const tune_trial *winner, text *out)
{
    text_printf(out, "%s device='%s'%s%s", s->op->name, s->device, *s->c->fields ? " " : "", s->c->fields);
    TRY(print_config(s, winner->config, out));
    text_printf(out, " # %.4g us, before %.4g us\n", winner->median_us, winner->choice_us);
    return CKL_OK;
}

static bool is_same(subject *s, const char *line)
{
    problem_line split;
    tuned_entry entry = { 0 };
    if (problem_split(&s->memory, line, &split) != CKL_OK || !split.op || strcmp(split.op, s->op->name) != 0 ||
        tuned_parse(s->op, &split, &s->memory, &entry) != CKL_OK)
        return false;
    return strcmp(entry.device, s->device) == 0 && memcmp(entry.key, s->key, s->op->desc_bytes) == 0;
}

/* The lines of a store but those of the problem. */
static void print_others(subject *s, char *lines, text *out)
{
    for (char *line = lines, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        if (!is_same(s, line))
            text_printf(out, "%s\n", line);
    }
}

static ckl_status make_folder(const char *path)
{
    char whole[TUNED_PATH_BYTES], parent[TUNED_PATH_BYTES];
    snprintf(whole, sizeof whole, "%s", path);
    const char *folder = dirname(whole);
    snprintf(parent, sizeof parent, "%s", folder);
    mkdir(dirname(parent), 0700); // both may be there
    if (mkdir(folder, 0700) && errno != EEXIST)
        FAIL(CKL_INVALID, "tune: folder %s cannot be made: %s", folder, strerror(errno));
    return CKL_OK;
}

/* A reader sees the old file or the new one. */
static ckl_status replace_file(const char *path, const text *content)
{
    char fresh[TUNED_PATH_BYTES + 16];
    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    FILE *file = fopen(fresh, "wxe");
    bool written = file && fwrite(content->data, 1, content->length, file) == content->length;
    if (file)
        written = fclose(file) == 0 && written && chmod(fresh, 0600) == 0 && rename(fresh, path) == 0;
    if (written)
        return CKL_OK;
    status_fail(CKL_INVALID, "tune: %s cannot be written: %s", path, strerror(errno));
    unlink(fresh);
    return CKL_INVALID;
}

ckl_status tune_keep(const test_case *c, const tune_result *result, const char *path)
{
    subject s = { .c = c, .op = c->test->op, .device = tuned_device_name(&result->device) };
    text before = { 0 }, after = { 0 };
    void *key = arena_alloc(&s.memory, 1, s.op->desc_bytes);
    plan_desc_key(s.op, case_desc(c, &s.memory), key); // of a checked desc: parsing the case has done that
    s.key = key;
    ckl_status status = tuned_read_file(path, false, &before);
    if (status == CKL_OK && before.length)
        print_others(&s, before.data, &after);
    if (status == CKL_OK)
        status = print_line(&s, &result->finals[0], &after);
    if (status == CKL_OK)
        status = make_folder(path);
    if (status == CKL_OK)
        status = replace_file(path, &after);
    text_free(&before);
    text_free(&after);
    arena_clear(&s.memory);
    return status;
}
