/* operator_help.c - what `ckl help OPERATOR` says: keys of lines, implementations and the fields of their configs. */
#include "cli/operator_help.h"

#include <stdio.h>
#include <string.h>

#include "lab/case.h"

/* One row: "  layout=nt      which operands are contiguous along K: nt nn tn"; not those that are known already. */
static void print_fields(field_table table, field_table known, int indent)
{
    for (int i = 0; i < table.count; i++) {
        const field *f = &table.rows[i];
        const field *same = fields_find(known, f->name);
        if (same && same->kind == f->kind)
            continue;
        text left = { 0 }, choices = { 0 };
        text_printf(&left, "%s=%s", f->name, f->value);
        field_choices(f, &choices);
        bool closed =
            f->kind == FIELD_choice || f->kind == FIELD_ckl_dtype || f->kind == FIELD_bool || strstr(f->range, "..");
        printf("%*s%-*s %s%s%s\n", indent, "", 24 - indent, text_data(&left), f->help,
               !choices.length ? ""
               : closed        ? ": "
                               : ", such as ",
               text_data(&choices));
        text_free(&left);
        text_free(&choices);
    }
}

static void print_implementation(const implementation *impl, field_table problem)
{
    printf("\n  %-13s %s%s\n", impl->name, impl->summary,
           impl->target == IR_SM90A  ? " (needs sm_90a)"
           : impl->target == IR_SM90 ? " (needs sm_90)"
                                     : "");
    print_fields(impl->config, problem, 4);
}

bool operator_help(const char *name)
{
    const operator_test *test = NULL;
    for (const operator_test *const *each = operator_tests; *each; each++)
        if (strcmp((*each)->op->name, name) == 0)
            test = *each;
    if (!test)
        return false;
    printf("usage: ckl run %s KEY=VALUE ...\n\n%s\n\nKeys and their defaults\n", name, test->op->summary);
    print_fields(test->line->problem, (field_table){ 0 }, 2);
    printf("\nKeys of every operator\n");
    print_fields(line_key_table, (field_table){ 0 }, 2);
    printf("\nImplementations in order of preference, and the fields of their configs beside the problem's own: `ckl "
           "explain`\nsays what is chosen\n");
    for (const implementation *const *impl = test->op->implementations; *impl; impl++)
        print_implementation(*impl, test->line->problem);
    return true;
}
