/* unit_tuned.c - the tuned store: which lines are believed, which entry a plan takes, what is said of the others. */
#include <math.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "unit.h"
#include "base/math.h"
#include "bench/tune.h"
#include "capture.h"
#include "cutekernellib/cutekernellib.h"
#include "emulated_device.h"
#include "lab/case.h"
#include "operators/operators.h"
#include "plan/desc.h"
#include "plan/tuned.h"

#define H200 "device='NVIDIA H200' "
#define MEASURED \
    "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=176 consumers=1 pingpong=0 stages=4'\n"

static char folder[64], file[96], user_file[160];

static void write_file(const char *path, const char *lines)
{
    write_words(path, "w", lines);
    chmod(path, 0600);
}

/* The store is this file from now on. */
static void use_lines(const char *lines)
{
    write_file(file, lines);
    setenv("CKL_TUNED", file, 1);
    tuned_forget();
}

static void use_none(void)
{
    setenv("CKL_TUNED", "off", 1);
    tuned_forget();
}

/* The config that a line gets, and in `origin` where it comes from. */
static const char *config_of(const char *line, text *origin)
{
    static char config[512];
    test_case c;
    arena memory = { 0 };
    text printed = { 0 };
    const implementation *impl;
    void *made;
    assert_ok(case_parse(line, &c));
    void *desc = case_desc(&c, &memory);
    const ckl_device_info *info = ckl_device_properties(device);
    assert_ok(plan_choose(info, c.test->op, desc, NULL, &memory, &impl, &made));
    text_clear(origin);
    assert_ok(plan_origin(info, c.test->op, desc, &memory, origin));
    fields_print(impl->config, made, false, &printed);
    snprintf(config, sizeof config, "%s %s", impl->name, text_data(&printed));
    text_free(&printed);
    arena_clear(&memory);
    case_clear(&c);
    return config;
}

/* Does the line get a config with these words, from an entry of this line of the file? 0: from none. */
static void expect(const char *line, const char *words, int entry)
{
    text origin = { 0 };
    char wanted[160] = "";
    const char *config = config_of(line, &origin);
    if (entry)
        snprintf(wanted, sizeof wanted, "%s:%d", file, entry);
    if (!strstr(config, words) || strcmp(text_data(&origin), wanted) != 0)
        print_error("%s: %s from '%s'\n", line, config, text_data(&origin));
    assert_says(config, words);
    assert_string_equal(text_data(&origin), wanted);
    text_free(&origin);
}

/* What is said on stderr while a line is planned. */
static const char *said_of(const char *line)
{
    text origin = { 0 };
    const capture said = capture_begin(stderr);
    setenv("CKL_LOG", "plan,tuned", 1);
    config_of(line, &origin);
    unsetenv("CKL_LOG");
    text_free(&origin);
    return capture_end(&said);
}

TEST(exact)
{
    use_lines(
        "# a comment\n"
        "gemm device='NVIDIA L4' m=512 n=512 k=512 a=f16 config='sm90 tile_m=256 tile_n=64'\n"
        "gemm " H200
        "m=512 n=512 k=512 a=f16 config='gemm sm90 tile_m=64 tile_n=176 consumers=1 pingpong=0 stages=4' # measured\n"
        "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=240 consumers=1 pingpong=0 stages=4'\n"
        "gemm\t" H200
        "m=512 n=512 k=512 a=f16 d=f32 lda=520 config='sm90 tile_m=64 tile_n=208 consumers=1 pingpong=0 stages=4'");
    expect("gemm m=512 n=512 k=512", "tile_n=176", 3);
    expect("gemm m=512 n=512 k=512 ldb=512", "tile_n=176", 3); // the same problem
    expect("gemm m=512 n=512 k=512 a=bf16", "sm90", 0);
    expect("gemm m=512 n=512 k=512 d=f32 lda=520", "tile_n=208", 5);
    expect("gemm m=512 n=512 k=2048", "sm90", 0);
    use_none();
    expect("gemm m=512 n=512 k=512", "sm90", 0);
}

