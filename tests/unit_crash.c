/* unit_crash.c - a crash inside of a kernel's function names the kernel and the line, and still ends the process. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "cli/crash.h"
#include "cute/kernel.h"
#include "ir/build.h"

static int last_line; // that the kernel's function has recorded

static void begin_kernel(void)
{
    ir_describe_begin("doomed", IR_SM80);
    (void)add(thread(), thread());
    last_line = __LINE__ - 1;
}

static void segfault(void)
{
    begin_kernel();
    raise(SIGSEGV);
}

static void abort_in_kernel(void)
{
    begin_kernel();
    abort();
}

static int deep(volatile int *at) // NOLINT: endless by intent
{
    volatile int local[1024];
    local[0] = *at + 1;
    return local[0] ? deep(local) + local[0] : 0;
}

static void overflow_stack(void)
{
    volatile int start = 0;
    begin_kernel();
    deep(&start);
}

static void crash_elsewhere(void)
{
    raise(SIGFPE);
}

/* Runs it in a process of its own; what that wrote to stderr, and the signal that ended it. */
static int end_of(void (*crash)(void), char *words, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(ends[1], STDERR_FILENO);
        crash_report();
        crash();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t got; length + 1 < size && (got = read(ends[0], words + length, size - 1 - length)) > 0;)
        length += (size_t)got;
    words[length] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void expect_report(void (*crash)(void), int signal, const char *what)
{
    char words[4096], wanted[256];
    assert_int_equal(end_of(crash, words, sizeof words), signal);
    begin_kernel(); // for its line
    assert_ok(ir_describe_end(NULL));
    snprintf(wanted, sizeof wanted, "ckl: crashed, %s, while describing kernel doomed, after %s:%d\n", what, __FILE__,
             last_line);
    assert_memory_equal(words, wanted, strlen(wanted)); // then addresses, where there are any
}

TEST(kernel_is_named)
{
    expect_report(segfault, SIGSEGV, "segmentation fault");
    expect_report(abort_in_kernel, SIGABRT, "abort");
    expect_report(overflow_stack, SIGSEGV, "segmentation fault");
}

TEST(outside_of_kernels)
{
    char words[4096];
    assert_int_equal(end_of(crash_elsewhere, words, sizeof words), SIGFPE);
    static const char wanted[] = "ckl: crashed, arithmetic fault\n";
    assert_memory_equal(words, wanted, sizeof wanted - 1);
}

RUN_TESTS(NULL, NULL)
