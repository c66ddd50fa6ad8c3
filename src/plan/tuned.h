/*
 * tuned.h - the tuned store: configs that were measured to be better than what is chosen without them.
 *
 * A line is a problem line with the name of a device and with what a plan of it shall force:
 *
 *     gemm device='NVIDIA H200' m=1536 n=1536 k=1536 a=bf16 config='sm90 tile_m=128 tile_n=144'   # a comment
 *
 * config= is what plans print, with or without the operator's name; fields that it does not say are the
 * implementation's choice. Keys that are the laboratory's, as seed=, say nothing here. An emulated device gets what the
 * device that it emulates gets.
 *
 * Lines come from the file that CKL_TUNED names, from tuned.txt in the user's cache folder, and from the table that is
 * built in; where two are of one problem the earlier source wins, in a source the earlier line. CKL_TUNED=off: from
 * nowhere. Files are read once, when the first plan is made. Nothing in them is trusted: a desc is checked like a
 * call's, a config like one that a user forces, and what is wrong is skipped and logged under CKL_LOG=tuned. Lines of
 * operators that this library does not have are left alone.
 */
#pragma once

#include "base/problem.h"
#include "plan/plan.h"

enum { TUNED_FILE_BYTES_MAX = 4 << 20, TUNED_PATH_BYTES = 4096 };

typedef struct tuned_entry {
    const char *source; // a file, or "built-in table"
    int line;
    const char *device; // "NVIDIA H200"
    const char *force;  // "sm90 tile_m=128 tile_n=144"
    const void *desc;   // checked
    const void *key;    // plan_desc_key() of it
} tuned_entry;

/* The entries of one operator, the preferred ones first. */
typedef struct tuned_table {
    const tuned_entry *entries;
    int count;
} tuned_table;

/* Reads the sources if need be. The table lives until tuned_forget(). Any thread, outside of heap_guard(). */
ckl_status tuned_table_of(const operator_info *op, const tuned_table **table);

/* A line of the store as an entry; CKL_INVALID with a sentence. entry->source and line stay as they are. */
ckl_status tuned_parse(const operator_info *op, const problem_line *split, arena *memory, tuned_entry *entry);

/* Is it an entry for this device? */
bool tuned_is_for(const tuned_entry *entry, const ckl_device_info *device);

/* The device's name in the store. */
const char *tuned_device_name(const ckl_device_info *device);

/* tuned.txt in the user's cache folder, $XDG_CACHE_HOME or ~/.cache; false if there is none. */
bool tuned_user_path(char path[TUNED_PATH_BYTES]);

/* Forgets what was read: the next plan reads it anew. For those that change a file; no table may be in use. */
void tuned_forget(void);

/* The lines that are built in, NULL at the end; of tuned_shipped.c. */
extern const char *const tuned_shipped[];

/* A file that may be missing, then *content is empty; the caller frees it. `ours`: nobody else may write to it. */
ckl_status tuned_read_file(const char *path, bool ours, text *content);
