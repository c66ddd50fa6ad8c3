/* tune_evidence.c - what was tried, a JSON line each, after a line that says where and how. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fields.h"
#include "base/heap.h"
#include "bench/results_json.h"
#include "bench/tune_parts.h"

const char *const tune_outcome_names[TUNE_OUTCOME_COUNT] = {
#define X(name, words) words,
    TUNE_OUTCOMES(X)
#undef X
};

static const result_member header_members[] = { TUNE_HEADER(RESULT_ROW) };
static const result_member trial_members[] = { TUNE_TRIAL(RESULT_ROW) };
const result_table tune_header_table = FIELD_TABLE(header_members);
const result_table tune_trial_table = FIELD_TABLE(trial_members);

/* Reading */

/* Members of the header that must be what they are now. */
static ckl_status check_same(const char *what, const char *member, const char *there, const char *now)
{
    if (strcmp(there, now) != 0)
        FAIL(CKL_INVALID, "%s: %s='%s' is not what is tuned now, '%s': begin another file", what, member, there, now);
    return CKL_OK;
}

static ckl_status check_header(const json_t *line, const char *what, const tune_header *now)
{
    tune_header there;
    const char *schema = json_string_value(json_object_get(line, "schema"));
    const json_t *version = json_object_get(line, "version");
    if (!schema || strcmp(schema, TUNE_SCHEMA) != 0)
        FAIL(CKL_INVALID, "%s: schema='%s' is not '%s'", what, schema ? schema : "", TUNE_SCHEMA);
    if (!json_is_integer(version) || json_integer_value(version) != TUNE_VERSION)
        FAIL(CKL_INVALID, "%s: version=%" PRId64 " is not %d", what, (int64_t)json_integer_value(version),
             TUNE_VERSION);
    TRY(result_demand_json(&tune_header_table, line, what, &there));
    TRY(check_same(what, "gpu", there.gpu, now->gpu));
    TRY(check_same(what, "driver", there.driver, now->driver));
    return check_same(what, "method", there.method, now->method);
}

static ckl_status keep(tune_evidence *e, const json_t *from, const char *what, const char *line)
{
    tune_trial t;
    TRY(result_demand_json(&tune_trial_table, from, what, &t));
    if (strcmp(t.line, line) != 0)
        return CKL_OK;
    e->known = heap_resize(e->known, (size_t)(e->known_count + 1), sizeof *e->known);
    e->known[e->known_count++] = t;
    return CKL_OK;
}

static ckl_status read_line(tune_evidence *e, const char *words, const char *what, bool first, const tune_header *now,
                            const char *line)
{
    json_error_t error;
    json_t *object = json_loads(words, 0, &error);
    if (!object)
        FAIL(CKL_INVALID, "%s: %s", what, error.text);
    ckl_status status = first ? check_header(object, what, now) : keep(e, object, what, line);
    json_decref(object);
    return status;
}

/* A last line without its end was cut off when its process was killed: it is overwritten. */
static ckl_status read_all(tune_evidence *e, const char *path, const tune_header *now, const char *line)
{
    char *words = NULL;
    size_t room = 0;
    long end = 0;
    ckl_status status = CKL_OK;
    for (int number = 1; status == CKL_OK && getline(&words, &room, e->file) >= 0; number++) {
        char what[4200];
        snprintf(what, sizeof what, "tune: %.4000s:%d", path, number);
        if (!strchr(words, '\n'))
            break;
        status = read_line(e, words, what, number == 1, now, line);
        end = ftell(e->file);
    }
    free(words);
    fseek(e->file, end, SEEK_SET);
    return status;
}

/* Writing */

static ckl_status write_line(tune_evidence *e, json_t *object)
{
    int failed = json_dumpf(object, e->file, JSON_COMPACT | JSON_REAL_PRECISION(6));
    failed |= fputc('\n', e->file) == EOF || fflush(e->file);
    json_decref(object);
    if (failed)
        FAIL(CKL_INVALID, "tune: the evidence cannot be written: %s", strerror(errno));
    return CKL_OK;
}

static ckl_status write_header(tune_evidence *e, const tune_header *header)
{
    json_t *object = json_pack("{s:s, s:i}", "schema", TUNE_SCHEMA, "version", TUNE_VERSION),
           *members = result_to_json(&tune_header_table, header);
    json_object_update(object, members);
    json_decref(members);
    return write_line(e, object);
}

ckl_status tune_evidence_open(const char *path, const tune_header *header, const char *line, tune_evidence *e)
{
    *e = (tune_evidence){ 0 };
    if (!path)
        return CKL_OK;
    e->file = fopen(path, "a+e");
    if (!e->file)
        FAIL(CKL_INVALID, "tune: %s: %s", path, strerror(errno));
    fclose(e->file);
    e->file = fopen(path, "r+e");
    if (!e->file)
        FAIL(CKL_INVALID, "tune: %s: %s", path, strerror(errno));
    TRY(read_all(e, path, header, line));
    return ftell(e->file) ? CKL_OK : write_header(e, header);
}

void tune_evidence_close(tune_evidence *e)
{
    if (e->file)
        fclose(e->file);
    heap_free(e->known);
    *e = (tune_evidence){ 0 };
}

const tune_trial *tune_evidence_find(const tune_evidence *e, const char *config, const char *digest)
{
    for (int i = e->known_count - 1; i >= 0; i--) {
        const tune_trial *t = &e->known[i];
        if (strcmp(t->config, config) == 0 && strcmp(t->digest, digest) == 0 &&
            strcmp(t->outcome, tune_outcome_names[TUNE_FINAL]) != 0)
            return t;
    }
    return NULL;
}

ckl_status tune_evidence_add(tune_evidence *e, const tune_trial *trial)
{
    return e->file ? write_line(e, result_to_json(&tune_trial_table, trial)) : CKL_OK;
}
