/*
 * unit_tune.c - the tuner on a device whose clock is counted, with an operator whose configs fail in every way: each
 * failure ends as what it is, in time, without a time of its own, and the search goes on.
 */
#include <signal.h>
#include <unistd.h>

#include "files.h"
#include "unit.h"
#include "base/math.h"
#include "bench/tune_parts.h"
#include "lab/clock.h"
#include "troubled_operator.h"
#include "virtual_device.h"

/* The device: what a kernel does follows from the config in its note, and so does its time. */

typedef struct fake_kernel {
    char note[512];
} fake_kernel;

static int number_in(const char *note, const char *name)
{
    const char *at = strstr(note, name);
    return at ? atoi(at + strlen(name)) : 0;
}

static bool has_trouble(const char *note, int trouble)
{
    const char *word;
    char wanted[64];
    int length = field_word(TROUBLES(TROUBLE_NAME), trouble, &word);
    snprintf(wanted, sizeof wanted, "trouble=%.*s", length, word);
    return strstr(note, wanted);
}

static ckl_status fake_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    if (has_trouble(kernel->note, TROUBLE_compile_fails))
        FAIL(CKL_DEVICE_FAULT, "the driver's compiler does not like it");
    fake_kernel *made = calloc(1, sizeof *made);
    snprintf(made->note, sizeof made->note, "%s", kernel->note);
    *loaded = (device_kernel *)made;
    return CKL_OK;
}

static void fake_unload(ckl_device *d, device_kernel *kernel)
{
    free(kernel);
}

static ckl_status fake_launch(ckl_device *d, const device_kernel *kernel, const device_launch *l, ckl_stream s)
{
    const char *note = ((const fake_kernel *)kernel)->note;
    const float *a = *(float *const *)l->params[0];
    float *y = *(float *const *)l->params[1];
    while (has_trouble(note, TROUBLE_launch_hangs))
        pause();
    if (has_trouble(note, TROUBLE_launch_crashes))
        raise(SIGKILL);
    if (has_trouble(note, TROUBLE_launch_faults))
        FAIL(CKL_DEVICE_FAULT, "an illegal instruction; the context is lost");
    take_us(OWN_US + number_in(note, "barriers=") - 0.01 * number_in(note, "smem_kb="));
    for (int64_t i = 0; i < l->grid[0] * TILE && !has_trouble(note, TROUBLE_stale); i++)
        y[i] = (has_trouble(note, TROUBLE_wrong_on_device) ? 3 : 2) * a[i];
    if (has_trouble(note, TROUBLE_overruns))
        y[l->grid[0] * TILE] = 0;
    return CKL_OK;
}

static device_ops ops;
static int64_t smem_max = 227 << 10;

static ckl_status open_fake(const char *id, ckl_device **opened)
{
    ops = virtual_ops;
    ops.load = fake_load;
    ops.unload = fake_unload;
    ops.launch = fake_launch;
    device.ops = &ops;
    device.info.smem_per_cta_bytes = device.info.smem_per_sm_bytes = smem_max;
    snprintf(device.info.id, sizeof device.info.id, "fake");
    snprintf(device.info.name, sizeof device.info.name, "a fake GPU");
    *opened = &device;
    return CKL_OK;
}

/* The clock is counted: its medians are sure at once. */
static ckl_status measure_briefly(const rotation *memory, ckl_stream stream, const measure_limits *limits,
                                  contestant *contestants, int count, conditions *out)
{
    return measure(memory, stream, &(measure_limits){ .rounds = 8 }, contestants, count, out);
}

/* A search */

static twice_problem problem = { 4 * TILE };
static char evidence[64];

static tune_options options_for(const char *const *given, int candidates)
{
    tune_options o = { .device_id = "fake",
                       .seed = 1,
                       .candidates = candidates,
                       .wall_seconds = 2.5,
                       .workers = 2,
                       .evidence = evidence,
                       .open = open_fake,
                       .measure = measure_briefly };
    for (int i = 0; given && given[i]; i++)
        o.given[i] = given[i];
    return o;
}

