/* Keeps freed memory in the process between calls of compiled graphs.
 *
 * Results are ordinary torch tensors, whose memory is malloc's. glibc's malloc returns a large freed block to the
 * system and gets it again for the next call, whose first access to each page is a page fault; for results of megabytes
 * that takes longer than the kernels. Two thresholds control this: blocks above M_MMAP_THRESHOLD are mapped separately,
 * and if more than M_TRIM_THRESHOLD is free at the end of the heap, it is returned. malloc raises both by itself, to at
 * most 32 and 64 MiB, when a mapped block is freed. How far depends on which block is freed first, so that one process
 * has no page faults and another one thousands per call.
 *
 * While graphs that allocate large blocks are called, both thresholds are raised to a bound from the settings. A thread
 * wakes up once a second: after some seconds without such a call, it returns all free memory (malloc_trim), sets the
 * thresholds to malloc's own maximum and ends; the next call starts another thread. While memory is short, it returns
 * all free memory and lowers the thresholds.
 *
 * Invariant: where malloc is not glibc's, or the environment has configured it, nothing is changed. No function here
 * needs the interpreter, but `begin_keeping` is called with the GIL held.
 */
#define _GNU_SOURCE
#include "kept_memory.h"

#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

KeptMemory kept_memory;

#ifdef __GLIBC__
/* The largest values to which malloc raises the thresholds by itself: DEFAULT_MMAP_THRESHOLD_MAX, and twice that. */
#define OWN_MAPPED (32 << 20)
#define OWN_TRIM (64 << 20)
/* Memory is short if less than a sixteenth is left. */
#define SHORT_PART 16

static volatile int64_t bound;
static volatile double idle = 10;
static char files[256] = "/";
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int
at_most_int(int64_t n)
{
    return n < INT_MAX ? (int)n : INT_MAX;
}

static void
set_thresholds(int64_t mapped, int64_t trimmed)
{
    /* Older versions refuse values above malloc's own maximum. Setting the other threshold ends malloc's own adjustment
     * of this one, which would then stay where it is if the value is refused. */
    if (!mallopt(M_MMAP_THRESHOLD, at_most_int(mapped))) {
        mallopt(M_MMAP_THRESHOLD, OWN_MAPPED);
    }
    mallopt(M_TRIM_THRESHOLD, at_most_int(trimmed));
}

/* ---------------------------------------------------------------- whether memory is short */
/* The number that follows `name` in a file, or the file's first number if `name` is empty; -1 if there is none. */
static int64_t
number_in(const char *root, const char *path, const char *name)
{
    char whole[512], line[256];
    int64_t found = -1;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    FILE *file = fopen(whole, "re");
    if (file == NULL) {
        return -1;
    }
    while (found < 0 && fgets(line, sizeof line, file) != NULL) {
        long long value;
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), " %lld", &value) == 1) {
            found = value;
        }
    }
    fclose(file);
    return found;
}

int
memory_is_short(const char *root)
{
    const int64_t left = number_in(root, "proc/meminfo", "MemAvailable:"), all = number_in(root, "proc/meminfo", "MemTotal:");
    if (left >= 0 && all > 0 && left < all / SHORT_PART) {
        return 1;
    }
    /* The limit of a container (control group). Cached files do not count as used. */
    const int64_t most = number_in(root, "sys/fs/cgroup/memory.max", ""), taken = number_in(root, "sys/fs/cgroup/memory.current", "");
    const int64_t cached = number_in(root, "sys/fs/cgroup/memory.stat", "inactive_file ");
    return most > 0 && taken >= 0 && most - (taken - (cached > 0 ? cached : 0)) < most / SHORT_PART;
}

/* ---------------------------------------------------------------- the thread that gives memory back */
static void
sleep_for(double seconds)
{
    struct timespec span = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&span, NULL);
}

