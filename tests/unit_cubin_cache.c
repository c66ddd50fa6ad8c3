/*
 * unit_cubin_cache.c - cubins on disk: found again, thrown away when damaged, written by several processes and threads
 * at once, bounded; folders that are not trusted; and kernels that load whatever becomes of the cache. A driver without
 * a GPU makes them.
 */
#define _GNU_SOURCE // nftw, for temporary_folder.h

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "base/math.h"
#include "capture.h"
#include "cutekernellib/cutekernellib.h"
#include "device/cubin_cache.h"
#include "fake_cuda.h"
#include "temporary_folder.h"

enum { NOBODY = 65534 };

static const fake_cuda *fake;
static temporary_folder temporary; // fresh for each test
static const char *const folder = temporary.path;

/* Files */

static int files_before;

/* Calls work, if there is one, for each file whose name begins with no dot; how many there are. */
static int each_file(const char *in, void (*work)(const char *path))
{
    int count = 0;
    DIR *listing = opendir(in);
    assert_non_null(listing);
    for (struct dirent *d; (d = readdir(listing));)
        if (*d->d_name != '.') {
            char path[2 * PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", in, d->d_name);
            if (work)
                work(path);
            count++;
        }
    closedir(listing);
    return count;
}

static int open_files(void)
{
    return each_file("/proc/self/fd", NULL);
}

static int make_folder(void **state)
{
    files_before = open_files();
    if (temporary_folder_make(&temporary) || setenv("CKL_CACHE", folder, 1))
        return -1;
    fake->reset();
    return 0;
}

static int remove_folder(void **state)
{
    chmod(folder, S_IRWXU);
    if (open_files() != files_before) {
        print_error("files were left open\n");
        return -1;
    }
    return temporary_folder_remove(&temporary);
}

static char noted[2 * PATH_MAX];

static void note_path(const char *path)
{
    snprintf(noted, sizeof noted, "%s", path);
}

/* Path of the only file in the folder. */
static const char *only_file(void)
{
    assert_int_equal(each_file(folder, note_path), 1);
    return noted;
}

static size_t read_file(const char *path, char *to, size_t most)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t bytes = fread(to, 1, most, file);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const char *from, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(from, 1, bytes, file), bytes);
    fclose(file);
}

/* What work() says in the log. */
static const char *said(void (*work)(void))
{
    const capture log = capture_begin(stderr);
    setenv("CKL_LOG", "cache", 1);
    work();
    unsetenv("CKL_LOG");
    return capture_end(&log);
}

/* Kernels */

/* A device that is opened, plans one kernel for that type, and is closed: a process, as far as the cache can tell. */
static void plan_type(ckl_dtype dtype)
{
    ckl_device *device = NULL;
    ckl_plan *plan = NULL;
    ckl_gemm_desc desc = { .m = 64, .n = 64, .k = 63, .a = dtype }; // an odd length: tiled
    if (ckl_device_open("cuda", &device) || ckl_gemm_plan(device, &desc, &plan))
        fail_msg("%s", ckl_error());
    ckl_plan_free(plan);
    ckl_device_close(device);
    assert_int_equal(fake->live(), 0);
}

static void plan_kernel(void)
{
    plan_type(CKL_BF16);
}

