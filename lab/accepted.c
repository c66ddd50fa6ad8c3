/* accepted.c - the file is the release of ptxas, then lines of a digest and registers. */
#define _GNU_SOURCE // memmem

#include "lab/accepted.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "lab/assemble.h"
#include "lab/file.h"

uint64_t accepted_digest(const char *ptx)
{
    uint64_t hash = HASH_START;
    for (const char *line = ptx; *line;) {
        size_t length = strcspn(line, "\n");
        const char *comment = memmem(line, length, "//", 2), *word = line + strspn(line, " \t");
        size_t code = comment ? (size_t)(comment - line) : length;
        if (strncmp(word, ".file", 5) != 0 && strncmp(word, ".loc ", 5) != 0)
            hash = hash_bytes(hash, line, code);
        line += length + (line[length] == '\n');
    }
    return hash;
}

static int by_digest(const void *a, const void *b)
{
    const accepted_code *x = a, *y = b;
    return (x->digest > y->digest) - (x->digest < y->digest);
}

static void sort(accepted *all)
{
    if (all->count)
        qsort(all->each, (size_t)all->count, sizeof *all->each, by_digest);
}

ckl_status accepted_read(const char *path, accepted *out)
{
    char line[ASSEMBLE_RELEASE_BYTES], release[ASSEMBLE_RELEASE_BYTES];
    FILE *file = fopen(path, "r");
    *out = (accepted){ 0 };
    if (!file && errno != ENOENT)
        FAIL(CKL_INVALID, "%s cannot be opened: %s", path, strerror(errno));
    assemble_release(release);
    bool same = file && fgets(line, sizeof line, file) && strcmp(strtok(line, "\n"), release) == 0;
    for (accepted_code c; same && fscanf(file, "%" SCNx64 " %d", &c.digest, &c.registers) == 2;)
        accepted_add(out, c.digest, c.registers);
    if (file)
        fclose(file);
    sort(out); // a merge may leave lines out of order, or twice
    return CKL_OK;
}

ckl_status accepted_write(const char *path, accepted *all)
{
    char release[ASSEMBLE_RELEASE_BYTES];
    text out = { 0 };
    assemble_release(release);
    text_printf(&out, "%s\n", release);
    sort(all);
    for (int i = 0; i < all->count; i++)
        if (i == 0 || all->each[i].digest != all->each[i - 1].digest)
            text_printf(&out, "%016" PRIx64 " %d\n", all->each[i].digest, all->each[i].registers);
    ckl_status status = file_write("verify", path, &out);
    text_free(&out);
    return status;
}

void accepted_free(accepted *all)
{
    free(all->each);
    *all = (accepted){ 0 };
}

const accepted_code *accepted_find(const accepted *all, uint64_t digest)
{
    const accepted_code key = { .digest = digest };
    return all->count ? bsearch(&key, all->each, (size_t)all->count, sizeof key, by_digest) : NULL;
}

void accepted_add(accepted *all, uint64_t digest, int registers)
{
    all->each = realloc(all->each, (size_t)(all->count + 1) * sizeof *all->each);
    if (!all->each)
        abort();
    all->each[all->count++] = (accepted_code){ digest, registers };
}