/* An emulated device has the entries of the one that it emulates. */
TEST(device_names)
{
    assert_string_equal(tuned_device_name(ckl_device_properties(device)), "NVIDIA H200");
    assert_string_equal(tuned_device_name(&(ckl_device_info){ .name = "NVIDIA H200", .emulated = true }),
                        "NVIDIA H200");
    assert_string_equal(tuned_device_name(&(ckl_device_info){ .name = "emulated X" }), "emulated X");
}

/* What a caller forces is his. */
TEST(forced)
{
    use_lines(MEASURED);
    test_case c;
    ckl_plan *plan;
    assert_ok(case_parse("gemm m=512 n=512 k=512 config='sm90 stages=3'", &c));
    assert_ok(case_plan(&c, device, &plan));
    assert_omits(ckl_plan_text(plan), "tile_n=176");
    ckl_plan_free(plan);
    case_clear(&c);
}

/* Sizes nearly those of an entry: where the model finds its config as good as its own. */
TEST(near)
{
    text origin = { 0 };
    char lines[1024], own[512];
    use_none();
    snprintf(own, sizeof own, "%s", config_of("gemm m=4096 n=4096 k=4000", &origin));
    snprintf(lines, sizeof lines,
             "gemm " H200 "m=4096 n=4096 k=4096 a=f16 config='%s'\n" // the cheapest but for its bands
             "gemm " H200
             "m=4096 n=4096 k=1024 a=f16 config='sm90 tile_m=64 tile_n=16 consumers=1 pingpong=0 stages=4'\n",
             own);
    char *group = strstr(lines, "group=");
    assert_non_null(group);
    group[6] = group[6] == '4' ? '5' : '4';
    use_lines(lines);
    assert_says(config_of("gemm m=4096 n=4096 k=4000", &origin), group[6] == '4' ? "group=4" : "group=5");
    assert_says(text_data(&origin), "a near problem's entry, ");
    assert_omits(config_of("gemm m=4096 n=4096 k=3712", &origin), group[6] == '4' ? "group=4" : "group=5");
    assert_int_equal(origin.length, 0); // too far
    assert_omits(config_of("gemm m=4096 n=4096 k=1000", &origin), "tile_n=16 ");
    assert_int_equal(origin.length, 0);                   // the model knows better
    expect("gemm m=4096 n=4096 k=1024", "tile_n=16 ", 2); // of the problem itself measurements decide
    text_free(&origin);
}

/* The config that a size between those of some entries gets: own, but for its bands, which tell the entries apart. */
static const char *group_between(const char *own, const int64_t *sizes, int count)
{
    text lines = { 0 }, origin = { 0 };
    const char *bands = strstr(own, "group=");
    assert_non_null(bands);
    for (int i = 0; i < count; i++)
        text_printf(&lines, "gemm " H200 "m=4096 n=4096 k=%" PRId64 " a=f16 config='%.*sgroup=%d%s'\n", sizes[i],
                    (int)(bands - own), own, i + 2, bands + strlen("group=8"));
    use_lines(text_data(&lines));
    const char *taken = strstr(config_of("gemm m=4096 n=4096 k=4000", &origin), "group=");
    text_free(&lines);
    text_free(&origin);
    return taken;
}

/* Of several near entries the nearest, and the first of those; none that the model finds a twelfth dearer. */
TEST(nearest)
{
    text origin = { 0 };
    char own[512];
    use_none();
    snprintf(own, sizeof own, "%s", config_of("gemm m=4096 n=4096 k=4000", &origin));
    assert_says(own, "group=8");
    assert_int_equal(strncmp(group_between(own, (int64_t[]){ 4096, 4032, 4160 }, 3), "group=3", 7), 0);
    assert_int_equal(strncmp(group_between(own, (int64_t[]){ 4032, 4096 }, 2), "group=2", 7), 0);
    assert_int_equal(strncmp(group_between(own, (int64_t[]){ 4096, 4064, 4064 }, 3), "group=3", 7), 0);
    use_lines("gemm " H200 "m=4096 n=4096 k=4096 a=f16 "
              "config='sm90 tile_m=128 tile_n=128 consumers=2 pingpong=0 stages=4'\n");
    assert_string_equal(config_of("gemm m=4096 n=4096 k=4000", &origin), own);
    assert_int_equal(origin.length, 0);
    text_free(&origin);
}

