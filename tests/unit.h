/*
 * unit.h - cmocka, the headers that it wants before it, and those that nearly every unit test uses.
 *
 * TEST(widths) { ... } is a test, and RUN_TESTS(begin, end) the main() of a program: it runs all tests of the file in
 * their order, begin() before the first and end() behind the last. Either may be NULL.
 */
#pragma once

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cutekernellib/base.h"

enum { TESTS_MAX = 256, TEST_NAME_MAX = 64 };

static struct CMUnitTest enlisted[TESTS_MAX];
static size_t enlisted_count;

/* One more test of this program: test() finds `of` in *state. */
static inline void enlist(const char *name, CMUnitTestFunction test, CMFixtureFunction begin, CMFixtureFunction end,
                          const void *of)
{
    static char names[TESTS_MAX][TEST_NAME_MAX];
    assert(enlisted_count < TESTS_MAX);
    snprintf(names[enlisted_count], TEST_NAME_MAX, "%s", name);
    enlisted[enlisted_count] = (struct CMUnitTest){ names[enlisted_count], test, begin, end, (void *)(uintptr_t)of };
    enlisted_count++;
}

/* Returns how many failed. */
static inline int run_enlisted(CMFixtureFunction begin, CMFixtureFunction end)
{
    return _cmocka_run_group_tests("tests", enlisted, enlisted_count, begin, end);
}

/* begin() runs before this test alone, end() behind it. */
#define TEST_BETWEEN(name, begin, end)                           \
    static void test_##name(void **state);                       \
    __attribute__((constructor)) static void enlist_##name(void) \
    {                                                            \
        enlist("test_" #name, test_##name, begin, end, NULL);    \
    }                                                            \
    static void test_##name(void **state)

#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

/* The call succeeds. */
#define assert_ok(call)                             \
    do {                                            \
        if ((call) != CKL_OK)                       \
            fail_msg("%s: %s", #call, ckl_error()); \
    } while (0)

/* These words are in the text; or are not. */
#define assert_says(said, words)  look_for(said, words, true, __FILE__, __LINE__)
#define assert_omits(said, words) look_for(said, words, false, __FILE__, __LINE__)
static inline void look_for(const char *said, const char *words, bool wanted, const char *file, int line)
{
    if ((strstr(said, words) != NULL) == wanted)
        return;
    print_error("'%s' is %sin: %s\n", words, wanted ? "not " : "", said);
    _fail(file, line);
}

/* The call fails with this status, and its sentence has these words. */
#define assert_fails(call, status, words) \
    do {                                  \
        assert_int_equal(call, status);   \
        assert_says(ckl_error(), words);  \
    } while (0)

/* The same, and its sentence is this one. */
#define assert_fails_with(call, status, sentence)   \
    do {                                            \
        assert_int_equal(call, status);             \
        assert_string_equal(ckl_error(), sentence); \
    } while (0)

#define RUN_TESTS(begin, end)            \
    int main(void)                       \
    {                                    \
        return run_enlisted(begin, end); \
    }
