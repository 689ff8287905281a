/* The fake GPU's other half, the runtime (libcudart.so.13), as torch calls it: memory is the host's, and torch's own kernels
   do nothing. All work is over at once. */
#define _GNU_SOURCE
#include "fake.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __thread cudaError_t last_error;
static __thread enum cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
static __thread Graph *recording;  /* that this thread has begun */

static cudaError_t give(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

int unsafe_call(const char *name)
{
    if (recording == NULL || capture_mode == cudaStreamCaptureModeRelaxed)
        return 0;
    recording->invalid = 1;
    note("refused %s: a graph is being recorded", name);
    return cudaErrorStreamCaptureUnsupported;
}

#define SAFE(name) do { int e = unsafe_call(name); if (e) return give(e); } while (0)

/* ------------------------------------------------------------ devices */
VISIBLE cudaError_t cudaGetDeviceCount(int *count) { *count = devices(); return cudaSuccess; }
VISIBLE cudaError_t cudaGetDevice(int *device) { *device = current(); return cudaSuccess; }
VISIBLE cudaError_t cudaDriverGetVersion(int *version) { *version = 13000; return cudaSuccess; }
VISIBLE cudaError_t cudaRuntimeGetVersion(int *version) { *version = 13000; return cudaSuccess; }

VISIBLE cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= devices())
        return give(cudaErrorInvalidDevice);
    make_current(device);
    return cudaSuccess;
}

VISIBLE cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    *value = attribute((int)which);
    return cudaSuccess;
}

VISIBLE cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "a GPU that computes nothing");
    p->uuid.bytes[0] = (char)device;
    p->totalGlobalMem = (size_t)80 << 30;
    p->major = 9;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->multiProcessorCount = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    p->maxThreadsPerMultiProcessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    p->sharedMemPerMultiprocessor = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->l2CacheSize = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    p->maxBlocksPerMultiProcessor = 32;
    p->unifiedAddressing = 1;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    snprintf(text, size, "0000:%02d:00.0", device);
    return cudaSuccess;
}
VISIBLE cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { *can = 0; return cudaSuccess; }
VISIBLE cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaDeviceSynchronize(void) { SAFE("cudaDeviceSynchronize"); return cudaSuccess; }
VISIBLE cudaError_t cudaGetLastError(void) { cudaError_t e = last_error; last_error = cudaSuccess; return e; }
VISIBLE cudaError_t cudaPeekAtLastError(void) { return last_error; }
VISIBLE const char *cudaGetErrorName(cudaError_t error) { return "an error of the fake runtime"; }
VISIBLE const char *cudaGetErrorString(cudaError_t error)
{
    static __thread char made[40];
    snprintf(made, sizeof made, "error %d of the fake runtime", error);
    return made;
}

VISIBLE cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result)
{
    *function = dlsym(RTLD_DEFAULT, name);
    if (result)
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* ------------------------------------------------------------ memory */
typedef struct Piece {
    uintptr_t begin;
    size_t size;
    int device;  /* -1: pinned memory of the host */
    struct Piece *next;
} Piece;

static Piece *pieces;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t make(void **out, size_t size, int device)
{
    size_t rounded = (size + 511) / 512 * 512;
    if (posix_memalign(out, 512, rounded ? rounded : 512))
        return give(cudaErrorMemoryAllocation);
    Piece *piece = malloc(sizeof *piece);
    pthread_mutex_lock(&lock);
    *piece = (Piece){(uintptr_t)*out, rounded, device, pieces};
    pieces = piece;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t drop(void *address)
{
    pthread_mutex_lock(&lock);
    for (Piece **at = &pieces; *at; at = &(*at)->next)
        if ((*at)->begin == (uintptr_t)address) {
            Piece *gone = *at;
            *at = gone->next;
            free(gone);
            free(address);
            break;
        }
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static int find(uintptr_t address, int *device)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (Piece *p = pieces; p && !found; p = p->next)
        if (address >= p->begin && address < p->begin + p->size) {
            *device = p->device;
            found = 1;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

int device_of_memory(uintptr_t address)
{
    int device;
    return find(address, &device) ? device : -1;
}

VISIBLE cudaError_t cudaMalloc(void **out, size_t size) { SAFE("cudaMalloc"); return make(out, size, current()); }
VISIBLE cudaError_t cudaFree(void *address) { SAFE("cudaFree"); return drop(address); }
VISIBLE cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags) { return make(out, size, -1); }
VISIBLE cudaError_t cudaFreeHost(void *address) { return drop(address); }
VISIBLE cudaError_t cudaMemGetInfo(size_t *some, size_t *all)
{
    *some = (size_t)79 << 30;
    *all = (size_t)80 << 30;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *address)
{
    int device = -1, found = find((uintptr_t)address, &device);
    memset(a, 0, sizeof *a);
    a->type = !found ? cudaMemoryTypeUnregistered : device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    a->device = device;
    a->devicePointer = (void *)address;
    a->hostPointer = found && device < 0 ? (void *)address : NULL;
    return cudaSuccess;
}

/* ------------------------------------------------------------ streams and events */
static unsigned long long graphs;

Stream *stream_of(const void *handle)
{
    return (uintptr_t)handle <= 2 ? NULL : (Stream *)handle;
}

int work_in(const void *handle, const char *name)
{
    Stream *stream = stream_of(handle);
    if (stream && stream->device != current())
        return -1;
    if (stream && stream->graph)
        stream->graph->work++;
    return 0;
}

VISIBLE cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    Stream *stream = calloc(1, sizeof *stream);
    stream->device = current();
    *out = (cudaStream_t)stream;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, 0, 0); }
VISIBLE cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaSuccess; }
VISIBLE cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { *priority = 0; return cudaSuccess; }