TEST_BETWEEN(found_again, make_folder, remove_folder)
{
    struct stat s;
    plan_kernel();
    assert_int_equal(fake->compiles(), 1);
    assert_int_equal(stat(only_file(), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    plan_kernel();
    assert_int_equal(fake->compiles(), 1);
    plan_type(CKL_F16);
    assert_int_equal(fake->compiles(), 2);
    setenv("CKL_CACHE", "off", 1);
    plan_kernel();
    assert_int_equal(fake->compiles(), 3);
}

/* What linking would make slow is not kept: kernels whose warpgroups exchange registers. */
TEST_BETWEEN(setmaxnreg_is_not_kept, make_folder, remove_folder)
{
    ckl_device *device = NULL;
    ckl_gemm_desc desc = { .m = 4096, .n = 4096, .k = 4096, .a = CKL_F16 };
    plan_kernel();
    for (int i = 0; i < 2; i++) {
        ckl_plan *plan = NULL;
        assert_ok(ckl_device_open("cuda", &device));
        assert_ok(ckl_gemm_plan(device, &desc, &plan));
        assert_says(ckl_plan_text(plan), "sm90");
        ckl_plan_free(plan);
        ckl_device_close(device);
    }
    assert_int_equal(fake->compiles(), 3);
    only_file(); // that of plan_kernel()
}

/* Whatever the entry has become, its kernel is compiled, the log says so, and the entry is good again. */
static void expect_recovery(const char *words)
{
    int before = fake->compiles();
    assert_says(said(plan_kernel), words);
    assert_int_equal(fake->compiles(), before + 1);
    assert_string_equal(said(plan_kernel), "");
    assert_int_equal(fake->compiles(), before + 1);
}

TEST_BETWEEN(damage, make_folder, remove_folder)
{
    static char good[1 << 20], bad[1 << 20];
    char path[2 * PATH_MAX];
    plan_kernel();
    strcpy(path, only_file());
    size_t bytes = read_file(path, good, sizeof good);
    const size_t places[] = { 0, 8, 40, 48, 80, bytes - 1 }; // magic, key, length, digest, cubin
    for (int i = 0; i < COUNT_OF(places); i++) {
        memcpy(bad, good, bytes);
        bad[places[i]] ^= 1;
        write_file(path, bad, bytes);
        expect_recovery("is dropped: it");
    }
    const size_t lengths[] = { 0, 1, 79, 80, bytes - 1 };
    for (int i = 0; i < COUNT_OF(lengths); i++) {
        write_file(path, good, lengths[i]);
        expect_recovery("is dropped: it");
    }
    memcpy(bad, good, bytes);
    write_file(path, bad, bytes + 1);
    expect_recovery("it is cut off");
}

/* Entries that somebody put there: of another kernel, a link, a pipe; and one that the driver refuses. */
TEST_BETWEEN(foreign, make_folder, remove_folder)
{
    static char other[1 << 20];
    char path[2 * PATH_MAX], elsewhere[2 * PATH_MAX];
    plan_kernel();
    strcpy(path, only_file());
    unlink(path);
    plan_type(CKL_F16);
    size_t bytes = read_file(only_file(), other, sizeof other);
    unlink(only_file());
    write_file(path, other, bytes);
    expect_recovery("it is the entry of another kernel");

    snprintf(elsewhere, sizeof elsewhere, "%s.elsewhere", folder);
    assert_int_equal(rename(path, elsewhere), 0);
    assert_int_equal(symlink(elsewhere, path), 0);
    expect_recovery("is dropped: Too many levels of symbolic links");
    unlink(elsewhere);

    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_recovery("it is no file of this user");

    if (geteuid() == 0) {
        assert_int_equal(chown(path, NOBODY, NOBODY), 0);
        expect_recovery("it is no file of this user");
    }

    cubin_cache *cache = NULL;
    cubin_key key;
    for (int i = 0; i < SHA256_BYTES; i++) {
        unsigned byte = 0;
        assert_int_equal(sscanf(strrchr(path, '/') + 1 + 2 * i, "%2x", &byte), 1);
        key.digest[i] = (unsigned char)byte;
    }
    assert_ok(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache));
    cubin_cache_keep(cache, &key, "no cubin", 9);
    cubin_cache_close(cache);
    expect_recovery("cuModuleLoadData: CUDA_ERROR_OF_SOME_KIND");
}

/* Where the driver cannot link, it compiles as it does without a cache. */
TEST_BETWEEN(linker_fails, make_folder, remove_folder)
{
    static const char *const functions[] = { "cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete",
                                             "cuModuleLoadData" };
    for (int i = 0; i < COUNT_OF(functions); i++) {
        fake->reset();
        fake->fail_named(functions[i], 300);
        assert_says(said(plan_kernel), "cache: kernel gemm_unaligned is not kept: cuda:0: cu");
        assert_int_equal(rmdir(folder), 0); // it is empty
        assert_int_equal(mkdir(folder, 0700), 0);
    }
}

/* Made by others */

TEST(keys)
{
    cubin_key a = cubin_cache_key("13000 libcuda.so.580 sm_90", "ptx"),
              b = cubin_cache_key("13000 libcuda.so.590 sm_90", "ptx"),
              c = cubin_cache_key("13000 libcuda.so.580 sm_90", "ptx2"),
              d = cubin_cache_key("13000 libcuda.so.580 sm_90p", "tx");
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    assert_memory_not_equal(&a, &d, sizeof a);
}

/* Many at once */

enum { PROCESSES = 4, THREADS = 4, ROUNDS = 60, KEYS = 5 };

/* What is kept under a number, of a length of its own: of a single byte, too. */
static size_t content(int number, unsigned char out[8192])
{
    size_t bytes = number ? 5000 + (size_t)number * 700 : 1;
    memset(out, number + 1, bytes);
    return bytes;
}

static void *write_and_read(void *argument)
{
    cubin_cache *cache = argument;
    unsigned char wanted[8192];
    for (int round = 0; round < ROUNDS; round++) {
        int number = round % KEYS;
        size_t bytes = content(number, wanted), found_bytes = 0;
        cubin_key key = cubin_cache_key("x", (const char[]){ (char)('a' + number), 0 });
        cubin_cache_keep(cache, &key, wanted, bytes);
        void *found = cubin_cache_find(cache, &key, &found_bytes);
        bool right = found && found_bytes == bytes && memcmp(found, wanted, bytes) == 0;
        free(found);
        if (!right)
            return cache;
    }
    return NULL;
}

/* 0: every thread found what it or another had written, whole. */
static int crowd(void)
{
    cubin_cache *cache = NULL;
    pthread_t threads[THREADS];
    int faults = cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache) != CKL_OK;
    for (int i = 0; i < THREADS && !faults; i++)
        pthread_create(&threads[i], NULL, write_and_read, cache);
    for (int i = 0; i < THREADS && cache; i++) {
        void *fault = NULL;
        pthread_join(threads[i], &fault);
        faults += fault != NULL;
    }
    cubin_cache_close(cache);
    return faults;
}