static void *
watch(void *unused)
{
    (void)unused;
    uint64_t seen = kept_memory.uses;
    double unused_for = 0;
    int is_short = 0;
    for (;;) {
        const double step = idle < 1 ? idle : 1;
        sleep_for(step);
        pthread_mutex_lock(&turn);
        const uint64_t now = kept_memory.uses;
        unused_for = now == seen ? unused_for + step : 0;
        seen = now;
        if (unused_for >= idle || bound == 0) {
            set_thresholds(OWN_MAPPED, OWN_TRIM);
            kept_memory.kept = 0;
            pthread_mutex_unlock(&turn);
            malloc_trim(0);
            return NULL;
        }
        const int was_short = is_short;
        is_short = memory_is_short(files);
        if (is_short != was_short) {
            set_thresholds(is_short ? LARGE_BLOCK : bound / 2, is_short ? LARGE_BLOCK : bound);
        }
        pthread_mutex_unlock(&turn);
        if (is_short) {
            /* Repeatedly, because blocks freed since then, between blocks in use, are not returned otherwise. */
            malloc_trim(0);
        }
    }
}

static void
lock_turn(void)
{
    pthread_mutex_lock(&turn);
}

static void
unlock_turn(void)
{
    pthread_mutex_unlock(&turn);
}

static void
forked(void)
{
    /* The child has no such thread. */
    kept_memory.kept = 0;
    pthread_mutex_unlock(&turn);
}

void
begin_keeping(void)
{
    static int handled;
    if (bound == 0) {
        return;
    }
    if (!handled) {
        handled = 1;
        pthread_atfork(lock_turn, unlock_turn, forked);
    }
    pthread_t thread;
    pthread_attr_t how;
    sigset_t all, before;
    pthread_attr_init(&how);
    pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&how, 128 << 10);
    sigfillset(&all);
    pthread_mutex_lock(&turn);
    /* The thread blocks all signals, so that the program's own threads handle them. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Without the thread nothing would ever be returned, so nothing is kept. */
    if (pthread_create(&thread, &how, watch, NULL) == 0) {
        set_thresholds(bound / 2, bound);
        kept_memory.kept = 1;
    } else {
        bound = 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&turn);
    pthread_attr_destroy(&how);
}

/* ---------------------------------------------------------------- settings */
int
can_keep_memory(void)
{
    static const char *const told[] = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"};
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        if (getenv(told[i]) != NULL) {
            return 0;
        }
    }
    const char *tunables = getenv("GLIBC_TUNABLES");
    if (tunables != NULL && strstr(tunables, "glibc.malloc.") != NULL) {
        return 0;
    }
    /* Checks that malloc is glibc's: another malloc may be preloaded or linked. */
    Dl_info own, libc;
    void *allocate = dlsym(RTLD_DEFAULT, "malloc"), *version = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    return allocate != NULL && version != NULL && dladdr(allocate, &own) && dladdr(version, &libc) && own.dli_fbase == libc.dli_fbase;
}

void
set_kept_memory(int64_t bytes, double idle_seconds, const char *root)
{
    pthread_mutex_lock(&turn);
    bound = bytes;
    idle = idle_seconds;
    snprintf(files, sizeof files, "%s", root);
    if (kept_memory.kept) {
        set_thresholds(bytes ? bytes / 2 : OWN_MAPPED, bytes ? bytes : OWN_TRIM);
    }
    pthread_mutex_unlock(&turn);
}

int
release_kept_memory(void)
{
    return malloc_trim(0);
}

void
count_kept_memory(uint64_t *bytes_free, uint64_t *at_end)
{
    *bytes_free = *at_end = 0;
#if __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 info = mallinfo2();
    *bytes_free = info.fordblks + info.fsmblks;
    *at_end = info.keepcost;
#endif
}

#else /* another C library */
int memory_is_short(const char *root) { (void)root; return 0; }
void begin_keeping(void) {}
int can_keep_memory(void) { return 0; }
void set_kept_memory(int64_t bytes, double idle_seconds, const char *root) { (void)bytes; (void)idle_seconds; (void)root; }
int release_kept_memory(void) { return 0; }
void count_kept_memory(uint64_t *bytes_free, uint64_t *at_end) { *bytes_free = *at_end = 0; }
#endif
