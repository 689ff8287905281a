/* Keeps freed memory in the process between calls of compiled graphs; see kept_memory.c. */
#ifndef DYNAMO_LITE_KEPT_MEMORY_H
#define DYNAMO_LITE_KEPT_MEMORY_H
#include <stdint.h>

/* At first, malloc maps blocks of this size and larger separately, before it raises its threshold. */
#define LARGE_BLOCK (128 << 10)

/* Number of calls that allocate large blocks, and whether freed memory is kept now. Writers of `uses` hold the GIL. */
typedef struct {
    volatile uint64_t uses;
    volatile int kept;
} KeptMemory;
extern KeptMemory kept_memory;

/* Whether malloc is glibc's, and the environment has not configured it. */
int can_keep_memory(void);
/* Sets the largest number of bytes to keep, and for how many seconds after the last use; 0 leaves malloc to itself.
 * `root`: the folder that contains `proc` and `sys`. */
void set_kept_memory(int64_t bytes, double idle_seconds, const char *root);
void begin_keeping(void);
/* Returns free memory to the system; the result says whether there was any. */
int release_kept_memory(void);
/* Bytes that are free, and those of them at the heap's end, which the bound limits. */
void count_kept_memory(uint64_t *bytes_free, uint64_t *at_end);
int memory_is_short(const char *root);

/* To be called before a graph allocates large blocks. */
static inline void
use_kept_memory(void)
{
    kept_memory.uses++;
    if (!kept_memory.kept) {
        begin_keeping();
    }
}
#endif
