/* Memory that stays with the process between calls of compiled graphs; see kept_memory.c. */
#ifndef DYNAMO_LITE_KEPT_MEMORY_H
#define DYNAMO_LITE_KEPT_MEMORY_H
#include <stdint.h>

/* malloc takes blocks of so many bytes and more from the system, one by one, until it has learnt better. */
#define LARGE_BLOCK (128 << 10)

/* How often a graph has allocated large blocks, and whether what is freed is kept now. The GIL is held wherever `uses` is written. */
typedef struct {
    volatile uint64_t uses;
    volatile int kept;
} KeptMemory;
extern KeptMemory kept_memory;

/* Whether malloc is one that can be told, and was not told already by the environment. */
int can_keep_memory(void);
/* How many bytes are kept at most from now on, and for how long after the last use; 0 leaves malloc to itself. `root`: under which
 * `proc` and `sys` stand. */
void set_kept_memory(int64_t bytes, double idle_seconds, const char *root);
void begin_keeping(void);
/* Gives back what is free; whether there was any. */
int release_kept_memory(void);
/* Bytes that are free, and of these the ones at the heap's end, which the bound is of. */
void count_kept_memory(uint64_t *bytes_free, uint64_t *at_end);
int memory_is_short(const char *root);

/* A graph is about to allocate large blocks. */
static inline void
use_kept_memory(void)
{
    kept_memory.uses++;
    if (!kept_memory.kept) {
        begin_keeping();
    }
}
#endif