static void expect_child(pid_t child)
{
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST_BETWEEN(many_writers, make_folder, remove_folder)
{
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(crowd());
    }
    for (int i = 0; i < PROCESSES; i++)
        expect_child(children[i]);
    cubin_cache *cache = NULL;
    assert_ok(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache));
    assert_int_equal(cubin_cache_count(cache).entries, KEYS);
    cubin_cache_close(cache);
    assert_int_equal(each_file(folder, NULL), KEYS); // nothing unfinished
}

/* A file in the folder was used so long ago. */
static void set_age(const char *path, time_t seconds)
{
    struct timespec now, times[2];
    clock_gettime(CLOCK_REALTIME, &now);
    times[0] = times[1] = (struct timespec){ now.tv_sec - seconds, 0 };
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void age(const char *path)
{
    set_age(path, 100);
}

static cubin_key key_number(int i)
{
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    return cubin_cache_key("x", text);
}

TEST_BETWEEN(bounded, make_folder, remove_folder)
{
    enum { ENTRIES = 40, BYTES = 1000, MAX = 10 * (BYTES + 80) };
    static const char zeros[BYTES];
    cubin_cache *cache = NULL;
    cubin_key first = key_number(0);
    size_t bytes;
    int64_t entries = 0;
    char dead[2 * PATH_MAX];
    snprintf(dead, sizeof dead, "%s/dead.part", folder);
    write_file(dead, zeros, sizeof zeros);
    set_age(dead, 7200);
    assert_ok(cubin_cache_open(MAX, &cache));
    snprintf(dead, sizeof dead, "%s/.cubin", folder); // no entry: it has no key
    write_file(dead, zeros, sizeof zeros);
    assert_int_equal(cubin_cache_count(cache).entries, 0);
    unlink(dead);
    snprintf(dead, sizeof dead, "%s/dead.part", folder);
    for (int i = 0; i < ENTRIES; i++) {
        cubin_key key = key_number(i);
        cubin_cache_keep(cache, &key, zeros, BYTES);
        const cubin_cache_sums sums = cubin_cache_count(cache);
        assert_true(sums.bytes <= MAX);
        assert_true(sums.entries == entries + 1 || sums.entries <= 8); // room is made for some at once
        entries = sums.entries;
        each_file(folder, age);
        void *used = cubin_cache_find(cache, &first, &bytes); // in use all the time
        assert_non_null(used);
        free(used);
    }
    assert_true(cubin_cache_count(cache).entries >= 7);
    assert_int_not_equal(access(dead, F_OK), 0);
    cubin_cache_close(cache);
}

/* Folders */

static void expect_refused(const char *path, const char *words)
{
    cubin_cache *cache = NULL;
    setenv("CKL_CACHE", path, 1);
    assert_fails(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache), CKL_UNSUPPORTED, words);
    assert_null(cache);
    fake->reset();
    assert_says(said(plan_kernel), words); // and kernels are compiled
    assert_int_equal(fake->compiles(), 1);
}