/* Lines that are none: each is said with its place, and those behind it are read. */
TEST(bad_lines)
{
    static const char *const sentences[] = { ":1: gemm: unknown key 'tile_q'",
                                             ":2: gemm: the line has no device=",
                                             ":3: gemm: the line has no config=",
                                             ":4: gemm: config='sm91 x=1' does not begin with an implementation",
                                             ":5: gemm: unknown key 'mm'",
                                             ":6: gemm: m=-5 is negative",
                                             ":7: problem line: a quote or parenthesis is not closed",
                                             ":8: gemm: m is given twice",
                                             ":9: gemm: tile_m=many is not an integer",
                                             ":11: gemm sm90: tile_m=100 does not give" };
    use_lines("gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_q=1'\n"
              "gemm m=512 n=512 k=512 a=f16 config='sm90'\n"
              "gemm " H200 "m=512 n=512 k=512 a=f16\n"
              "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm91 x=1'\n"
              "gemm " H200 "mm=512 n=512 k=512 a=f16 config='sm90'\n"
              "gemm " H200 "m=-5 n=512 k=512 a=f16 config='sm90'\n"
              "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90\n"
              "gemm " H200 "m=512 m=512 k=512 a=f16 config='sm90'\n"
              "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_m=many'\n"
              "flashattention " H200 "b=1 config='sm100'\n"
              "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_m=100 consumers=1 pingpong=0 stages=4'\n"
              "gemm " H200
              "m=512 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=176 consumers=1 pingpong=0 stages=4'\n"
              "rope " H200 "m=5 config='sm91'\n" // other operators': none of our business
              "gemmx " H200 "mm=5 config='sm91'\n");
    const char *words = said_of("gemm m=512 n=512 k=512");
    for (int i = 0; i < COUNT_OF(sentences); i++) {
        char wanted[256];
        snprintf(wanted, sizeof wanted, "ckl: tuned: %s%s", file, sentences[i]);
        assert_says(words, wanted);
    }
    assert_omits(words, "flashattention");
    assert_omits(words, ":13:");
    assert_omits(words, ":14:");
    expect("gemm m=512 n=512 k=512", "tile_n=176", 12);
}

/* A plan says under CKL_LOG=plan what it takes and where that stands. */
TEST(log)
{
    use_lines(MEASURED);
    const capture said = capture_begin(stderr);
    setenv("CKL_LOG", "all", 1);
    ckl_plan *plan = NULL;
    ckl_status status = ckl_gemm_plan(device, &(ckl_gemm_desc){ .m = 512, .n = 512, .k = 512, .a = CKL_F16 }, &plan);
    unsetenv("CKL_LOG");
    const char *words = capture_end(&said);
    assert_ok(status);
    ckl_plan_free(plan);
    assert_says(words, "ckl: plan: gemm m=512 n=512 k=512 a=f16 b=f16 d=f16 lda=512");
    assert_says(words, "tile_n=176");
    assert_says(words, ", tuned: ");
}

