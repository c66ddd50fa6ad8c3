/*
 * fields.h - descs, configs and problems as field tables: text, parser, printing and search space from one list.
 *
 * A struct is declared once as an X-macro list and expanded twice:
 *     #define SCALE_CONFIG(X, owner) X(owner, int, threads, "256", "128 256 512", "threads of a CTA")
 *     FIELD_STRUCT(scale_config, SCALE_CONFIG);
 *     static const field fields[] = { SCALE_CONFIG(FIELD_ROW, scale_config) };
 */
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "cutekernellib/tensor.h"

typedef enum field_kind {
    FIELD_int,
    FIELD_int64_t,
    FIELD_float,
    FIELD_bool,
    FIELD_ckl_dtype,
    FIELD_choice,
    FIELD_quoted
} field_kind;

/* A field whose values have names; stored as an int (or an enum of that size). */
typedef int choice;

/* Text as given: the pointer is stored, not a copy. */
typedef const char *quoted;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset;
    const char *value; // default, as text
    const char *range; // config: values worth searching; desc: limits; choice: its names; "": any
    const char *help;
} field;

enum { FIELD_OPTIONAL = '?' };

typedef struct field_table {
    const field *rows;
    int count;
} field_table;

#define FIELD_MEMBER(owner, kind, name, value, range, help) kind name;
#define FIELD_STRUCT(type, LIST) \
    typedef struct type {        \
        LIST(FIELD_MEMBER, type) \
    } type
#define FIELD_ROW(owner, kind, name, value, range, help) \
    { #name, FIELD_##kind, offsetof(owner, name), value, range, help },
/* A field of a struct inside the owner: the list gets (owner, member) in place of the owner. */
#define FIELD_NESTED(place, kind, name, value, range, help) \
    { #name, FIELD_##kind, offsetof(FIELD_OWNER place, FIELD_INSIDE place.name), value, range, help },
#define FIELD_OWNER(owner, member)  owner
#define FIELD_INSIDE(owner, member) member
#define FIELD_TABLE(array)                               \
    {                                                    \
        array, (int)(sizeof(array) / sizeof((array)[0])) \
    }

/* Sets every field to its default. */
void fields_default(field_table table, void *object);

/*
 * Is every value one that its field may hold? The limits of a desc's field are its range:
 *     ""         numbers: not negative, or finite floats; types: any of elements
 *     "1..2^16"  from 1 to 65536; a bound may be left out
 *     "f32 f16"  one of these types or, of an int, numbers
 * After a ? the field may be 0, and then gets its default. CKL_INVALID: "rope: theta=0.5 is not in 1..2^60". Text whose
 * range is a ? is not printed where it is the default.
 */
ckl_status fields_check(field_table table, const char *what, void *object);

/*
 * Sets one field from text. `what` opens the sentence, e.g. "gemm: m=abc is not an integer". Integers may be written as
 * powers and sums, "2^20+3"; "" is the default of a dtype. A 0 that would become the default is refused: who writes
 * stride=0 does not mean 1.
 */
ckl_status fields_set(field_table table, const char *what, const char *name, const char *value, void *object);

/* Appends the names or numbers that a field takes, separated by spaces; nothing if it takes any. */
void field_choices(const field *f, text *out);

/* The range without its ?. */
const char *field_range(const field *f);

/* sizeof its member. */
size_t field_bytes(const field *f);

/* Appends the value of a field. */
void field_print(const field *f, const void *member, text *out);

bool field_is_zero(const field *f, const void *member);

/* The first field in which two objects differ; NULL: there is none. */
const field *fields_difference(field_table table, const void *a, const void *b);

/* The row of that name, or NULL. */
const field *fields_find(field_table table, const char *name);

/* Fails with "gemm: unknown key 'layuot', did you mean 'layout'? Known keys: m n k ..." over several tables. */
ckl_status fields_unknown(const char *what, const char *name, const field_table *tables, int count);

/* Appends "name=value name=value". With only_changed, fields at their default are left out. */
void fields_print(field_table table, const void *object, bool only_changed, text *out);

/* The same for people: without fields that are off, that is 0 or the first of their names, and are so by default. */
void fields_print_brief(field_table table, const void *object, text *out);

/* Word number index of a list separated by spaces; its length, 0 past the end. */
int field_word(const char *list, int index, const char **word);

/* How far apart two words are: letters inserted, left out, replaced, neighbours exchanged. b has less than 64. */
int edit_distance(const char *a, const char *b);

/* The candidate nearest to a mistyped word by edit distance, or NULL if none is near. */
const char *nearest_word(const char *word, const char *const *candidates, int count);

/* The end of a sentence on a word that is none of those known: "'ldz', did you mean 'ldx'? Known keys: n ldx". */
void words_explain(const char *word, const char *const *known, int count, const char *heading, text *out);