TEST_BETWEEN(folders, make_folder, remove_folder)
{
    char inside[2 * PATH_MAX], deeper[2 * PATH_MAX + 16], link[PATH_MAX + 16];
    expect_refused("off", "off: CKL_CACHE names no folder");
    expect_refused("", "off: CKL_CACHE names no folder");
    expect_refused("relative/folder", "relative/folder is no absolute path");
    expect_refused("/proc/self/nowhere", "/proc/self");
    snprintf(inside, sizeof inside, "%s/inside", folder);
    snprintf(deeper, sizeof deeper, "%s/deeper", inside);
    mkdir(inside, 0700);
    chmod(inside, 0720);
    expect_refused(inside, "may be written to by others");
    chmod(inside, 0777);
    expect_refused(deeper, "may be written to by others");
    chmod(inside, 01777);
    setenv("CKL_CACHE", deeper, 1);
    plan_kernel(); // sticky, and what lies in it is ours
    plan_kernel();
    assert_int_equal(fake->compiles(), 2);
    snprintf(deeper, sizeof deeper, "%s/no/home/here", folder);
    expect_refused(deeper, "/no cannot be opened: No such file or directory");
    snprintf(link, sizeof link, "%s/no", folder);
    assert_int_not_equal(access(link, F_OK), 0); // nor was it made
    snprintf(link, sizeof link, "%s.link", folder);
    assert_int_equal(symlink(folder, link), 0);
    expect_refused(link, "is no folder, or a symbolic link");
    unlink(link);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(inside, NOBODY, NOBODY), 0);
    expect_refused(inside, "belongs to another user");
}

TEST_BETWEEN(default_folder, make_folder, remove_folder)
{
    char wanted[PATH_MAX + 64];
    cubin_cache *cache = NULL;
    unsetenv("CKL_CACHE");
    assert_fails(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache), CKL_UNSUPPORTED, "off: CKL_CACHE names no folder");
    setenv("CKL_CACHE", "on", 1);
    setenv("HOME", folder, 1);
    setenv("XDG_CACHE_HOME", "", 1);
    assert_ok(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache));
    snprintf(wanted, sizeof wanted, "%s/.cache/cutekernellib", folder);
    assert_string_equal(cubin_cache_path(cache), wanted);
    cubin_cache_close(cache);
    snprintf(wanted, sizeof wanted, "%s/xdg", folder);
    setenv("XDG_CACHE_HOME", wanted, 1);
    assert_ok(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache));
    assert_says(cubin_cache_path(cache), "/xdg/cutekernellib");
    cubin_cache_close(cache);
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    assert_fails(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache), CKL_UNSUPPORTED,
                 "neither CKL_CACHE nor HOME names a folder");
}

/* Full, not to be written to, or not ours: in a child, whose limits and rights are its own. */
static void in_child(void (*restrict_it)(void), const char *words)
{
    pid_t child = fork();
    if (child == 0) {
        restrict_it();
        const char *log = said(plan_kernel);
        _exit(strstr(log, words) && fake->compiles() == 1 ? 0 : 1);
    }
    expect_child(child);
}

static void fill_disk(void)
{
    struct rlimit limit = { 1000, 1000 };
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
}

static void become_nobody(void)
{
    if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)))
        _exit(1);
}

static void make_read_only(void)
{
    if (geteuid() == 0 && chown(folder, NOBODY, NOBODY))
        _exit(1);
    become_nobody();
    chmod(folder, 0500);
}

TEST_BETWEEN(no_room, make_folder, remove_folder)
{
    in_child(fill_disk, "cannot take a kernel: File too large");
    assert_int_equal(rmdir(folder), 0); // what did not fit is gone
    assert_int_equal(mkdir(folder, 0755), 0);
    if (geteuid() == 0)
        in_child(become_nobody, "belongs to another user"); // to root, which does not suffice
    in_child(make_read_only, "cannot take a kernel: Permission denied");
}

/* Where a folder has the name of a kernel's file, nothing is left beside it. */
TEST_BETWEEN(no_place, make_folder, remove_folder)
{
    cubin_cache *cache;
    cubin_key key = cubin_cache_key("x", "y");
    char path[2 * PATH_MAX];
    assert_ok(cubin_cache_open(CUBIN_CACHE_BYTES_MAX, &cache));
    cubin_cache_keep(cache, &key, "cubin", 5);
    strcpy(path, only_file());
    assert_true(unlink(path) == 0 && mkdir(path, 0755) == 0);
    cubin_cache_keep(cache, &key, "cubin", 5);
    assert_string_equal(only_file(), path);
    cubin_cache_close(cache);
}

int main(void)
{
    fake = fake_cuda_load();
    return fake ? run_enlisted(NULL, NULL) : 1;
}