static cudaError_t wait(cudaStream_t handle, const char *name)
{
    Stream *stream = stream_of(handle);
    if (stream && stream->graph) {
        stream->graph->invalid = 1;
        note("refused %s: the stream is being recorded", name);
        return give(cudaErrorStreamCaptureUnsupported);
    }
    SAFE(name);
    note("wait %s", name);
    return cudaSuccess;
}
VISIBLE cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait(stream, "cudaStreamSynchronize"); }
VISIBLE cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }

typedef struct Event {
    struct timespec at;
    Graph *graph;
} Event;

VISIBLE cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    *out = (cudaEvent_t)calloc(1, sizeof(Event));
    return cudaSuccess;
}
VISIBLE cudaError_t cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
VISIBLE cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
VISIBLE cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags)
{
    Event *event = (Event *)handle;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    Stream *in = stream_of(stream);
    if (in && in->device != current())
        return give(cudaErrorInvalidResourceHandle);
    event->graph = in ? in->graph : NULL;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}
VISIBLE cudaError_t cudaEventQuery(cudaEvent_t event) { SAFE("cudaEventQuery"); return cudaSuccess; }
VISIBLE cudaError_t cudaEventSynchronize(cudaEvent_t event) { SAFE("cudaEventSynchronize"); return cudaSuccess; }
VISIBLE cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    struct timespec *s = &((Event *)a)->at, *e = &((Event *)b)->at;
    *ms = (float)((double)(e->tv_sec - s->tv_sec) * 1e3 + (double)(e->tv_nsec - s->tv_nsec) / 1e6);
    return cudaSuccess;
}
VISIBLE cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t given, unsigned flags)
{
    Stream *stream = stream_of(handle);
    Event *event = (Event *)given;
    if (stream && stream->graph && stream->graph != event->graph && event->at.tv_sec) {
        stream->graph->invalid = 1;
        note("refused cudaStreamWaitEvent: of what is no part of the graph that is being recorded");
        return give(cudaErrorStreamCaptureIsolation);
    }
    if (event->graph && stream && !stream->graph) {
        stream->graph = event->graph;
        event->graph->streams++;
    }
    return cudaSuccess;
}

/* ------------------------------------------------------------ graphs */
VISIBLE cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    enum cudaStreamCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    Stream *stream = stream_of(handle);
    if (!stream)
        return give(cudaErrorStreamCaptureUnsupported);
    if (stream->graph)
        return give(cudaErrorIllegalState);
    stream->graph = calloc(1, sizeof(Graph));
    stream->graph->streams = 1;
    recording = stream->graph;
    __sync_fetch_and_add(&graphs, 1);
    note("record device=%d stream=%p mode=%d", stream->device, (void *)handle, mode);
    return cudaSuccess;
}

VISIBLE cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out)
{
    Stream *stream = stream_of(handle);
    *out = NULL;
    if (!stream || !stream->graph)
        return give(cudaErrorIllegalState);
    Graph *graph = stream->graph;
    stream->graph = NULL;
    recording = NULL;
    note("recorded work=%d invalid=%d", graph->work, graph->invalid);
    if (graph->invalid)
        return give(cudaErrorStreamCaptureInvalidated);
    *out = (cudaGraph_t)graph;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    Stream *stream = stream_of(handle);
    *status = !stream || !stream->graph ? cudaStreamCaptureStatusNone
        : stream->graph->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count)
{
    Stream *stream = stream_of(handle);
    cudaStreamIsCapturing(handle, status);
    if (id)
        *id = graphs;
    if (graph)
        *graph = stream ? (cudaGraph_t)stream->graph : NULL;
    if (count)
        *count = 0;
    return cudaSuccess;
}

