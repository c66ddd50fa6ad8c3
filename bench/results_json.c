/* results_json.c - results as a JSON document: schema, version, header, rows with their peers. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/text.h"
#include "bench/results_json.h"
#include "lab/file.h"

static json_t *write_member(const result_member *m, const void *object)
{
    const char *at = (const char *)object + m->offset;
    switch (m->kind) {
    case RESULT_text:
        return json_string(at);
    case RESULT_real:
        return json_real(*(const result_real *)at);
    case RESULT_count:
        return json_integer(*(const result_count *)at);
    case RESULT_flag:
        return json_boolean(*(const result_flag *)at);
    }
    return NULL;
}

json_t *result_to_json(const result_table *table, const void *object)
{
    json_t *out = json_object();
    for (int i = 0; i < table->count; i++)
        json_object_set_new(out, table->rows[i].name, write_member(&table->rows[i], object));
    return out;
}

static json_t *write_row(const result_row *row)
{
    json_t *out = result_to_json(&result_row_table, row), *peers = json_array();
    for (int i = 0; i < row->peer_count; i++)
        json_array_append_new(peers, result_to_json(&result_peer_table, &row->peers[i]));
    json_object_set_new(out, "peers", peers);
    return out;
}

static int append(const char *data, size_t length, void *words)
{
    text_append(words, data, length);
    return 0;
}

ckl_status json_write(const json_t *document, const char *path)
{
    text words = { 0 };
    json_dump_callback(document, append, &words, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    ckl_status status = file_write("results", path, &words);
    text_free(&words);
    return status;
}

ckl_status results_write_json(const results *r, const char *path)
{
    json_t *rows = json_array();
    for (int i = 0; i < r->row_count; i++)
        json_array_append_new(rows, write_row(&r->rows[i]));
    json_t *document = json_pack("{s:s, s:i, s:o, s:o}", "schema", RESULTS_SCHEMA, "version", RESULTS_VERSION, "header",
                                 result_to_json(&result_header_table, &r->header), "rows", rows);
    ckl_status status = json_write(document, path);
    json_decref(document);
    return status;
}

static void read_member(const result_member *m, const json_t *value, void *object)
{
    char *at = (char *)object + m->offset;
    switch (m->kind) {
    case RESULT_text:
        if (json_is_string(value))
            result_set(at, json_string_value(value));
        break;
    case RESULT_real:
        *(result_real *)at = json_number_value(value);
        break;
    case RESULT_count:
        *(result_count *)at = json_integer_value(value);
        break;
    case RESULT_flag:
        *(result_flag *)at = json_is_true(value);
        break;
    }
}

void result_from_json(const result_table *table, const json_t *from, void *object)
{
    for (int i = 0; i < table->count; i++)
        read_member(&table->rows[i], json_object_get(from, table->rows[i].name), object);
}

static bool is_of_kind(const result_member *m, const json_t *value)
{
    switch (m->kind) {
    case RESULT_text:
        return json_is_string(value) && json_string_length(value) < sizeof(result_text);
    case RESULT_real:
        return json_is_number(value);
    case RESULT_count:
        return json_is_integer(value);
    case RESULT_flag:
        return json_is_boolean(value);
    }
    return false;
}

ckl_status result_demand_json(const result_table *table, const json_t *from, const char *what, void *object)
{
    static const char *const kinds[] = { [RESULT_text] = "a text",
                                         [RESULT_real] = "a number",
                                         [RESULT_count] = "a whole number",
                                         [RESULT_flag] = "true or false" };
    for (const result_member *m = table->rows; m < table->rows + table->count; m++)
        if (!is_of_kind(m, json_object_get(from, m->name)))
            FAIL(CKL_INVALID, "%s: %s is not %s", what, m->name, kinds[m->kind]);
    result_from_json(table, from, object);
    return CKL_OK;
}

static void read_row(const json_t *from, result_row *row)
{
    const json_t *peers = json_object_get(from, "peers");
    result_from_json(&result_row_table, from, row);
    row->peer_count = (int)min_i64((int64_t)json_array_size(peers), RESULT_PEERS_MAX);
    for (int i = 0; i < row->peer_count; i++)
        result_from_json(&result_peer_table, json_array_get(peers, (size_t)i), &row->peers[i]);
}

static ckl_status check_schema(const json_t *document, const char *path)
{
    const char *schema = json_string_value(json_object_get(document, "schema"));
    int64_t version = json_integer_value(json_object_get(document, "version"));
    if (!schema || strcmp(schema, RESULTS_SCHEMA) != 0)
        FAIL(CKL_INVALID, "results: %s is not a file of ckl bench", path);
    if (version != RESULTS_VERSION)
        FAIL(CKL_INVALID, "results: %s is of version %" PRId64 ", this ckl reads version %d", path, version,
             RESULTS_VERSION);
    return CKL_OK;
}

ckl_status results_read_json(const char *path, results *out)
{
    *out = (results){ 0 };
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    if (!document && error.line < 0)
        FAIL(CKL_INVALID, "results: %s", error.text); // which names the file that it cannot open
    if (!document)
        FAIL(CKL_INVALID, "results: %s:%d: %s", path, error.line, error.text);
    ckl_status status = check_schema(document, path);
    if (status == CKL_OK) {
        const json_t *rows = json_object_get(document, "rows");
        result_from_json(&result_header_table, json_object_get(document, "header"), &out->header);
        for (size_t i = 0; i < json_array_size(rows); i++)
            read_row(json_array_get(rows, i), results_add(out));
    }
    json_decref(document);
    return status;
}