static ckl_status search(const tune_options *o, tune_result *r)
{
    test_case c = { .test = &twice_test, .problem = &problem, .fields = "n=256", .keys = { .impl = "", .config = "" } };
    fields_default(line_key_table, &c.keys);
    return tune_run(&c, o, r);
}

static void new_evidence(void)
{
    snprintf(evidence, sizeof evidence, "/tmp/unit_tune-%d.jsonl", (int)getpid());
    unlink(evidence);
}

/* The evidence's last line that has these words; "" if there is none. */
static const char *line_with(const char *words)
{
    static char found[4096];
    char line[4096];
    FILE *file = fopen(evidence, "r");
    *found = '\0';
    while (file && fgets(line, sizeof line, file))
        if (strstr(line, words))
            strcpy(found, line);
    if (file)
        fclose(file);
    return found;
}

/* Tries the plan's choice, one config with this trouble and a good one; the result of the search. */
static tune_result search_with(const char *trouble)
{
    static char bad[128];
    static tune_result r;
    snprintf(bad, sizeof bad, "plain barriers=3 %s", trouble);
    const char *given[] = { bad, "plain barriers=1", NULL };
    new_evidence();
    tune_options o = options_for(given, 3);
    assert_ok(search(&o, &r));
    return r;
}

/* The evidence's line of a config: how it ended and why, without a time. */
static void expect_line(const char *words, tune_outcome outcome, const char *sentence)
{
    const char *line = line_with(words);
    char name[64];
    snprintf(name, sizeof name, "\"outcome\":\"%s\"", tune_outcome_names[outcome]);
    assert_says(line, name);
    assert_says(line, sentence);
    assert_says(line, "\"median_us\":0.0,");
}

/* The one good config among bad ones. */
static void expect_winner(const tune_result *r)
{
    assert_true(r->won);
    assert_int_equal(r->final_count, 1);
    assert_says(r->finals[0].config, "barriers=1 ");
}

/* Tests */

/* The fastest of all is found and its time is its own; the choice's is of the same race. */
TEST(search)
{
    tune_result r;
    new_evidence();
    without_trouble = true;
    tune_options o = options_for(NULL, 12);
    o.generations = 2;
    assert_ok(search(&o, &r));
    without_trouble = false;
    assert_true(r.won);
    assert_says(r.finals[0].config, "barriers=0 ");
    assert_true(fabs(r.finals[0].median_us - OWN_US) < 0.01);
    assert_true(fabs(r.finals[0].choice_us - (OWN_US + 4)) < 0.01);
    for (int i = 0; i < r.final_count; i++) // each kernel was loaded, none timed in place of another (replay 2)
        assert_true(fabs(r.finals[i].median_us - (OWN_US + number_in(r.finals[i].config, "barriers="))) < 0.01);
    assert_string_equal(r.dead_fields, "unused"); // replay 9
    assert_true(r.count[TUNE_DUPLICATE] > 0);
}

/* The same seed draws the same candidates; the evidence of a search that was cut off spares them, its end torn. */
TEST(resume)
{
    tune_result first, second;
    new_evidence();
    without_trouble = true;
    tune_options o = options_for(NULL, 10);
    o.generations = 2;
    assert_ok(search(&o, &first));
    write_words(evidence, "a", "{\"line\":\"twi");
    assert_ok(search(&o, &second));
    without_trouble = false;
    int ran = 0;
    for (int i = 0; i < TUNE_OUTCOME_COUNT; i++)
        ran += second.count[i];
    assert_int_equal(second.reused, first.count[TUNE_TIMED]);
    assert_int_equal(ran, first.count[TUNE_DUPLICATE]);
    assert_string_equal(first.finals[0].config, second.finals[0].config);
    assert_string_not_equal(line_with("\"final\""), "");
}

