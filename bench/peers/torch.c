/*
 * torch.c - PyTorch as a peer: python3 runs torch_peer.py once for a problem, on the same data.
 *
 * Inputs go to files as they lie in memory, outputs and times come back: torch_peer.py tells the format. The script is
 * looked for beside the program and in the source tree, or named by CKL_TORCH_PEER; CKL_PYTHON names another python3, and
 * CKL_TORCH_COMPILE=1 adds torch.compile to the race.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "bench/peers/peers.h"

enum { FOLDER_BYTES = 256, PATH_BYTES = 512, SAMPLES_MAX = 4096 };

static const char *setting(const char *name, const char *otherwise)
{
    const char *given = getenv(name);
    return given && *given ? given : otherwise;
}

/* The script, or CKL_UNSUPPORTED. */
static ckl_status find_script(char path[PATH_BYTES])
{
    char program[PATH_BYTES] = "";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = length > 0 ? strrchr(program, '/') : NULL;
    if (slash)
        *slash = '\0';
    const struct {
        const char *folder, *rest;
    } places[] = { { setting("CKL_TORCH_PEER", ""), "" },
                   { program, "/../bench/peers/torch_peer.py" },
                   { program, "/torch_peer.py" },
                   { ".", "/bench/peers/torch_peer.py" } };
    for (int i = 0; i < COUNT_OF(places); i++) {
        snprintf(path, PATH_BYTES, "%s%s", places[i].folder, places[i].rest);
        if (access(path, R_OK) == 0)
            return CKL_OK;
    }
    FAIL(CKL_UNSUPPORTED, "torch: torch_peer.py is not found; CKL_TORCH_PEER=path names it");
}

/* The problem as JSON */

static json_t *write_fields(const test_case *c)
{
    json_t *out = json_object();
    for (int i = 0; i < c->test->problem.count; i++) {
        field_table one = { &c->test->problem.rows[i], 1 };
        text line = { 0 };
        fields_print(one, c->problem, false, &line);
        const char *value = strchr(text_data(&line), '=');
        json_object_set_new(out, one.rows[0].name, json_string(value ? value + 1 : ""));
        text_free(&line);
    }
    return out;
}

static json_t *write_operand(const operand_image *o)
{
    static const char *const roles[] = { [OPERAND_IN] = "in", [OPERAND_OUT] = "out", [OPERAND_IN_OUT] = "in_out" };
    bool is_there = o->info.dtype != CKL_DTYPE_DEFAULT;
    json_t *out = json_object(), *shape = json_array(), *stride = json_array();
    for (int d = 0; d < o->info.rank; d++) {
        json_array_append_new(shape, json_integer(o->info.shape[d]));
        json_array_append_new(stride, json_integer(o->info.stride[d]));
    }
    json_object_set_new(out, "name", json_string(o->info.name ? o->info.name : ""));
    json_object_set_new(out, "role", json_string(is_there ? roles[o->info.role] : "absent"));
    json_object_set_new(out, "dtype", json_string(ckl_dtype_name(o->info.dtype)));
    json_object_set_new(out, "bytes", json_integer(o->span * (int64_t)ckl_dtype_bytes(o->info.dtype)));
    json_object_set_new(out, "shape", shape);
    json_object_set_new(out, "stride", stride);
    return out;
}

static json_t *write_problem(const check *k, bool hot, double seconds)
{
    json_t *out = json_object(), *operands = json_array();
    for (int i = 0; i < k->images.count; i++)
        json_array_append_new(operands, write_operand(&k->images.each[i]));
    json_object_set_new(out, "op", json_string(k->c->test->op->name));
    json_object_set_new(out, "fields", write_fields(k->c));
    json_object_set_new(out, "operands", operands);
    json_object_set_new(out, "hot", json_boolean(hot));
    json_object_set_new(out, "seconds", json_real(seconds));
    json_object_set_new(out, "l2_bytes", json_integer(ckl_device_properties(k->device)->l2_bytes));
    json_object_set_new(out, "compile", json_boolean(strcmp(setting("CKL_TORCH_COMPILE", "0"), "1") == 0));
    return out;
}

/* Files */

static ckl_status write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(bytes, 1, count, file) == count;
    good = file && fclose(file) == 0 && good;
    if (!good)
        FAIL(CKL_UNSUPPORTED, "torch: %s cannot be written", path);
    return CKL_OK;
}

static size_t bytes_of(const operand_image *o)
{
    return (size_t)o->span * ckl_dtype_bytes(o->info.dtype);
}

static ckl_status write_inputs(const check *k, const char *folder, json_t *problem)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/problem.json", folder);
    if (json_dump_file(problem, path, 0))
        FAIL(CKL_UNSUPPORTED, "torch: %s cannot be written", path);
    for (int i = 0; i < k->images.count; i++) {
        const operand_image *o = &k->images.each[i];
        if (!k->images.host[i] || o->info.role == OPERAND_OUT)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, o->info.name);
        TRY(write_file(path, o->image + o->start, bytes_of(o)));
    }
    return CKL_OK;
}

