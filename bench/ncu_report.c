/* ncu_report.c - ncu's page of details, read from CSV: a row for each metric and for each finding of its rules. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "bench/ncu.h"

enum { FIELDS_MAX = 64 };

const ncu_metric_info ncu_metrics[] = {
#define X(id, key, name, unit, scale) { key, name, unit, scale },
    NCU_METRICS(X)
#undef X
};

typedef enum column { ID, KERNEL, METRIC, VALUE, RULE, DESCRIPTION, COLUMN_COUNT } column;
static const char *const COLUMN_NAMES[] = { "ID",           "Kernel Name", "Metric Name",
                                            "Metric Value", "Rule Name",   "Rule Description" };

/* CSV */

/* Takes a field out of its quotes, in place; *at moves to the character behind it. */
static char *take_field(char **at)
{
    char *begin = *at, *to = begin, *from = begin;
    if (*from != '"') {
        *at += strcspn(*at, ",\n");
        return begin;
    }
    for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
        from += *from == '"';
        *to++ = *from;
    }
    *at = from + (*from == '"');
    *to = '\0';
    return begin;
}

/*
 * Takes the fields of a record, in place, those that it has not are empty; their count. *at moves to the next one, NULL
 * behind the last.
 */
static int take_record(char **at, char *fields[FIELDS_MAX])
{
    static char nothing[1];
    int count = 0;
    char end = ',';
    while (end == ',') {
        char *taken = take_field(at);
        end = **at;
        **at = '\0';
        *at += end != '\0';
        if (count < FIELDS_MAX)
            fields[count++] = taken;
    }
    for (int i = count; i < FIELDS_MAX; i++)
        fields[i] = nothing;
    if (!end || !**at)
        *at = NULL;
    return count;
}

/* Where the columns stand; false if one is missing. */
static bool find_columns(char *const *fields, int place[COLUMN_COUNT])
{
    bool all = true;
    for (int c = 0; c < COLUMN_COUNT; c++) {
        place[c] = 0;
        while (place[c] < FIELDS_MAX && strcmp(fields[place[c]], COLUMN_NAMES[c]) != 0)
            place[c]++;
        all &= place[c] < FIELDS_MAX;
    }
    return all;
}

/* "3,188,568.07" */
static double number_of(char *digits)
{
    char *to = digits;
    for (const char *from = digits; *from; from++)
        if (*from != ',')
            *to++ = *from;
    *to = '\0';
    return *digits ? strtod(digits, NULL) : NAN;
}

/* Launches */

static void find(ncu_finding *finding, const char *what, int length, const char *percent)
{
    if (!percent || (*finding->what && strtod(percent, NULL) <= finding->percent))
        return;
    snprintf(finding->what, sizeof finding->what, "%.*s", length, what);
    finding->percent = strtod(percent, NULL);
}

/* The sentences of two rules. */
static void read_rule(ncu_kernel *k, const char *rule, const char *description)
{
    static const char busy[] = " is the highest-utilized pipeline (", stalled[] = "being stalled ",
                      share[] = "represents about ";
    const char *what, *percent;
    if (strcmp(rule, "HighPipeUtilization") == 0 && (percent = strstr(description, busy)))
        find(&k->pipe, description, (int)(percent - description), percent + sizeof busy - 1);
    if (strcmp(rule, "CPIStall") == 0 && (what = strstr(description, stalled)) && (percent = strstr(what, share)))
        find(&k->stall, what + sizeof stalled - 1, (int)strcspn(what, ".") - (int)sizeof stalled + 1,
             percent + sizeof share - 1);
}

static void read_metric(ncu_kernel *k, const char *metric, char *value)
{
    for (int i = 0; i < NCU_METRIC_COUNT; i++)
        if (strcmp(metric, ncu_metrics[i].name) == 0)
            k->value[i] = number_of(value) * ncu_metrics[i].scale;
}

static ckl_status add_launch(ncu_report *r, const ncu_kernel *launch)
{
    for (ncu_kernel *k = r->kernels; k < r->kernels + r->count; k++)
        if (strcmp(k->name, launch->name) == 0 && k->value[NCU_CTAS] == launch->value[NCU_CTAS]) {
            k->launches++;
            k->value[NCU_DURATION] += launch->value[NCU_DURATION];
            return CKL_OK;
        }
    if (r->count == NCU_KERNELS_MAX)
        FAIL(CKL_UNSUPPORTED, "profile: ncu measured more than %d kinds of launches", NCU_KERNELS_MAX);
    r->kernels[r->count++] = *launch;
    return CKL_OK;
}

static ncu_kernel launch_of(const char *name)
{
    ncu_kernel k = { .launches = 1 };
    snprintf(k.name, sizeof k.name, "%s", name);
    for (int i = 0; i < NCU_METRIC_COUNT; i++)
        k.value[i] = NAN;
    return k;
}

/* Rows of a launch follow each other; `at` begins with the names of the columns. */
static ckl_status read_rows(char *at, ncu_report *out)
{
    char *fields[FIELDS_MAX], id[NCU_TEXT_BYTES] = "";
    int place[COLUMN_COUNT];
    ncu_kernel launch = launch_of("");
    take_record(&at, fields);
    if (!find_columns(fields, place))
        FAIL(CKL_UNSUPPORTED, "profile: this ncu prints other columns than Nsight Compute 2025 does");
    while (at) {
        if (take_record(&at, fields) <= place[VALUE]) // no row of the table; those of metrics end there
            continue;
        if (strcmp(id, fields[place[ID]]) != 0) {
            if (*id)
                TRY(add_launch(out, &launch));
            snprintf(id, sizeof id, "%s", fields[place[ID]]);
            launch = launch_of(fields[place[KERNEL]]);
        }
        read_metric(&launch, fields[place[METRIC]], fields[place[VALUE]]);
        read_rule(&launch, fields[place[RULE]], fields[place[DESCRIPTION]]);
    }
    return *id ? add_launch(out, &launch) : CKL_OK;
}

ckl_status ncu_read(const char *output, ncu_report *out)
{
    *out = (ncu_report){ 0 };
    const char *table = strstr(output, "\"ID\",");
    if (!table)
        return CKL_OK;
    text copy = { 0 };
    text_append(&copy, table, strlen(table));
    ckl_status status = read_rows(copy.data, out);
    text_free(&copy);
    return status;
}