/* The user's cache folder comes second, and only if nobody else can write to it. */
TEST(user_file)
{
    text origin = { 0 };
    char path[128];
    snprintf(path, sizeof path, "%s/cutekernellib", folder);
    mkdir(path, 0700);
    setenv("XDG_CACHE_HOME", folder, 1);
    char found[TUNED_PATH_BYTES];
    assert_true(tuned_user_path(found));
    assert_string_equal(found, user_file);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/me", 1);
    assert_true(tuned_user_path(found));
    assert_string_equal(found, "/home/me/.cache/cutekernellib/tuned.txt");
    unsetenv("HOME");
    assert_false(tuned_user_path(found));
    char cache[TUNED_PATH_BYTES] = "/";
    const size_t room = TUNED_PATH_BYTES - 1 - strlen("/cutekernellib/tuned.txt");
    memset(cache + 1, 'x', room);
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_false(tuned_user_path(found)); // too long by a character
    cache[room] = '\0';
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_true(tuned_user_path(found));
    setenv("XDG_CACHE_HOME", folder, 1);
    write_file(
        user_file,
        "gemm " H200 "m=512 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=240 consumers=1 pingpong=0 stages=4'\n"
        "gemm " H200 "m=640 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=208 consumers=1 pingpong=0 stages=4'\n");
    use_lines(MEASURED);
    expect("gemm m=512 n=512 k=512", "tile_n=176", 1);
    assert_says(config_of("gemm m=640 n=512 k=512", &origin), "tile_n=208");
    unsetenv("CKL_TUNED");
    tuned_forget();
    assert_says(config_of("gemm m=512 n=512 k=512", &origin), "tile_n=240");

    static const char *const refusals[] = { "can be written to by others", "is not a folder that only its owner" };
    for (int i = 0; i < 2; i++) {
        chmod(user_file, i == 0 ? 0666 : 0600);
        chmod(path, i == 1 ? 0777 : 0700);
        tuned_forget();
        assert_says(said_of("gemm m=512 n=512 k=512"), refusals[i]);
        assert_omits(config_of("gemm m=512 n=512 k=512", &origin), "tile_n=240");
    }
    chmod(path, 0700);
    char moved[192];
    snprintf(moved, sizeof moved, "%s.moved", user_file);
    rename(user_file, moved);
    assert_int_equal(symlink(moved, user_file), 0);
    tuned_forget();
    assert_says(said_of("gemm m=512 n=512 k=512"), "Too many levels of symbolic links");
    unlink(user_file);
    unlink(moved);
    rmdir(path);
    text_free(&origin);
}

/* Files that are none, or too large, are left out; the plan is made. */
TEST(bad_files)
{
    static const char *const sentences[] = { "is not a file; it is left out", "more than 4194304; it is left out" };
    for (int i = 0; i < 2; i++) {
        setenv("CKL_TUNED", i == 0 ? folder : file, 1);
        write_file(file, "");
        assert_int_equal(truncate(file, i == 1 ? TUNED_FILE_BYTES_MAX + 1 : 0), 0);
        tuned_forget();
        assert_says(said_of("gemm m=512 n=512 k=512"), sentences[i]);
    }
    text content = { 0 };
    assert_int_equal(truncate(file, TUNED_FILE_BYTES_MAX), 0);
    assert_ok(tuned_read_file(file, false, &content));
    assert_int_equal(content.length, TUNED_FILE_BYTES_MAX);
    text_free(&content);
    setenv("CKL_TUNED", "/nowhere/tuned.txt", 1);
    tuned_forget();
    assert_says(said_of("gemm m=512 n=512 k=512"), "/nowhere/tuned.txt is empty, or there is no such file");
}

/* Where standard input is closed the file has its number. */
TEST(closes_its_file)
{
    text content = { 0 };
    const int kept = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    ckl_status status = tuned_read_file(TESTDATA "/waiting.txt", false, &content);
    const int flags = fcntl(STDIN_FILENO, F_GETFD);
    if (kept >= 0)
        dup2(kept, STDIN_FILENO);
    close(kept);
    assert_ok(status);
    assert_true(content.length > 0);
    assert_int_equal(flags, -1);
    text_free(&content);
}

