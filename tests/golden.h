/*
 * golden.h - a text that a test makes against a file that was committed: the first line that differs fails. A program
 * that includes this once takes --update, which writes the file anew instead; its diff is what changed.
 */
#pragma once

#include "files.h"

static void golden_compare(const char *path, const text *now)
{
    text file = { 0 };
    assert_true(read_text(path, &file));
    const char *is = text_data(now), *was = text_data(&file), *is_line = is, *was_line = was;
    int line = 1;
    for (; *is && *is == *was; is++, was++)
        if (*is == '\n') {
            line++;
            is_line = is + 1;
            was_line = was + 1;
        }
    if (*is != *was)
        fail_msg("%s:%d is otherwise now; --update writes it anew\nwas: %.*s\nis:  %.*s", path, line,
                 (int)strcspn(was_line, "\n"), was_line, (int)strcspn(is_line, "\n"), is_line);
    text_free(&file);
}

static bool golden_write(const char *path, const text *now)
{
    FILE *file = fopen(path, "wb");
    bool good = file && fwrite(text_data(now), 1, now->length, file) == now->length;
    return file && fclose(file) == 0 && good;
}

static bool golden_update_wanted(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "--update") == 0;
}

/*
 * A quick run asks one of GOLDEN_ONE_IN questions, and those whose comment says what they alone would show; the answers
 * of the others stand. Those who write the file ask all.
 */
#ifndef GOLDEN_ONE_IN
#define GOLDEN_ONE_IN 3
#endif
static bool golden_asks_all;

/*
 * A file of questions as it should be: its lines that are not indented are comments and questions, kept as they are;
 * below each question stands what answer() says now, indented.
 */
static inline void golden_answer(const char *path, void (*answer)(const char *question, text *out), text *now)
{
    text file = { 0 };
    bool asked = true;
    int number = 0, left = 0;
    assert_true(read_text(path, &file));
    for (char *line = file.data, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (*line != ' ' || !asked)
            text_printf(now, "%s\n", line);
        if (*line == ' ')
            continue;
        const bool commented = strchr(line, '#') != NULL;
        line[strcspn(line, "#")] = '\0';
        asked = *line && (golden_asks_all || commented || number % GOLDEN_ONE_IN == 0);
        number += *line && !commented;
        left += *line && !asked;
        if (asked)
            answer(line, now);
    }
    if (left)
        printf("%d left to --full: questions of %s\n", left, strrchr(path, '/') + 1);
    text_free(&file);
}

/* Texts that need nothing but a function that makes them. */
static inline void golden_check(const char *path, void (*print)(text *out))
{
    text now = { 0 };
    golden_asks_all = getenv("CKL_TEST_FULL") != NULL;
    print(&now);
    golden_compare(path, &now);
    text_free(&now);
}

static inline bool golden_update(const char *path, void (*print)(text *out))
{
    text now = { 0 };
    golden_asks_all = true;
    print(&now);
    bool written = golden_write(path, &now);
    text_free(&now);
    return written;
}

/* The main() of a program that has such a text and nothing else. */
#define GOLDEN_MAIN(path, print)                                                                          \
    TEST(text)                                                                                            \
    {                                                                                                     \
        golden_check(path, print);                                                                        \
    }                                                                                                     \
                                                                                                          \
    int main(int argc, char **argv)                                                                       \
    {                                                                                                     \
        return golden_update_wanted(argc, argv) ? !golden_update(path, print) : run_enlisted(NULL, NULL); \
    }
