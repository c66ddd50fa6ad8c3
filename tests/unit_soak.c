/* unit_soak.c - the soak notices wrong bits, growing memory, a device lost or hung; its problems repeat by seed. */
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "lab/clock.h"
#include "lab/host_memory.h"
#include "lab/soak.h"
#include "plan/kernel_cache.h"

static const random_problem_limits limits = { .flops = 1e5, .bytes = 1 << 18 };

/* The emulator with one function exchanged. */
static ckl_device *device;
static device_ops ops, original;

static int open_device(void **state)
{
    if (ckl_device_open("emulator:h200", &device) != CKL_OK)
        return 1;
    ops = original = *device->ops;
    device->ops = &ops;
    return 0;
}

static int close_device(void **state)
{
    ops = original;
    ckl_device_close(device);
    return 0;
}

static int failures, others, progresses, phases, waits, answers;
static char last_fault[256];

static void note_failure(const char *line, int64_t number, const char *plan, const char *what)
{
    assert_true(*line && *plan && number >= 0);
    snprintf(last_fault, sizeof last_fault, "%s", what);
    failures++;
}

static void note_beside(const char *line, int64_t number)
{
    assert_true(*line && number >= 0);
    others++;
}

static void note_progress(const soak_sums *sums)
{
    assert_true(sums->seconds > 0);
    progresses++;
}

static void note_phase(const soak_sums *sums)
{
    assert_int_equal(sums->phases, ++phases);
    assert_true(sums->kernel_sets > 0);
    assert_true(kernel_cache_count(device).sets == 0 && host_memory_kept() == 0); // given back
}

static void note_wait(const soak_wait *w)
{
    assert_true(*w->line && w->number >= 0);
    assert_in_range(w->stream, 2 * w->thread, 2 * w->thread + 1);
    assert_string_equal(w->stage, "waiting for its first run");
    assert_says(w->plan, "add "); // which kernel it was
    assert_true(w->runs == 1 && w->run_seconds == 0);
    assert_true(w->seconds >= 0.4);
    if (w->work)
        assert_string_equal(w->work, "its work is not done");
    answers += w->work != NULL;
    waits++;
}

static soak_sums soak_for(double seconds, int64_t problems, double stuck_seconds)
{
    soak_options o = { .seed = 3,
                       .seconds = seconds,
                       .problems = problems,
                       .threads = 2,
                       .streams = 4,
                       .progress_seconds = 0.1,
                       .stuck_seconds = stuck_seconds,
                       .failed = note_failure,
                       .beside = note_beside,
                       .progress = note_progress,
                       .phase = note_phase,
                       .waiting = note_wait };
    soak_sums sums;
    failures = others = progresses = phases = waits = answers = 0;
    assert_ok(case_operator("add", &o.only));
    assert_ok(soak_run(device, &o, &sums));
    assert_int_equal(failures, sums.wrong);
    return sums;
}

TEST(lines)
{
    char seen[64] = { 0 };
    for (uint64_t seed = 0; seed < 100; seed++) {
        text first = { 0 }, second = { 0 };
        test_case c;
        random_problem(NULL, &device->info, seed, limits, &first);
        random_problem(NULL, &device->info, seed, limits, &second);
        assert_string_equal(text_data(&first), text_data(&second));
        if (case_parse(text_data(&first), &c) != CKL_OK)
            fail_msg("%s: %s", text_data(&first), ckl_error());
        for (int i = 0; operator_tests[i]; i++)
            seen[i] |= operator_tests[i] == c.test;
        case_clear(&c);
        text_free(&first);
        text_free(&second);
    }
    for (int i = 0; operator_tests[i]; i++)
        assert_true(seen[i]);
}

TEST(good)
{
    enum { IMAGE_BYTES = 4 << 20 };
    host_memory_give(host_memory_take(IMAGE_BYTES), IMAGE_BYTES);
    soak_sums sums = soak_for(1e3, 12, 100);
    assert_true(phases == 1 && sums.image_bytes >= IMAGE_BYTES);
    assert_int_equal(sums.problems + sums.refused, 12);
    assert_true(sums.runs > sums.rounds && sums.rounds > sums.problems);
    assert_true(soak_passed(&sums));
    assert_int_equal(sums.device_bytes, 0);
}

