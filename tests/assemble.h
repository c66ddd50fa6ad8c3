/* assemble.h - kernels that ptxas assembles, if there is one, without warnings and spills; included once. */
#pragma once

#include <unistd.h>

#include "unit.h"
#include "ir/build.h"

#define HERE ir_at(__FILE__, __LINE__)

static val global;         // u64 address of the kernel's parameter
static int64_t next_input; // offsets of what is loaded and stored
static int64_t next_output;

static void begin(const char *name, ir_target target)
{
    ir_describe_begin(name, target);
    HERE;
    global = ir_scalar_param(IR_U64, "memory");
    next_input = next_output = 0;
}

/* A register that ptxas knows nothing about. */
static val input(ir_type type)
{
    val v = ir_reg(type);
    if (type == IR_PRED) {
        val word = input(IR_U32);
        return ir_compare(IR_NE, word, ir_int(IR_U32, 0));
    }
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, type, 1, global, next_input, &v);
    next_input += 16;
    return v;
}

/* The assembler's words, or NULL if there is none. */
static char *assemble(const char *ptx, ir_target target, int *exit_status)
{
    static char words[16384];
    char file[] = "/tmp/unit_ptx_XXXXXX", command[256];
    if (system("command -v ptxas >/dev/null 2>&1") != 0)
        return NULL;
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, ptx, strlen(ptx)), (ssize_t)strlen(ptx));
    close(fd);
    snprintf(command, sizeof command, "ptxas -arch=%s -v -o /dev/null %s 2>&1", target == IR_SM80 ? "sm_80" : "sm_90a",
             file);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    words[fread(words, 1, sizeof words - 1, pipe)] = '\0';
    *exit_status = pclose(pipe);
    unlink(file);
    return words;
}

/* The line that the assembler's first complaint names. */
static const char *bad_line(const char *ptx, const char *words, int *length)
{
    const char *number = strstr(words, ", line ");
    for (int line = number ? atoi(number + 7) : 1; line > 1 && strchr(ptx, '\n'); line--)
        ptx = strchr(ptx, '\n') + 1;
    *length = (int)strcspn(ptx, "\n");
    return ptx;
}

static void check_assembled(const char *ptx, const ir_kernel *kernel)
{
    int exit_status = 0;
    const char *words = assemble(ptx, kernel->target, &exit_status);
    if (!words) // no ptxas: the kernel was described, verified and printed all the same
        return;
    bool clean = exit_status == 0 && strstr(words, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") &&
                 !strstr(words, "warning") && !strstr(words, "(C75");
    int length;
    const char *line = bad_line(ptx, words, &length);
    if (!clean)
        fail_msg("%s: %.*s\n%.500s", kernel->name, length, line, words);
}

/* Says so where nothing can be assembled. */
static void look_for_ptxas(void)
{
    int unused;
    if (!assemble("", IR_SM80, &unused))
        print_message("skipped: nothing is assembled, ptxas is not installed\n");
}
