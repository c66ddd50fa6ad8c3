/* population.c - sizes that users have, and filling the holes of a population's lines. */
#include "lab/population.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "base/random.h"

enum {
    ATTEMPTS = 4000,
    ATTEMPTS_OF_OCTAVE = 200, // at first; then any legal problem does
    OCTAVES = 15              // of memory below the limit
};

const random_problem_limits population_limits = { .flops = 0x1p43, .bytes = 0x1p30 };

/* Sizes */

/* A kind of size: what models and data have, and the range between which others are drawn. */
typedef struct size_kind {
    const char *name;
    int64_t low, high;
    const char *known; // separated by spaces, each as likely
} size_kind;

static const size_kind size_kinds[] = {
    { "batch", 1, 256, "1 2 3 4 8 16 32 64 128" },
    { "tokens", 1, 1 << 17, "1 8 32 128 197 512 577 1024 2048 4096 8192 16384 32768 65536" },
    { "sequence", 1, 1 << 16, "77 128 197 256 384 512 577 1024 1500 2048 4096 8192 32768" },
    { "hidden", 64, 1 << 16,
      "384 768 1024 1280 1536 2048 2560 2880 3072 3584 4096 5120 6144 7168 8192 11008 12288 14336 16384 28672" },
    { "vocabulary", 1000, 1 << 18,
      "1000 21841 30522 32000 32768 50257 50304 51200 100277 128256 129280 151936 152064 200064 256000 262144" },
    { "experts", 2, 512, "8 16 60 64 128 160 256 384" },
    { "heads", 1, 128, "1 8 12 16 24 28 32 40 48 64 96 128" },
    { "head_dim", 16, 512, "32 40 48 64 72 80 96 112 128 160 192 256" },
    { "image", 1, 1024, "1 7 8 14 16 28 32 56 64 96 112 128 224 256 299 384 512" },
    { "channels", 1, 4096, "3 4 16 32 64 96 128 192 256 320 512 640 768 1024 1280 2048" },
    { "length", 1, 1 << 28, "1000 4096 65536 1000000 4194304 16777216 67108864" },
};

/* Shares of 100 sizes, in this order; a size too small for its multiple falls into the next share. */
static const struct share {
    int percent;
    int64_t multiple; // 0: known; 1: odd
} shares[] = { { 30, 0 }, { 20, 1024 }, { 20, 128 }, { 15, 8 }, { 15, 1 } };

static int64_t draw_known(const size_kind *kind, uint64_t *r)
{
    const char *word;
    int count = 0;
    while (field_word(kind->known, count, &word))
        count++;
    field_word(kind->known, (int)random_below(r, count), &word);
    return strtoll(word, NULL, 10);
}

/* All powers of two are equally likely, and so are all numbers from one to the next. */
static int64_t draw_between(int64_t low, int64_t high, uint64_t *r)
{
    int octaves = 1;
    while (low << octaves <= high)
        octaves++;
    for (;;) {
        int64_t from = low << random_below(r, octaves), size = from + random_below(r, from);
        if (size <= high)
            return size;
    }
}

static int64_t draw_size(const size_kind *kind, uint64_t *r)
{
    const struct share *s = shares;
    for (int64_t percent = random_below(r, 100); percent >= s->percent; s++)
        percent -= s->percent;
    if (s->multiple == 0)
        return draw_known(kind, r);
    int64_t size = draw_between(kind->low, kind->high, r);
    while (size < s->multiple)
        s++;
    return s->multiple == 1 ? size | 1 : size / s->multiple * s->multiple;
}

/* Lines */

/* A line that is being filled: the sizes that have letters. */
typedef struct filling {
    uint64_t *random;
    int64_t named['z' + 1];
    text *line;
} filling;

static void append_word(filling *f, const char *words, size_t length)
{
    int64_t bars = 0;
    for (size_t i = 0; i < length; i++)
        bars += words[i] == '|';
    for (int64_t chosen = random_below(f->random, bars + 1); chosen > 0; chosen--) {
        size_t behind = strcspn(words, "|") + 1;
        words += behind;
        length -= behind;
    }
    const char *end = memchr(words, '|', length);
    text_append(f->line, words, end ? (size_t)(end - words) : length);
}

