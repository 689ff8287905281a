/* A GPU that computes nothing: the driver's half (libcuda.so.1), as torch and Triton call it.

   Memory is the host's. What is loaded, launched, copied and recorded is written down (`fake_log`), and what a real driver
   would refuse is refused: functions of unloaded modules, of another device than the current one, streams of another
   device, too much shared memory, loading while a graph is being recorded. What parameters a kernel has, the cubin says. */
#define _GNU_SOURCE
#include "fake.h"
#include <elf.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ the log */
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char *log_text;
static size_t log_size, log_room;

void note(const char *format, ...)
{
    char line[4096];
    va_list rest;
    va_start(rest, format);
    int n = vsnprintf(line, sizeof line - 1, format, rest);
    va_end(rest);
    if (n > (int)sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    pthread_mutex_lock(&log_lock);
    if (log_size + n + 1 > log_room) {
        log_room = 2 * (log_room + n + 1);
        log_text = realloc(log_text, log_room);
    }
    memcpy(log_text + log_size, line, n);
    log_size += n;
    log_text[log_size] = 0;
    pthread_mutex_unlock(&log_lock);
    if (getenv("FAKE_GPU_TRACE"))
        fwrite(line, 1, n, stderr);
}

/* What was written down since the last call, to be freed. */
VISIBLE char *fake_log(void)
{
    pthread_mutex_lock(&log_lock);
    char *text = log_text ? log_text : calloc(1, 1);
    log_text = NULL;
    log_size = log_room = 0;
    pthread_mutex_unlock(&log_lock);
    return text;
}

/* ------------------------------------------------------------ devices */
static __thread int current_device;
static __thread int has_context;
static int fake_contexts[MAX_DEVICES];

int devices(void)
{
    const char *given = getenv("FAKE_GPUS");
    return given ? atoi(given) : 1;
}

int current(void) { return current_device; }

void make_current(int device)
{
    current_device = device;
    has_context = 1;
}

int attribute(int which)
{
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 232448;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 233472;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: return 65536;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 2619000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return 0;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    default: return 0;
    }
}

VISIBLE CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
VISIBLE CUresult cuDriverGetVersion(int *version) { *version = 13000; return CUDA_SUCCESS; }
VISIBLE CUresult cuDeviceGetCount(int *count) { *count = devices(); return CUDA_SUCCESS; }

VISIBLE CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= devices())
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    *value = attribute(which);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = has_context ? (CUcontext)&fake_contexts[current_device] : NULL;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuCtxSetCurrent(CUcontext context)
{
    has_context = context != NULL;
    current_device = context ? (int)((int *)context - fake_contexts) : 0;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuCtxGetDevice(CUdevice *device) { *device = current_device; return CUDA_SUCCESS; }

VISIBLE CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = (CUcontext)&fake_contexts[device];
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuGetErrorString(CUresult error, const char **text)
{
    static __thread char made[40];
    snprintf(made, sizeof made, "error %d of the fake driver", error);
    *text = made;
    return CUDA_SUCCESS;
}
VISIBLE CUresult cuGetErrorName(CUresult error, const char **text) { return cuGetErrorString(error, text); }

VISIBLE CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr address)
{
    if (device_of_memory(address) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_POINTER_ATTRIBUTE_DEVICE_POINTER)
        *(CUdeviceptr *)data = address;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------ modules */
typedef struct Module {
    int device;
    int loaded;
    unsigned char *image;
    size_t size;
} Module;

typedef struct Function {
    Module *module;
    int parameters;
    int sizes[256];
    int dynamic_shared;
    char name[256];
} Function;

static const Elf64_Shdr *section(const unsigned char *image, const char *name)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *all = (const Elf64_Shdr *)(image + head->e_shoff);
    const char *names = (const char *)image + all[head->e_shstrndx].sh_offset;
    for (int k = 0; k < head->e_shnum; k++)
        if (!strcmp(names + all[k].sh_name, name))
            return &all[k];
    return NULL;
}