/* Every line that is built in is one, its device takes it, and its problem gets it. */
TEST(shipped)
{
    unsetenv("CKL_TUNED");
    tuned_forget();
    for (int i = 0; tuned_shipped[i]; i++) {
        arena memory = { 0 };
        problem_line split;
        const operator_test *test;
        tuned_entry entry = { 0 };
        assert_ok(problem_split(&memory, tuned_shipped[i], &split));
        assert_ok(case_operator(split.op, &test));
        assert_ok(tuned_parse(test->op, &split, &memory, &entry));
        assert_true(tuned_is_for(&entry, ckl_device_properties(device)));
        const implementation *impl;
        void *config;
        ckl_status status =
            plan_choose(ckl_device_properties(device), test->op, entry.desc, entry.force, &memory, &impl, &config);
        if (status != CKL_OK)
            print_error("%s: %s\n", tuned_shipped[i], ckl_error());
        assert_ok(status);
        text origin = { 0 };
        char wanted[64];
        snprintf(wanted, sizeof wanted, "built-in table:%d", i + 1);
        assert_ok(plan_origin(ckl_device_properties(device), test->op, entry.desc, &memory, &origin));
        assert_string_equal(text_data(&origin), wanted);
        text_free(&origin);
        arena_clear(&memory);
    }
}

/* Descs for people: members as C names them, zeros left out. */
TEST(desc_text)
{
    text out = { 0 };
    ckl_permute_desc p = {
        .dtype = CKL_F16, .rank = 3, .shape = { 8, 77, 64 }, .order = { 0, 2, 1 }, .stride_x = { 0, 5 }
    };
    ckl_elementwise_desc e = { .expr = "a * x", .rank = 1, .in = { [1] = { .dtype = CKL_BF16, .scalar = true } } };
    plan_desc_print(&permute_operator, &p, &out);
    assert_string_equal(text_data(&out), "permute dtype=f16 rank=3 shape=8,77,64 order=0,2,1 stride_x=0,5");
    text_clear(&out);
    plan_desc_print(&elementwise_operator, &e, &out);
    assert_string_equal(text_data(&out), "elementwise expr='a * x' rank=1 in[1].dtype=bf16 in[1].scalar=1");
    text_free(&out);
}

static void cover(const operator_info *op, const char *name, size_t offset, size_t bytes, bool *covered)
{
    for (size_t i = offset; i < offset + bytes; i++) {
        if (covered[i])
            fail_msg("%s: byte %zu belongs to %s and to another member", op->name, i, name);
        covered[i] = true;
    }
}

/* Fields and members of every desc are all of it, each once: what lies between is padding. */
TEST(members)
{
    for (const operator_info *const *op = operators; *op; op++) {
        bool *covered = calloc((*op)->desc_bytes, sizeof *covered);
        for (const field *f = (*op)->desc.rows; f < (*op)->desc.rows + (*op)->desc.count; f++)
            cover(*op, f->name, f->offset, field_bytes(f), covered);
        for (const desc_member *m = (*op)->members; m && m->bytes; m++)
            cover(*op, m->name, m->offset, m->bytes, covered);
        for (size_t i = 0, between = 0; i < (*op)->desc_bytes; i++) {
            between = covered[i] ? 0 : between + 1;
            if (between == _Alignof(max_align_t) / 2)
                fail_msg("%s: no member has the bytes up to %zu", (*op)->name, i);
        }
        free(covered);
    }
}

/* How far sizes are apart; what is no size must be equal. */
TEST(distance)
{
    const ckl_gemm_desc a = { .m = 1024, .n = 512, .k = 64, .a = CKL_F16 };
    ckl_gemm_desc b = a;
    assert_true(plan_desc_distance(&gemm_operator, &a, &b) == 0);
    b.n = 2048;
    b.k = 128;
    assert_true(plan_desc_distance(&gemm_operator, &a, &b) == 2);
    b.bias = true;
    assert_true(isinf(plan_desc_distance(&gemm_operator, &a, &b)));
    b = a;
    b.ldc = 1024;
    assert_true(isinf(plan_desc_distance(&gemm_operator, &a, &b)));
    ckl_permute_desc p = { .rank = 1, .shape = { 8 } }, q = { .rank = 1, .shape = { 64 } };
    assert_true(plan_desc_distance(&permute_operator, &p, &q) == 3);
}

