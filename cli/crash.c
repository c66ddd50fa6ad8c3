/* crash.c - handlers of fatal signals, which print by write() alone. */
#include "cli/crash.h"

#if __has_include(<execinfo.h>) // of glibc
#include <execinfo.h>
#define HAS_BACKTRACE
#endif
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/math.h"
#include "ir/build.h"

static const struct {
    int number;
    const char *name;
} fatal[] = { { SIGSEGV, "segmentation fault" },
              { SIGBUS, "bus error" },
              { SIGFPE, "arithmetic fault" },
              { SIGILL, "illegal instruction" },
              { SIGABRT, "abort" } };

static void say(const char *words)
{
    ssize_t written = write(STDERR_FILENO, words, strlen(words));
    (void)written;
}

static void say_number(int number)
{
    char digits[16], *at = digits + sizeof digits;
    *--at = '\0';
    do
        *--at = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    say(at);
}

/* Who called whom, as addresses for addr2line. */
static void say_callers(void)
{
#ifdef HAS_BACKTRACE
    void *callers[32];
    backtrace_symbols_fd(callers, backtrace(callers, COUNT_OF(callers)), STDERR_FILENO);
#endif
}

static void report(int signal)
{
    const char *kernel, *file;
    int line;
    say("ckl: crashed, ");
    for (int i = 0; i < COUNT_OF(fatal); i++)
        if (fatal[i].number == signal)
            say(fatal[i].name);
    if (ir_describing(&kernel, &file, &line) && *kernel) { // the calculator of layouts describes none
        say(", while describing kernel ");
        say(kernel);
        say(", after ");
        say(file);
        say(":");
        say_number(line);
    }
    say("\n");
    say_callers();
    raise(signal); // its action is the default one again
}

void crash_report(void)
{
    static _Alignas(16) char stack[1 << 16]; // of its own: endless recursion overflows the thread's
    sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, NULL);
#ifdef HAS_BACKTRACE
    backtrace((void *[1]){ NULL }, 1); // loads what it needs now, not in a handler
#endif
    struct sigaction action = { .sa_handler = report, .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND | SA_NODEFER) };
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < COUNT_OF(fatal); i++)
        sigaction(fatal[i].number, &action, NULL);
}