VISIBLE CUresult cuModuleLoadData(CUmodule *made, const void *given)
{
    const unsigned char *image = given;
    int error = unsafe_call("cuModuleLoadData");
    if (error)
        return error;
    if (!has_context)
        return CUDA_ERROR_INVALID_CONTEXT;
    const Elf64_Ehdr *head = given;
    if (memcmp(image, ELFMAG, SELFMAG) || head->e_machine != 190)
        return CUDA_ERROR_INVALID_IMAGE;
    const Elf64_Shdr *all = (const Elf64_Shdr *)(image + head->e_shoff);
    size_t size = head->e_shoff + head->e_shnum * sizeof *all;
    for (int k = 0; k < head->e_shnum; k++)
        if (all[k].sh_type != SHT_NOBITS && all[k].sh_offset + all[k].sh_size > size)
            size = all[k].sh_offset + all[k].sh_size;
    Module *module = calloc(1, sizeof *module);
    *module = (Module){current_device, 1, malloc(size), size};
    memcpy(module->image, image, size);
    *made = (CUmodule)module;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuModuleUnload(CUmodule given)
{
    Module *module = (Module *)given;
    int error = unsafe_call("cuModuleUnload");
    if (error)
        return error;
    if (!module->loaded)
        return CUDA_ERROR_INVALID_HANDLE;
    module->loaded = 0;  /* never freed: launches look whether it is loaded */
    note("unload device=%d", module->device);
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuModuleGetFunction(CUfunction *made, CUmodule given, const char *name)
{
    Module *module = (Module *)given;
    char wanted[512];
    snprintf(wanted, sizeof wanted, ".text.%s", name);
    if (!section(module->image, wanted))
        return CUDA_ERROR_NOT_FOUND;
    Function *function = calloc(1, sizeof *function);
    function->module = module;
    function->dynamic_shared = 49152;
    snprintf(function->name, sizeof function->name, "%s", name);
    snprintf(wanted, sizeof wanted, ".nv.info.%s", name);
    const Elf64_Shdr *info = section(module->image, wanted);
    const unsigned char *at = module->image + info->sh_offset, *end = at + info->sh_size;
    while (at + 4 <= end) {
        int format = at[0], kind = at[1], size = format == 4 ? at[2] | at[3] << 8 : 0;
        if (format == 4 && kind == 0x17) {  /* a parameter: its number, offset and size */
            int number = at[8] | at[9] << 8;
            uint32_t flags;
            memcpy(&flags, at + 12, 4);
            function->sizes[number] = flags >> 18;
            if (number >= function->parameters)
                function->parameters = number + 1;
        }
        at += 4 + size;
    }
    note("load %s device=%d parameters=%d", name, module->device, function->parameters);
    *made = (CUfunction)function;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function)
{
    *value = which == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value)
{
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    ((Function *)function)->dynamic_shared = value;
    return CUDA_SUCCESS;
}

VISIBLE CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache which) { return CUDA_SUCCESS; }
VISIBLE CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }
VISIBLE CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 1 << 20; return CUDA_SUCCESS; }
VISIBLE CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    Stream *found = stream_of(stream);
    *status = found && found->graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult refused(CUresult error, const Function *function, const char *why)
{
    note("refused %s: %s", function->name, why);
    return error;
}

VISIBLE CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction given, void **parameters, void **extra)
{
    Function *function = (Function *)given;
    if (!function->module->loaded)
        return refused(CUDA_ERROR_INVALID_HANDLE, function, "its module is unloaded");
    if (!has_context || function->module->device != current_device)
        return refused(CUDA_ERROR_INVALID_HANDLE, function, "it is another device's than the current one");
    if ((int)config->sharedMemBytes > function->dynamic_shared || config->blockDimX > 1024)
        return refused(CUDA_ERROR_INVALID_VALUE, function, "too large a block");
    if (work_in(config->hStream, function->name) < 0)
        return refused(CUDA_ERROR_INVALID_HANDLE, function, "the stream is another device's");
    char text[3000];
    size_t used = 0;
    text[0] = 0;
    for (int k = 0; k < function->parameters && used < sizeof text - 40; k++) {
        unsigned long long value = 0;
        memcpy(&value, parameters[k], function->sizes[k] > 8 ? 8 : function->sizes[k]);
        used += snprintf(text + used, sizeof text - used, "%s%d:%llx", k ? "," : "", function->sizes[k], value);
    }
    Stream *stream = stream_of(config->hStream);
    note("launch %s device=%d stream=%p grid=%u,%u,%u block=%u shared=%u attributes=%u recorded=%d parameters=%s",
         function->name, current_device, (void *)config->hStream, config->gridDimX, config->gridDimY, config->gridDimZ,
         config->blockDimX, config->sharedMemBytes, config->numAttrs, stream && stream->graph != NULL, text);
    return CUDA_SUCCESS;
}
