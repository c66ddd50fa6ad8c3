/* tune_space.c - the configs to try: the first generation, and children of the best. */
#include <string.h>

#include "base/heap.h"
#include "base/math.h"
#include "base/number.h"
#include "base/problem.h"
#include "bench/tune_parts.h"

enum {
    DRAWS_MAX = 400,   // for one child: most changes of a good config are no config
    WORDS_MAX = 64,    // values of a field
    RANKED_MAX = 4096, // candidates of a cost model
};

ckl_status tune_space_open(const test_case *c, const ckl_device_info *device, uint64_t seed, tune_space *space)
{
    *space = (tune_space){ .op = c->test->op, .device = device, .random = seed };
    space->desc = case_desc(c, &space->memory);
    return plan_desc(space->op, space->desc, &space->memory, &space->view);
}

void tune_space_close(tune_space *space)
{
    arena_clear(&space->memory);
    heap_free(space->seen);
    *space = (tune_space){ 0 };
}

/* Configs */

static const char *print_config(tune_space *s, const implementation *impl, const void *config)
{
    text words = { 0 };
    text_printf(&words, "%s ", impl->name);
    fields_print(impl->config, config, false, &words);
    const char *kept = arena_text(&s->memory, text_data(&words));
    text_free(&words);
    return kept;
}

/* Remembers a config; false if it was there. */
static bool is_new(tune_space *s, const char *config)
{
    for (int i = 0; i < s->seen_count; i++)
        if (strcmp(s->seen[i], config) == 0)
            return false;
    if (s->seen_count == s->seen_room) {
        s->seen_room = 2 * s->seen_room + 64;
        s->seen = heap_resize(s->seen, (size_t)s->seen_room, sizeof *s->seen);
    }
    s->seen[s->seen_count++] = config;
    return true;
}

/* The config that a plan makes of a forcing text; NULL and the thread's sentence if it refuses. */
static const void *configure(tune_space *s, const char *force, const implementation **impl)
{
    void *config;
    return plan_choose(s->device, s->op, s->desc, force, &s->memory, impl, &config) == CKL_OK ? config : NULL;
}

/* The first generation */

typedef struct generation {
    tune_space *space;
    tune_candidate *out;
    int count, most;
} generation;

/* Adds what a text forces. `wanted`: also if it is illegal, with the reason. */
static void add(generation *g, const char *force, const char *changed, int parent, bool wanted)
{
    const implementation *impl;
    const void *config = configure(g->space, force, &impl);
    const char *words = config ? print_config(g->space, impl, config) : arena_text(&g->space->memory, force);
    if (g->count == g->most || (!config && !wanted) || !is_new(g->space, words))
        return;
    g->out[g->count++] = (tune_candidate){ .config = words,
                                           .changed = changed,
                                           .parent = parent,
                                           .legal = config != NULL,
                                           .reason = config ? "" : arena_text(&g->space->memory, ckl_error()) };
}

/* The cheapest by the implementation's prediction, at most half of the room: others must be tried, too. */
static void add_ranked(generation *g, const implementation *impl)
{
    tune_space *s = g->space;
    int most = (g->most - g->count + 1) / 2;
    plan_candidate *ranked = heap_alloc(RANKED_MAX, sizeof *ranked);
    void *config = arena_alloc(&s->memory, 1, impl->config_bytes);
    int count = plan_rank(s->device, impl, s->view, config, (int)min_i64(most, RANKED_MAX), ranked);
    for (int i = 0; i < count; i++)
        if (plan_candidate_config(s->device, impl, s->view, ranked[i].number, config))
            add(g, print_config(s, impl, config), "", -1, false);
    heap_free(ranked);
}

/* Appends the numbers half way between neighbours of a list: "64 96" has 80. */
static void add_midpoints(text *list)
{
    text between = { 0 };
    int64_t before = INT64_MAX, value;
    for (const char *at = text_data(list); number_integer(&at, &value); at += *at == ' ', before = value)
        if (before < value - 1)
            text_printf(&between, " %" PRId64, before + (value - before) / 2);
    text_append(list, text_data(&between), between.length);
    text_free(&between);
}

/*
 * A field's values as words; returns how many. Integers also take values between two listed ones: the lists are only
 * what somebody thought worth trying.
 */
static int words_of(const field *f, text *list, const char **words, int *lengths)
{
    int count = 0;
    field_choices(f, list);
    if (f->kind == FIELD_int)
        add_midpoints(list);
    while (count < WORDS_MAX && (lengths[count] = field_word(text_data(list), count, &words[count])) > 0)
        count++;
    return count;
}

