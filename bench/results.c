/* results.c - rows in memory, and the tables that writers and reader walk through. */
#include "bench/results.h"

#include <stdlib.h>
#include <string.h>

#include "base/fields.h"

static const result_member header_members[] = { RESULT_HEADER(RESULT_ROW) };
static const result_member row_members[] = { RESULT_CASE(RESULT_ROW) };
static const result_member peer_members[] = { RESULT_PEER(RESULT_ROW) };
const result_table result_header_table = FIELD_TABLE(header_members);
const result_table result_row_table = FIELD_TABLE(row_members);
const result_table result_peer_table = FIELD_TABLE(peer_members);

void result_set(char *to, const char *from)
{
    size_t length = strnlen(from, sizeof(result_text) - 1);
    if (from[length]) // not within a character of UTF-8, which JSON would refuse
        while (length && (from[length] & 0xC0) == 0x80)
            length--;
    memcpy(to, from, length);
    to[length] = '\0';
}

result_row *results_add(results *r)
{
    result_row *rows = realloc(r->rows, (size_t)(r->row_count + 1) * sizeof *rows);
    if (!rows)
        abort(); // of the laboratory, not of the library
    r->rows = rows;
    rows[r->row_count] = (result_row){ 0 };
    return &rows[r->row_count++];
}

void results_free(results *r)
{
    free(r->rows);
    *r = (results){ 0 };
}

const result_peer *result_find_peer(const result_row *row, const char *role)
{
    const result_peer *fastest = NULL;
    for (int i = 0; i < row->peer_count; i++) {
        const result_peer *p = &row->peers[i];
        if (strcmp(p->role, role) == 0 && p->median_us > 0 && !*p->fault &&
            (!fastest || p->median_us < fastest->median_us))
            fastest = p;
    }
    return fastest;
}