/* Every 40th copy from the device has a wrong bit. */
static ckl_status spoil(ckl_device *d, void *to, const void *from, size_t bytes, ckl_stream s)
{
    static int copies;
    TRY(original.copy_out(d, to, from, bytes, s));
    if (__atomic_add_fetch(&copies, 1, __ATOMIC_RELAXED) % 40 == 0)
        ((unsigned char *)to)[bytes / 2] ^= 1;
    return CKL_OK;
}

TEST(wrong_bits)
{
    ops.copy_out = spoil;
    soak_sums sums = soak_for(1e3, 20, 100);
    ops = original;
    assert_true(sums.wrong > 0);
    assert_false(soak_passed(&sums));
}

/* Each time it is asked, more memory is in use. */
static ckl_status grow(ckl_device *d, size_t *bytes)
{
    static size_t used;
    *bytes = used += (size_t)SOAK_DEVICE_GROWTH_MAX * 2;
    return CKL_OK;
}

TEST(growing_memory)
{
    ops.memory_used = grow;
    soak_sums sums = soak_for(3, 0, 100); // long enough for two phases on a busy machine
    ops = original;
    assert_int_equal(sums.wrong, 0);
    assert_true(sums.device_growth > SOAK_DEVICE_GROWTH_MAX);
    assert_false(soak_passed(&sums));
    assert_true(progresses > 0);
}

/* The third launch is some thread's second: its first stream has a problem by then. */
static ckl_status lose(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    static int launches;
    if (__atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED) < 3)
        return original.launch(d, kernel, launch, s);
    FAIL(CKL_DEVICE_FAULT, "the context is lost");
}

TEST(lost_device)
{
    double begin = clock_seconds();
    device->info.emulated = false;
    ops.launch = lose;
    soak_sums sums = soak_for(1e3, 0, 100);
    ops = original;
    device->info.emulated = true;
    assert_true(sums.lost);
    assert_int_equal(sums.wrong, 1); // one report, not one of each stream
    assert_in_range(others, 1, 3);
    assert_says(last_fault, "the context is lost");
    assert_true(clock_seconds() - begin < 20);
}

static ckl_status take_long(ckl_device *d, ckl_stream s)
{
    usleep(260000); // longer than a round may last
    return original.synchronize(d, s);
}

/* A round of many such runs would be taken for a kernel that never ends. */
TEST(slow_runs)
{
    ops.synchronize = take_long;
    soak_sums sums = soak_for(1e3, 2, 100);
    ops = original;
    assert_true(soak_passed(&sums));
    assert_int_equal(sums.runs, sums.problems + sums.rounds);
    assert_true(sums.rounds <= 7 * sums.problems);
    assert_true(sums.run_seconds_max >= 0.26 && *sums.slowest);
}

/* An enqueued run that failed may have left others under way: nothing of theirs is freed before the stream waits. */
static bool waited;
static int released_early;

static ckl_status refuse(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    waited = false;
    return lose(d, kernel, launch, s);
}

static ckl_status note_synchronized(ckl_device *d, ckl_stream s)
{
    waited = true;
    return original.synchronize(d, s);
}

static void release_idle(ckl_device *d, void *memory)
{
    released_early += !waited;
    original.release(d, memory);
}

TEST(freeing_after_fault)
{
    ops.launch = refuse;
    ops.synchronize = note_synchronized;
    ops.release = release_idle;
    soak_sums sums = soak_for(1e3, 1, 100);
    ops = original;
    assert_int_equal(sums.wrong, 1);
    assert_int_equal(released_early, 0);
}

static ckl_status hang(ckl_device *d, ckl_stream s)
{
    sleep(1000);
    return CKL_OK;
}

static ckl_status busy(ckl_device *d, ckl_stream s, bool *idle)
{
    *idle = false;
    return CKL_OK;
}

static int reopen_device(void **state)
{
    return close_device(state) || open_device(state);
}

/* The last test: its threads stay behind. */
TEST_BETWEEN(hanging_device, reopen_device, NULL)
{
    ops.synchronize = hang;
    ops.stream_idle = busy;
    soak_sums sums = soak_for(1e3, 0, 0.5);
    assert_true(sums.stuck);
    assert_true(waits > 0 && answers == waits / 2);
    assert_false(soak_passed(&sums));
}

int main(void)
{
    int failed = run_enlisted(open_device, NULL);
    fflush(NULL);
    _exit(failed);
}