/* False: there is no such kind. */
static bool append_size(filling *f, const char *hole, size_t length)
{
    char letter = length > 1 && hole[1] == ':' ? hole[0] : 0;
    const char *name = letter ? hole + 2 : hole;
    length -= letter ? 2 : 0;
    for (int i = 0; i < COUNT_OF(size_kinds); i++)
        if (strlen(size_kinds[i].name) == length && memcmp(size_kinds[i].name, name, length) == 0) {
            int64_t size = draw_size(&size_kinds[i], f->random);
            f->named[(int)letter] = size;
            text_printf(f->line, "%" PRId64, size);
            return true;
        }
    return false;
}

static ckl_status fill_hole(filling *f, const char *hole, size_t length)
{
    if (memchr(hole, '|', length))
        append_word(f, hole, length);
    else if (length == 1 && islower((unsigned char)*hole) && f->named[(int)*hole])
        text_printf(f->line, "%" PRId64, f->named[(int)*hole]);
    else if (!append_size(f, hole, length))
        FAIL(CKL_INTERNAL, "population: '{%.*s}' is no kind of size", (int)length, hole);
    return CKL_OK;
}

static ckl_status fill_line(const char *pattern, uint64_t *r, text *line)
{
    filling f = { .random = r, .line = line };
    while (*pattern) {
        size_t plain = strcspn(pattern, "{"), hole = strcspn(pattern + plain, "}");
        text_append(line, pattern, plain);
        pattern += plain;
        if (*pattern) {
            TRY(fill_hole(&f, pattern + 1, hole - 1));
            pattern += hole + 1;
        }
    }
    return CKL_OK;
}

/* Does a list of words have the key of a word? */
static bool has_key(const char *words, const char *word)
{
    const size_t length = strcspn(word, "= ");
    for (; *words; words += strcspn(words, " ")) {
        words += strspn(words, " ");
        if (strncmp(words, word, length) == 0 && words[length] == '=')
            return true;
    }
    return false;
}

/* The words with those that are given in the place of words of the same key. */
static void append_given(const char *words, const char *given, text *line)
{
    for (size_t length; *words; words += length) {
        words += strspn(words, " ");
        length = strcspn(words, " ");
        if (!has_key(given, words))
            text_printf(line, "%.*s ", (int)length, words);
    }
    text_printf(line, "%s", given);
}

static ckl_status draw_line(const operator_test *test, const char *given, uint64_t *r, text *line)
{
    text drawn = { 0 };
    ckl_status status = fill_line(random_line(test->population, r), r, &drawn);
    text_printf(line, "%s ", test->op->name);
    append_given(text_data(&drawn), given ? given : "", line);
    text_free(&drawn);
    return status;
}

/* The end of a sentence: why a draw is illegal, "" if it is not. */
typedef struct reason {
    char words[256];
} reason;

/* Appends the line if it is legal, within the limits, and needs at least bytes_min. Refused gets why it is illegal. */
static bool append_legal(const char *drawn, random_problem_limits limits, double bytes_min, text *line, reason *refused)
{
    test_case c;
    const random_problem_limits small = { .flops = limits.flops, .bytes = bytes_min };
    bool parsed = case_parse(drawn, &c) == CKL_OK;
    snprintf(refused->words, sizeof refused->words, "%s%s", parsed ? "" : "; the last: ", parsed ? "" : ckl_error());
    bool legal = parsed && adapter_bytes(c.test, c.problem) > 0 && random_problem_fits(&c, limits) &&
                 !random_problem_fits(&c, small);
    if (legal)
        case_print(&c, line);
    case_clear(&c);
    return legal;
}

/* Operators draw differently of the same seed. */
static uint64_t stream_of(const operator_test *test, uint64_t seed)
{
    for (const char *at = test->op->name; *at; at++)
        seed = random_at(seed, (uint64_t)*at);
    return seed;
}

ckl_status population_line(const operator_test *test, population_sample sample, int64_t number, text *line)
{
    uint64_t r = random_at(stream_of(test, sample.seed), (uint64_t)number);
    random_problem_limits octave = sample.limits;
    octave.bytes /= (double)(1 << random_below(&r, OCTAVES));
    reason refused = { "" };
    for (int i = 0; i < ATTEMPTS; i++) {
        bool any = i >= ATTEMPTS_OF_OCTAVE;
        text drawn = { 0 };
        ckl_status status = draw_line(test, sample.given, &r, &drawn);
        bool legal = status == CKL_OK && append_legal(text_data(&drawn), any ? sample.limits : octave,
                                                      any ? 0 : octave.bytes / 2, line, &refused);
        text_free(&drawn);
        TRY(status);
        if (legal)
            return CKL_OK;
    }
    FAIL(CKL_INVALID, "population: none of %d draws of %s is legal and within the limits%s", ATTEMPTS, test->op->name,
         refused.words);
}
