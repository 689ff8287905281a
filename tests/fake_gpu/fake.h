/* What the two halves of the fake GPU share: see fake_driver.c. */
#include <cuda.h>
#include <stdint.h>

#define VISIBLE __attribute__((visibility("default")))
#define MAX_DEVICES 8

void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
int devices(void);
int current(void);              /* the calling thread's device */
void make_current(int device);
int attribute(int which);       /* of any device, as CUdevice_attribute and cudaDeviceAttr number them */
int device_of_memory(uintptr_t address);  /* -1: no device's */

/* A stream, and what it is being recorded to. The streams of the API that are no addresses (0, 1, 2) are device 0's to 7's
   default ones, which are never recorded. */
typedef struct Stream {
    int device;
    struct Graph *graph;
} Stream;

typedef struct Graph {
    int work;      /* kernels, copies and fills */
    int invalid;
    int streams;   /* that take part */
} Graph;

Stream *stream_of(const void *handle);  /* NULL: the default one */
int unsafe_call(const char *name);      /* 0, or the error that calling this while the thread records gives */
int work_in(const void *stream, const char *name);  /* counts it; -1 if the stream is another device's than the current */