/* The config with another value of one field; false if it has no other. */
static bool change(const implementation *impl, const field *f, int word, void *config)
{
    const char *words[WORDS_MAX + 1];
    int lengths[WORDS_MAX + 1];
    char value[64];
    text list = { 0 }, before = { 0 };
    int count = words_of(f, &list, words, lengths);
    field_print(f, (char *)config + f->offset, &before);
    bool changed = word < count && lengths[word] < (int)sizeof value;
    if (changed) {
        memcpy(value, words[word], (size_t)lengths[word]);
        value[lengths[word]] = '\0';
        changed = strcmp(value, text_data(&before)) != 0 &&
                  fields_set(impl->config, "tune", f->name, value, config) == CKL_OK;
    }
    text_free(&list);
    text_free(&before);
    return changed;
}

static int choices_of(const field *f)
{
    const char *words[WORDS_MAX + 1];
    int lengths[WORDS_MAX + 1];
    text list = { 0 };
    int count = f->kind == FIELD_quoted ? 0 : words_of(f, &list, words, lengths);
    text_free(&list);
    return count;
}

/* Fisher and Yates. */
static void shuffle(tune_space *s, tune_candidate *list, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)random_below(&s->random, i + 1);
        tune_candidate swapped = list[i];
        list[i] = list[j];
        list[j] = swapped;
    }
}

/* Every config that differs in one field from the plan's choice, in random order. */
static void add_neighbours(generation *g)
{
    tune_space *s = g->space;
    const implementation *impl;
    const void *config = configure(s, g->out[0].config, &impl);
    void *other = arena_alloc(&s->memory, 1, impl->config_bytes);
    int first = g->count;
    for (int i = 0; i < impl->config.count; i++) {
        const field *f = &impl->config.rows[i];
        for (int word = 0, count = choices_of(f); word < count; word++) {
            memcpy(other, config, impl->config_bytes);
            if (change(impl, f, word, other))
                add(g, print_config(s, impl, other), f->name, 0, false);
        }
    }
    shuffle(s, g->out + first, g->count - first);
}

ckl_status tune_first(tune_space *space, const char *const *given, int most, tune_candidate *out, int *count)
{
    const implementation *impl;
    void *config;
    TRY(plan_choose(space->device, space->op, space->desc, NULL, &space->memory, &impl, &config));
    if (!plan_kernels(space->op, impl, config))
        FAIL(CKL_INVALID, "tune: the problem has no elements, and so no kernel");
    enum { NEIGHBOURS_MAX = 1024 };
    tune_candidate *all = arena_alloc(&space->memory, (size_t)most + NEIGHBOURS_MAX, sizeof *all);
    generation g = { space, all, 0, most };
    add(&g, print_config(space, impl, config), "", -1, true);
    for (; given && *given; given++)
        add(&g, *given, "", -1, true);
    if (impl->candidate)
        add_ranked(&g, impl);
    for (const implementation *const *each = space->op->implementations; *each; each++)
        if ((*each)->candidate && *each != impl)
            add_ranked(&g, *each);
    for (const implementation *const *each = space->op->implementations; *each; each++)
        if (!(*each)->by_name)
            add(&g, (*each)->name, "", -1, false);
    g.most = most + NEIGHBOURS_MAX;
    add_neighbours(&g);
    *count = (int)min_i64(g.count, most);
    memcpy(out, all, (size_t)*count * sizeof *out);
    return CKL_OK;
}

/* Children */

static const field *random_field(tune_space *s, field_table table)
{
    const field *f;
    int tries = 0;
    do
        f = &table.rows[random_below(&s->random, table.count)];
    while (choices_of(f) < 2 && ++tries < DRAWS_MAX);
    return f;
}

/* Changes a random field; appends its name. */
static void mutate(tune_space *s, const implementation *impl, void *config, text *changed)
{
    const field *f = random_field(s, impl->config);
    int count = choices_of(f);
    if (count && change(impl, f, (int)random_below(&s->random, count), config))
        text_printf(changed, "%s%s", changed->length ? " " : "", f->name);
}

bool tune_child(tune_space *space, const char *parent, int parent_trial, tune_candidate *out)
{
    const implementation *impl;
    const void *start = configure(space, parent, &impl);
    bool found = false;
    if (!start || impl->config.count == 0)
        return false;
    void *config = arena_alloc(&space->memory, 1, impl->config_bytes);
    for (int draw = 0; draw < DRAWS_MAX && !found; draw++) {
        text changed = { 0 };
        memcpy(config, start, impl->config_bytes);
        for (int64_t fields = 1 + random_below(&space->random, 2); fields > 0; fields--)
            mutate(space, impl, config, &changed);
        if (impl->admit && impl->admit(space->view, space->device, config) != CKL_OK)
            space->illegal++;
        else if (changed.length) {
            const char *words = print_config(space, impl, config);
            found = is_new(space, words);
            *out = (tune_candidate){ words, arena_text(&space->memory, text_data(&changed)), parent_trial, true, "" };
        }
        text_free(&changed);
    }
    return found;
}
