/* cubin_cache.c - the folder, its entries, and which of them leave. */
#define _GNU_SOURCE // secure_getenv

#include "device/cubin_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/log.h"

#define SUFFIX     ".cubin"
#define UNFINISHED ".part"

enum {
    NAME_BYTES = 2 * SHA256_BYTES + 32, // with what makes the name of an unfinished file unique
    UNFINISHED_SECONDS_MAX = 3600,      // then its writer is dead
    CUBIN_BYTES_MAX = 64 << 20,         // larger files are not ours
    KEPT_OF_4 = 3                       // quarters of the limit that stay when entries leave
};

/* What an entry begins with; the cubin follows. */
typedef struct header {
    char magic[8];
    cubin_key key;
    uint64_t bytes;
    unsigned char digest[SHA256_BYTES]; // of the cubin
} header;

static const char magic[8] = { 'C', 'K', 'L', 'C', 'U', 'B', 'I', '1' };

struct cubin_cache {
    int folder;
    int64_t bytes_max;
    pthread_mutex_t lock; // of bytes
    int64_t bytes;        // in the folder, as far as this process knows; -1: not yet
    char path[PATH_MAX];
};

/* Names */

typedef struct entry_name {
    char text[NAME_BYTES];
} entry_name;

static entry_name name_of(const cubin_key *key)
{
    entry_name name;
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(name.text + 2 * i, 3, "%02x", key->digest[i]);
    strcpy(name.text + sizeof key->digest * 2, SUFFIX);
    return name;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* Each text with its length before it, so that no two pairs hash alike. */
cubin_key cubin_cache_key(const char *made_by, const char *ptx)
{
    const char *const hashed[] = { made_by, ptx };
    cubin_key key;
    sha256 hash;
    sha256_begin(&hash);
    for (int i = 0; i < 2; i++) {
        uint64_t bytes = strlen(hashed[i]);
        sha256_add(&hash, &bytes, sizeof bytes);
        sha256_add(&hash, hashed[i], bytes);
    }
    sha256_end(&hash, key.digest);
    return key;
}

static void hash_bytes(const void *data, size_t bytes, unsigned char digest[SHA256_BYTES])
{
    sha256 hash;
    sha256_begin(&hash);
    sha256_add(&hash, data, bytes);
    sha256_end(&hash, digest);
}

/* Opening */

static ckl_status find_path(char path[PATH_MAX])
{
    const char *given = secure_getenv("CKL_CACHE");
    if (!given || !*given || strcmp(given, "off") == 0)
        FAIL(CKL_UNSUPPORTED, "off: CKL_CACHE names no folder");
    int length =
        strcmp(given, "on") == 0 ? folder_cache_path("", path, PATH_MAX) : snprintf(path, PATH_MAX, "%s", given);
    if (length < 0)
        FAIL(CKL_UNSUPPORTED, "neither CKL_CACHE nor HOME names a folder");
    if (length >= PATH_MAX)
        FAIL(CKL_UNSUPPORTED, "the path of the folder has more than %d characters", PATH_MAX - 1);
    return CKL_OK;
}

ckl_status cubin_cache_open(int64_t bytes_max, cubin_cache **cache)
{
    char path[PATH_MAX];
    int folder;
    TRY(find_path(path));
    TRY(folder_open(path, &folder));
    cubin_cache *opened = malloc(sizeof *opened);
    if (!opened) {
        close(folder);
        FAIL(CKL_NO_MEMORY, "no host memory");
    }
    *opened = (cubin_cache){ .folder = folder, .bytes_max = bytes_max, .bytes = -1 };
    pthread_mutex_init(&opened->lock, NULL);
    strcpy(opened->path, path);
    *cache = opened;
    return CKL_OK;
}

void cubin_cache_close(cubin_cache *c)
{
    if (!c)
        return;
    close(c->folder);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const char *cubin_cache_path(const cubin_cache *c)
{
    return c->path;
}

/* Reading */

static bool read_all(int file, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = read(file, (char *)to + done, bytes - done);
        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* The rest of a file behind its header, or NULL with what is wrong. */
static void *read_cubin(int file, const header *h, const char **fault)
{
    unsigned char digest[SHA256_BYTES];
    void *cubin = malloc(h->bytes);
    *fault = NULL; // for lack of memory the entry is good and not used
    if (!cubin)
        return NULL;
    if (read_all(file, cubin, h->bytes)) {
        hash_bytes(cubin, h->bytes, digest);
        if (memcmp(digest, h->digest, sizeof digest) == 0)
            return cubin;
        *fault = "its bytes have changed";
    } else
        *fault = "it cannot be read";
    free(cubin);
    return NULL;
}

static void *read_entry(int file, const cubin_key *key, size_t *bytes, const char **fault)
{
    header h;
    struct stat s;
    if (fstat(file, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid())
        *fault = "it is no file of this user";
    else if (s.st_size > CUBIN_BYTES_MAX || !read_all(file, &h, sizeof h) || memcmp(h.magic, magic, sizeof magic) != 0)
        *fault = "it does not begin as an entry";
    else if (memcmp(&h.key, key, sizeof *key) != 0)
        *fault = "it is the entry of another kernel";
    else if (h.bytes == 0 || h.bytes != (uint64_t)s.st_size - sizeof h)
        *fault = "it is cut off";
    else {
        *bytes = h.bytes;
        return read_cubin(file, &h, fault);
    }
    return NULL;
}

/* An entry that cannot be used. */
static void drop(const cubin_cache *c, const entry_name *name, const char *fault)
{
    log_say("cache", "%s/%s is dropped: %s; the kernel is compiled anew", c->path, name->text, fault);
    unlinkat(c->folder, name->text, 0);
}

void *cubin_cache_find(cubin_cache *c, const cubin_key *key, size_t *bytes)
{
    entry_name name = name_of(key);
    const char *fault = NULL;
    int file = openat(c->folder, name.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); // a FIFO would block
    if (file < 0 && errno == ENOENT)
        return NULL;
    void *cubin = file < 0 ? (fault = strerror(errno), NULL) : read_entry(file, key, bytes, &fault);
    if (cubin)
        futimens(file, NULL); // its last use
    if (file >= 0)
        close(file);
    if (fault)
        drop(c, &name, fault);
    return cubin;
}

/* What leaves */

typedef struct entry {
    entry_name name;
    struct timespec used;
    int64_t bytes;
} entry;

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const entry *)a)->used, *y = &((const entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* The next entry of a folder; false at the end. Files of writers that died are removed on the way. */
static bool next_entry(int folder, DIR *listing, entry *out)
{
    for (struct dirent *d; (d = readdir(listing));) {
        struct stat s;
        bool ours = ends_with(d->d_name, SUFFIX), unfinished = ends_with(d->d_name, UNFINISHED);
        if ((!ours && !unfinished) || strlen(d->d_name) >= sizeof out->name.text ||
            fstatat(folder, d->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (unfinished && time(NULL) - s.st_mtim.tv_sec > UNFINISHED_SECONDS_MAX)
            unlinkat(folder, d->d_name, 0);
        if (!ours)
            continue;
        *out = (entry){ .used = s.st_mtim, .bytes = s.st_size };
        strcpy(out->name.text, d->d_name);
        return true;
    }
    return false;
}

static DIR *list(const cubin_cache *c)
{
    int again = openat(c->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); // a position of its own
    DIR *listing = again < 0 ? NULL : fdopendir(again);
    if (again >= 0 && !listing)
        close(again);
    return listing;
}

/* Visits every entry; all of them, up to `most`, where there is a place for them. */
static cubin_cache_sums read_folder(const cubin_cache *c, entry *all, int64_t most)
{
    cubin_cache_sums sums = { 0 };
    entry e;
    DIR *listing = list(c);
    while (listing && next_entry(c->folder, listing, &e)) {
        if (sums.entries < most)
            all[sums.entries] = e;
        sums.entries++;
        sums.bytes += e.bytes;
    }
    if (listing)
        closedir(listing);
    return sums;
}

cubin_cache_sums cubin_cache_count(const cubin_cache *c)
{
    return read_folder(c, NULL, 0);
}

/* Removes the entries that were not used for longest until the others leave room. Holds the lock. */
static void make_room(cubin_cache *c, int64_t bytes)
{
    cubin_cache_sums sums = read_folder(c, NULL, 0);
    c->bytes = sums.bytes;
    if (sums.bytes + bytes <= c->bytes_max)
        return;
    entry *all = malloc((size_t)sums.entries * sizeof *all);
    if (!all)
        return;
    cubin_cache_sums again = read_folder(c, all, sums.entries);
    int64_t count = again.entries < sums.entries ? again.entries : sums.entries;
    qsort(all, (size_t)count, sizeof *all, by_use);
    for (int64_t i = 0; i < count && c->bytes + bytes > c->bytes_max / 4 * KEPT_OF_4; i++) {
        unlinkat(c->folder, all[i].name.text, 0); // another process may have been quicker
        c->bytes -= all[i].bytes;
    }
    free(all);
}

/* Counts a file that is to be written. */
static void count_file(cubin_cache *c, int64_t bytes)
{
    pthread_mutex_lock(&c->lock);
    if (c->bytes < 0 || c->bytes + bytes > c->bytes_max)
        make_room(c, bytes);
    c->bytes += bytes;
    pthread_mutex_unlock(&c->lock);
}

/* Writing */

static bool write_all(int file, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t count = write(file, (const char *)from + done, bytes - done);
        if (count < 0 && errno != EINTR)
            return false;
        done += count > 0 ? (size_t)count : 0;
    }
    return true;
}

/* The system decides when data reach the disk: the digest finds an entry that a crash cut off. */
static bool write_file(const cubin_cache *c, const char *name, const header *h, const void *cubin)
{
    int file = openat(c->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file < 0)
        return false;
    bool written = write_all(file, h, sizeof *h) && write_all(file, cubin, h->bytes);
    int fault = errno;
    close(file);
    errno = fault;
    return written;
}

void cubin_cache_keep(cubin_cache *c, const cubin_key *key, const void *cubin, size_t bytes)
{
    header h = { .key = *key, .bytes = bytes };
    entry_name name = name_of(key), unfinished = name;
    uint64_t unique = 0;
    memcpy(h.magic, magic, sizeof magic);
    hash_bytes(cubin, bytes, h.digest);
    count_file(c, (int64_t)(sizeof h + bytes));
    if (getrandom(&unique, sizeof unique, 0) != (ssize_t)sizeof unique)
        return; // no name for it
    snprintf(unfinished.text + 2 * SHA256_BYTES, sizeof name - 2 * SHA256_BYTES, ".%016" PRIx64 UNFINISHED, unique);
    if (write_file(c, unfinished.text, &h, cubin) && renameat(c->folder, unfinished.text, c->folder, name.text) == 0)
        return;
    log_say("cache", "%s cannot take a kernel: %s", c->path, strerror(errno));
    unlinkat(c->folder, unfinished.text, 0);
}