static void check_distance(const operator_info *op, const char *name, size_t offset)
{
    char *one = calloc(1, op->desc_bytes), *other = calloc(1, op->desc_bytes);
    other[offset] = 1;
    if (plan_desc_distance(op, one, other) == 0 || plan_desc_distance(op, other, one) == 0)
        fail_msg("%s: problems of different %s are no distance apart", op->name, name);
    free(one);
    free(other);
}

TEST(distance_of_every_field)
{
    for (const operator_info *const *op = operators; *op; op++) {
        for (const field *f = (*op)->desc.rows; f < (*op)->desc.rows + (*op)->desc.count; f++)
            check_distance(*op, f->name, f->offset);
        for (const desc_member *m = (*op)->members; m && m->bytes; m++)
            check_distance(*op, m->name, m->offset);
    }
}

/* Lines of shapes, axes and expressions, as `ckl bench --json` has them. */
TEST(other_operators)
{
    use_lines("softmax " H200 "shape=256x1024 dtype=bf16 seed=3 config='row dtype=bf16 threads=256'\n"
              "elementwise " H200 "expr=gelu(a*x) shape=128x256 config='vector vec=2'\n");
    expect("softmax shape=256x1024 dtype=bf16", "threads=256", 1);
    expect("softmax shape=16x16x1024 dtype=bf16", "threads=256", 1); // the same rows
    expect("elementwise expr=gelu(a*x) shape=128x256", "vec=2", 2);
}

/* The winner replaces the line of its problem on its device; what else the file holds stays. */
TEST(keep)
{
    use_lines("# mine\n"
              "gemm " H200
              "m=512 n=512 k=512 a=f16 config='sm90 tile_m=64 tile_n=176 consumers=1 pingpong=0 stages=4'\n"
              "gemm device='NVIDIA L4' m=512 n=512 k=512 a=f16 config='tiled'\n"
              "nonsense\n");
    test_case c;
    tune_result *r = calloc(1, sizeof *r);
    r->device = *ckl_device_properties(device);
    r->finals[0].median_us = 10;
    r->finals[0].choice_us = 12;
    strcpy(r->finals[0].config, "sm90 tile_m=64 tile_n=240 consumers=1 pingpong=0 stages=4");
    assert_ok(case_parse("gemm m=512 n=512 k=512", &c));
    for (int twice = 0; twice < 2; twice++)
        assert_ok(tune_keep(&c, r, file));
    char content[1024];
    assert_string_equal(read_words(file, content),
                        "# mine\n"
                        "gemm device='NVIDIA L4' m=512 n=512 k=512 a=f16 config='tiled'\n"
                        "nonsense\n"
                        "gemm device='NVIDIA H200' m=512 n=512 k=512 "
                        "config='sm90 tile_m=64 tile_n=240 consumers=1 pingpong=0 stages=4' # 10 us, before 12 us\n");
    tuned_forget();
    expect("gemm m=512 n=512 k=512", "tile_n=240", 4);
    struct stat s;
    char made[192];
    snprintf(made, sizeof made, "%s/new/tuned.txt", folder);
    assert_ok(tune_keep(&c, r, made));
    assert_int_equal(stat(made, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    unlink(made);
    snprintf(made, sizeof made, "%s/new", folder);
    assert_int_equal(rmdir(made), 0);
    case_clear(&c);
    strcpy(r->finals[0].config, "vector vec=2 expr='a * x + 1' steps=2");
    assert_ok(case_parse("elementwise expr='a * x + 1' shape=128x256", &c));
    assert_ok(tune_keep(&c, r, file));
    tuned_forget();
    expect("elementwise expr='a * x + 1' shape=128x256", "vec=2 steps=2", 5);
    free(r);
    case_clear(&c);
}

static int open_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/unit_tuned-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(file, sizeof file, "%s/lines.txt", folder);
    snprintf(user_file, sizeof user_file, "%s/cutekernellib/tuned.txt", folder);
    setenv("XDG_CACHE_HOME", "/nowhere", 1);
    return open_device(state);
}

static int close_folder(void **state)
{
    tuned_forget();
    unlink(file);
    return close_device(state) || rmdir(folder);
}

RUN_TESTS(open_folder, close_folder)