/* An older time is not that of kernels which are made otherwise now, or not at all any more (replay 8). */
TEST(old_evidence)
{
    const char *given[] = { "plain barriers=3 trouble=compile_fails", NULL };
    tune_result r;
    new_evidence();
    tune_options o = options_for(given, 2);
    assert_ok(search(&o, &r));
    char line[4096], *digest;
    snprintf(line, sizeof line, "%s", line_with("compile_fails"));
    digest = strstr(line, "\"digest\":\"") + 10;
    digest[0] = digest[0] == '0' ? '1' : '0';
    memcpy(strstr(line, "\"not compiled\""), "\"timed\"       ", 14);
    memcpy(strstr(line, "\"median_us\":0.0"), "\"median_us\":1.0", 15);
    memcpy(strstr(line, "\"choice_us\":0.0"), "\"choice_us\":9.0", 15);
    write_words(evidence, "a", line);
    assert_ok(search(&o, &r));
    assert_int_equal(r.final_count, 0);
    assert_int_equal(r.reused, 2);
    assert_says(line_with("compile_fails"), "\"timed\""); // the last line is still the planted one
}

/*
 * Every way to fail, in one search: each ends as what it is, and the good config behind them is found and timed
 * (replays 7, 8). They differ in shared memory: the same kernels would be told apart by nothing.
 */
TEST(troubles)
{
    static const struct {
        const char *name;
        tune_outcome outcome;
        const char *sentence;
    } rows[] = {
        { "describe_hangs", TUNE_HUNG, "killed after 2" },
        { "describe_crashes", TUNE_CRASHED, "ended by signal 9" },
        { "describe_fails", TUNE_NOT_DESCRIBED, "twice plain" },
        { "wrong", TUNE_WRONG_EMULATED, "y" },
        { "compile_fails", TUNE_NOT_COMPILED, "does not like it" },
        { "wrong_on_device", TUNE_WRONG, "y" },
        { "launch_hangs", TUNE_HUNG, "killed after 2" },
        { "launch_faults", TUNE_FAULTY, "context is lost" },
        { "launch_crashes", TUNE_CRASHED, "ended by signal 9" },
        { "stale", TUNE_WRONG, "y" },    // outputs are poisoned: what an earlier kernel left is not there
        { "overruns", TUNE_WRONG, "y" }, // and what it spoiled is mended
    };
    const char *given[COUNT_OF(rows) + 2] = { 0 };
    char configs[COUNT_OF(rows)][64];
    tune_result r;
    for (int i = 0; i < COUNT_OF(rows); i++) {
        snprintf(configs[i], sizeof configs[i], "plain smem_kb=%d trouble=%s", i + 1, rows[i].name);
        given[i] = configs[i];
    }
    given[COUNT_OF(rows)] = "plain barriers=1";
    new_evidence();
    tune_options o = options_for(given, COUNT_OF(rows) + 2);
    assert_ok(search(&o, &r));
    for (int i = 0; i < COUNT_OF(rows); i++) {
        char words[64];
        snprintf(words, sizeof words, "trouble=%s\"", rows[i].name);
        expect_line(words, rows[i].outcome, rows[i].sentence);
    }
    assert_int_equal(r.count[TUNE_TIMED], 2);
    expect_winner(&r);
}

/* As if the clock were noisy. */
static ckl_status measure_noisily(const rotation *memory, ckl_stream stream, const measure_limits *limits,
                                  contestant *contestants, int count, conditions *out)
{
    TRY(measure_briefly(memory, stream, limits, contestants, count, out));
    for (int i = 0; i < count; i++)
        contestants[i].time_us.half_width = 0.05;
    return CKL_OK;
}

/* The plan's choice stays where intervals overlap, or the gain is small. */
TEST(no_winner)
{
    const char *faster[] = { "plain barriers=1", NULL }, *little[] = { "plain smem_kb=40", NULL };
    tune_result r;
    new_evidence();
    tune_options o = options_for(faster, 2);
    o.measure = measure_noisily;
    assert_ok(search(&o, &r));
    assert_true(r.finals[0].median_us < 0.95 * r.finals[0].choice_us);
    assert_false(r.won);
    new_evidence();
    o = options_for(little, 2);
    assert_ok(search(&o, &r));
    assert_true(r.finals[0].median_us < 0.995 * r.finals[0].choice_us);
    assert_false(r.won);
}