/* What a run of ours would have left in the images: inputs untouched, outputs as the variant wrote them. */
static ckl_status read_outputs(check *k, const char *folder, const char *variant)
{
    for (int i = 0; i < k->images.count; i++) {
        operand_image *o = &k->images.each[i];
        char path[PATH_BYTES];
        if (!k->images.host[i])
            continue;
        memcpy(o->after, o->image, o->bytes);
        if (o->info.role == OPERAND_IN)
            continue;
        snprintf(path, sizeof path, "%s/%s.%s", folder, variant, o->info.name);
        FILE *file = fopen(path, "rb");
        size_t count = file ? fread(o->after + o->start, 1, bytes_of(o), file) : 0;
        if (file)
            fclose(file);
        if (count != bytes_of(o))
            FAIL(CKL_UNSUPPORTED, "torch: gives no %s", o->info.name);
    }
    return CKL_OK;
}

static void remove_folder(const check *k, const char *folder)
{
    static const char *const variants[] = { "", "eager.", "compile." };
    char path[PATH_BYTES];
    for (int i = 0; i < k->images.count; i++)
        for (int v = 0; v < COUNT_OF(variants) && k->images.host[i]; v++) {
            snprintf(path, sizeof path, "%s/%s%s", folder, variants[v], k->images.each[i].info.name);
            (void)remove(path);
        }
    snprintf(path, sizeof path, "%s/problem.json", folder);
    (void)remove(path);
    (void)rmdir(folder);
}

/* The answer */

static ckl_status start(const char *script, const char *folder, json_t **answer)
{
    char command[3 * PATH_BYTES];
    json_error_t error;
    snprintf(command, sizeof command, "'%s' '%s' '%s'", setting("CKL_PYTHON", "python3"), script, folder);
    FILE *output = popen(command, "r");
    if (!output)
        FAIL(CKL_UNSUPPORTED, "torch: %s cannot be started", setting("CKL_PYTHON", "python3"));
    *answer = json_loadf(output, 0, &error);
    (void)pclose(output);
    if (!*answer)
        FAIL(CKL_UNSUPPORTED, "torch: no answer of %s: %s", script, error.text);
    return CKL_OK;
}

static summary summarize_samples(const json_t *samples)
{
    double us[SAMPLES_MAX];
    int count = (int)min_i64((int64_t)json_array_size(samples), SAMPLES_MAX);
    for (int i = 0; i < count; i++)
        us[i] = json_number_value(json_array_get(samples, (size_t)i));
    return summarize(us, count);
}

static ckl_status read_variant(check *k, const char *folder, const json_t *answer, const json_t *variant,
                               peer_timing *out)
{
    const char *name = json_string_value(json_object_get(variant, "name"));
    const char *fault = json_string_value(json_object_get(variant, "fault"));
    const char *version = json_string_value(json_object_get(answer, "version"));
    *out = (peer_timing){ 0 };
    snprintf(out->config, sizeof out->config, "torch %s %s", version ? version : "", name ? name : "");
    if (fault || !name) {
        snprintf(out->result.fault, sizeof out->result.fault, "%s", fault ? fault : "it has no name");
        return CKL_OK;
    }
    TRY(read_outputs(k, folder, name));
    check_compare(k, &out->result);
    out->time_us = summarize_samples(json_object_get(variant, "samples"));
    return CKL_OK;
}

static ckl_status read_answer(check *k, const char *folder, const json_t *answer, peer_timing *out, int *count)
{
    const char *reason = json_string_value(json_object_get(answer, "unsupported"));
    const json_t *variants = json_object_get(answer, "variants");
    if (reason || json_array_size(variants) == 0)
        FAIL(CKL_UNSUPPORTED, "%s", reason ? reason : "torch: no variant");
    int found = (int)min_i64((int64_t)json_array_size(variants), PEER_TIMINGS_MAX);
    for (int i = 0; i < found; i++)
        TRY(read_variant(k, folder, answer, json_array_get(variants, (size_t)i), &out[i]));
    *count = found;
    return CKL_OK;
}

static ckl_status race(check *k, bool hot, double seconds, peer_timing *out, int *count)
{
    char script[PATH_BYTES], folder[FOLDER_BYTES];
    json_t *problem = NULL, *answer = NULL;
    TRY(find_script(script));
    const char *shared = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/ckl-torch-XXXXXX", setting("TMPDIR", shared));
    if (!mkdtemp(folder))
        FAIL(CKL_UNSUPPORTED, "torch: no folder %s for its data", folder);
    problem = write_problem(k, hot, seconds);
    operand_images_poison(&k->images, 0xff);
    ckl_status status = write_inputs(k, folder, problem);
    if (status == CKL_OK)
        status = start(script, folder, &answer);
    if (status == CKL_OK)
        status = read_answer(k, folder, answer, out, count);
    remove_folder(k, folder);
    json_decref(problem);
    json_decref(answer);
    return status;
}

#define X(operator) const peer torch_##operator##_peer = { .name = "torch", .op = #operator, .race = race };
TORCH_PEERS(X)
#undef X