VISIBLE cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    *out = (cudaGraphExec_t)graph;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    if (work_in(stream, "graph") < 0)
        return give(cudaErrorInvalidResourceHandle);
    note("replay work=%d stream=%p device=%d", ((Graph *)graph)->work, (void *)stream, current());
    return cudaSuccess;
}
VISIBLE cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    *count = ((Graph *)graph)->work;
    return cudaSuccess;
}

/* ------------------------------------------------------------ copies and torch's kernels */
static cudaError_t copy(void *to, const void *from, size_t size, cudaStream_t stream, const char *name)
{
    if (work_in(stream, name) < 0)
        return give(cudaErrorInvalidResourceHandle);
    int to_device = device_of_memory((uintptr_t)to), from_device = device_of_memory((uintptr_t)from);
    note("copy bytes=%zu stream=%p to=%d from=%d", size, (void *)stream, to_device, from_device);
    /* No kernel has written what the host reads: what happens to lie there is no number of elements. */
    if (from_device >= 0 && to_device < 0)
        memset(to, 0, size);
    else
        memmove(to, from, size);
    return cudaSuccess;
}
VISIBLE cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
    SAFE("cudaMemcpy");
    return copy(to, from, size, 0, "cudaMemcpy");
}
VISIBLE cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy(to, from, size, stream, "cudaMemcpyAsync");
}
VISIBLE cudaError_t cudaMemcpyPeerAsync(
    void *to, int a, const void *from, int b, size_t size, cudaStream_t stream)
{
    return copy(to, from, size, stream, "cudaMemcpyPeerAsync");
}
VISIBLE cudaError_t cudaMemset(void *to, int value, size_t size) { memset(to, value, size); return cudaSuccess; }
VISIBLE cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
    if (work_in(stream, "cudaMemsetAsync") < 0)
        return give(cudaErrorInvalidResourceHandle);
    memset(to, value, size);
    return cudaSuccess;
}

typedef struct Name {
    const void *host;
    const char *name;
} Name;
static Name *names;
static size_t named, rooms;
static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configuration;

VISIBLE void **__cudaRegisterFatBinary(void *binary) { static void *handle; return &handle; }
VISIBLE void __cudaRegisterFatBinaryEnd(void **handle) {}
VISIBLE void __cudaUnregisterFatBinary(void **handle) {}
VISIBLE char __cudaInitModule(void **handle) { return 1; }
VISIBLE void __cudaRegisterVar(
    void **handle, char *host, char *address, const char *name, int a, size_t size, int b, int c) {}
VISIBLE void __cudaRegisterFunction(
    void **handle, const char *host, char *device, const char *name, int threads, void *a, void *b, void *c, void *d,
    int *e)
{
    if (named == rooms)
        names = realloc(names, (rooms = 2 * rooms + 1024) * sizeof *names);
    names[named++] = (Name){host, name};
}
VISIBLE unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream)
{
    configuration.grid = grid;
    configuration.block = block;
    configuration.shared = shared;
    configuration.stream = stream;
    return 0;
}
VISIBLE cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *(cudaStream_t *)stream = configuration.stream;
    return cudaSuccess;
}
VISIBLE cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}

static cudaError_t library_kernel(const void *host, cudaStream_t stream)
{
    if (work_in(stream, "a library's kernel") < 0)
        return give(cudaErrorInvalidResourceHandle);
    const char *name = "?";
    for (size_t k = 0; k < named; k++)
        if (names[k].host == host)
            name = names[k].name;
    Stream *in = stream_of(stream);
    note("library %.200s device=%d stream=%p recorded=%d", name, current(), (void *)stream, in && in->graph != NULL);
    return cudaSuccess;
}
VISIBLE cudaError_t __cudaLaunchKernel(
    cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream)
{
    return library_kernel(kernel, stream);
}
VISIBLE cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host, void **arguments)
{
    return library_kernel(host, config->stream);
}
VISIBLE cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *host)
{
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->binaryVersion = a->ptxVersion = 90;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *host, int threads, size_t shared, unsigned flags)
{
    *blocks = 2;
    return cudaSuccess;
}
VISIBLE cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) { *address = (void *)symbol; return cudaSuccess; }
