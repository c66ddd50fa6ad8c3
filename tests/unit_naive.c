/*
 * unit_naive.c - gemm's kernel for learners, a thread an element, is not what large problems get: random descs of all
 * types, layouts, epilogues, batches, groups and lists, as far as they are legal, on the tables of Hopper and of an
 * older GPU.
 */
#include "unit.h"
#include "base/math.h"
#include "base/random.h"
#include "cutekernellib/device.h"
#include "operators/gemm/gemm_config.h"
#include "operators/operators.h"

enum { DRAWS = 30000, OUTPUTS_FEW = 4096, CHANGED_ONE_IN = 7 };

static int64_t one_of(uint64_t *random, const int64_t *values, int count)
{
    return values[random_below(random, count)];
}

/* A size that suits the field, so that many descs are legal. */
static int64_t draw_size(uint64_t *random, const char *name)
{
    static const int64_t extents[] = { 65, 72, 128, 200, 333, 512, 1000, 1024, 4096 };
    static const int64_t depths[] = { 0, 1, 7, 16, 40, 64, 130, 256, 1000, 1024, 8192 };
    static const int64_t pitches[] = { 8193, 8200, 8448 }, counts[] = { 2, 5, 40 }, listed[] = { 4096, 5000 };
    if (!strcmp(name, "m") || !strcmp(name, "n"))
        return one_of(random, extents, COUNT_OF(extents));
    if (!strcmp(name, "k"))
        return one_of(random, depths, COUNT_OF(depths));
    if (!strncmp(name, "ld", 2))
        return one_of(random, pitches, COUNT_OF(pitches));
    if (!strcmp(name, "batch") || !strcmp(name, "groups"))
        return one_of(random, counts, COUNT_OF(counts));
    if (!strcmp(name, "gather") || !strcmp(name, "scatter"))
        return one_of(random, listed, COUNT_OF(listed));
    return !strcmp(name, "block_k") ? 64 : 0;
}

/* Word number `wanted` of a list; returns how many there are. */
static int word_of(const char *list, int wanted, char *out, size_t size)
{
    int count = 0;
    for (const char *at = list; *at; count++) {
        const size_t length = strcspn(at, " ");
        if (count == wanted)
            snprintf(out, size, "%.*s", (int)length, at);
        at += length + (at[length] == ' ');
    }
    return count;
}

static void change(uint64_t *random, const field *f, field_table table, ckl_gemm_desc *desc)
{
    char value[64];
    if (f->kind == FIELD_int64_t)
        snprintf(value, sizeof value, "%" PRId64, draw_size(random, f->name));
    else
        word_of(f->range, (int)random_below(random, word_of(f->range, -1, NULL, 0)), value, sizeof value);
    assert_ok(fields_set(table, "gemm", f->name, value, desc));
}

static void draw(uint64_t *random, ckl_gemm_desc *desc)
{
    const field_table table = gemm_operator.desc;
    memset(desc, 0, sizeof *desc);
    fields_default(table, desc);
    for (int i = 0; i < table.count; i++) {
        const bool always = i < 4 || !strcmp(table.rows[i].name, "layout"); // sizes and the type of A
        if (always || random_below(random, CHANGED_ONE_IN) == 0)
            change(random, &table.rows[i], table, desc);
    }
    if (random_below(random, 3) == 0)
        desc->c = gemm_result_type(desc);
}

/* Counts legal descs; fails at one of many outputs that naive takes. */
static int look_at(const ckl_device_info *device, const ckl_gemm_desc *desc)
{
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = plan_choose(device, &gemm_operator, desc, NULL, &memory, &impl, &config);
    const double outputs = (double)desc->m * (double)desc->n * (double)max_i64(desc->batch, 1);
    if (status == CKL_OK && outputs > OUTPUTS_FEW && !strcmp(impl->name, "naive")) {
        text line = { 0 };
        fields_print(gemm_operator.desc, desc, true, &line);
        print_error("%s: naive takes gemm %s%s\n", device->id, text_data(&line), desc->c ? " c=1" : "");
        text_free(&line);
        status = CKL_INTERNAL;
    }
    arena_clear(&memory);
    return status == CKL_OK ? 1 : status == CKL_INTERNAL ? -1 : 0;
}

static void look_on(const char *id)
{
    ckl_device *device;
    uint64_t random = 7;
    int legal = 0, naive = 0;
    assert_ok(ckl_device_open(id, &device));
    for (int i = 0; i < DRAWS; i++) {
        ckl_gemm_desc desc;
        draw(&random, &desc);
        const int found = look_at(ckl_device_properties(device), &desc);
        legal += found > 0;
        naive += found < 0;
    }
    ckl_device_close(device);
    if (naive || legal < DRAWS / 20)
        fail_msg("%s: naive took %d problems of more than %d outputs, others %d", id, naive, OUTPUTS_FEW, legal);
}

TEST(hopper)
{
    look_on("emulator:h200");
}

TEST(older)
{
    look_on("emulator:l4");
}

RUN_TESTS(NULL, NULL)