/* When the time is over nothing more is begun, and nothing that did not happen is written. */
TEST(late)
{
    tune_result r;
    new_evidence();
    tune_options o = options_for(NULL, 5);
    o.seconds = 1e-9;
    assert_ok(search(&o, &r));
    assert_int_equal(r.count[TUNE_TIMED], 1);
    assert_true(r.final_count <= 1);
    assert_string_not_equal(line_with("\"schema\""), "");
}

static ckl_status open_slowly(const char *id, ckl_device **opened)
{
    usleep(300000);
    return open_fake(id, opened);
}

/* Opening the problem takes none of the time. */
TEST(late_opening)
{
    tune_result r;
    new_evidence();
    tune_options o = options_for(NULL, 5);
    o.open = open_slowly;
    o.seconds = 0.3;
    assert_ok(search(&o, &r));
    assert_true(r.opening_seconds >= 0.3 && r.seconds > r.opening_seconds);
    assert_string_not_equal(line_with("\"trial\""), "");
}

/* Replay 6: no kernel is described of what the implementation does not take. */
TEST(illegal)
{
    tune_result r = search_with("steps=1");
    expect_winner(&r);
    expect_line("steps=1", TUNE_ILLEGAL, "steps=1, but its pipeline needs 2");
    assert_says(line_with("steps=1"), "\"digest\":\"\"");
}

/* Replays 3 and 4: need and limit are said before anything is built; where there is room the same config runs. */
TEST(shared_memory)
{
    smem_max = 99 << 10;
    tune_result r = search_with("smem_kb=144");
    expect_winner(&r);
    expect_line("smem_kb=144", TUNE_NOT_DESCRIBED, "needs 147456 bytes of shared memory, fake has 101376 per CTA");
    expect_line("smem_kb=144", TUNE_NOT_DESCRIBED, "the largest are room=147456");
    smem_max = 227 << 10;
    r = search_with("smem_kb=144");
    assert_int_equal(r.count[TUNE_TIMED], 3);
}

/* Replays 15 and 16: evidence that is none, is of another version or lacks a member, or was measured otherwise. */
TEST(foreign_evidence)
{
    static const struct {
        const char *from, *to, *sentence;
    } changes[] = {
        { "cutekernellib.tune", "cutekernellib.song", ":1: schema='cutekernellib.song' is not 'cutekernellib.tune'" },
        { "\"version\":1", "\"version\":9", ":1: version=9 is not 1" },
        { "a fake GPU", "a real GPU", ":1: gpu='a real GPU' is not what is tuned now, 'a fake GPU'" },
        { "cold L2", "warm L2", ":1: method='interleaved with the plan's choice, warm L2" },
        { "\"median_us\":5", "\"median_uz\":5", ": median_us is not a number" },
        { "{\"line\"", "[\"line\"", ":2: " },
    };
    tune_result r = search_with("unused=0");
    char content[1 << 14];
    read_words(evidence, content);
    for (int i = 0; i < COUNT_OF(changes); i++) {
        char changed[sizeof content];
        strcpy(changed, content);
        char *at = strstr(changed, changes[i].from);
        assert_non_null(at);
        memcpy(at, changes[i].to, strlen(changes[i].to));
        write_words(evidence, "w", changed);
        tune_options o = options_for(NULL, 3);
        assert_fails(search(&o, &r), CKL_INVALID, changes[i].sentence);
    }
}

static int remove_evidence(void **state)
{
    return unlink(evidence) != 0 && *evidence;
}

int main(void)
{
    setenv("CKL_TUNED", "off", 1);
    return run_enlisted(NULL, remove_evidence);
}
