// A stand-in for CUDA's driver library on a machine without an NVIDIA GPU, for tests of memory that Vulkan shares. It
// has one GPU, whose UUID is in the variable CUDA_STANDIN_UUID, and imports memory of Mesa's lavapipe by mapping its
// file. Its streams run nothing before something waits for them, so a missing wait is noticed.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_SUPPORTED = 801, MOST = 1024 };

// Queued work: sets each of `count` floats to itself plus `value`.
struct addition {
    float *at;
    size_t count;
    float value;
};
static struct addition queued[MOST];
static int queued_count;

static struct {
    char *base, *at;
    size_t bytes;
    int is_mapped;
} imports[MOST];
static int import_count, live_imports, live_mappings;
static int context;
static void *current;

static int run_queued(void) {
    for (int i = 0; i < queued_count; i++)
        for (size_t k = 0; k < queued[i].count; k++) queued[i].at[k] += queued[i].value;
    queued_count = 0;
    return SUCCESS;
}

// For tests: queues an addition on any stream; counts imports and mappings that were not released; whether there is a
// context.
int standin_add(void *at, size_t count, float value) {
    if (queued_count == MOST) return INVALID_VALUE;
    queued[queued_count++] = (struct addition){at, count, value};
    return SUCCESS;
}
int standin_live_imports(void) { return live_imports; }
int standin_live_mappings(void) { return live_mappings; }
int standin_has_context(void) { return context; }

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 12080, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 2, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, length, "stand-in %d", device), SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)attribute, (void)device;
    return *value = 1, SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    return *bytes = 1 << 30, SUCCESS;
}

int cuDeviceGetUuid(unsigned char *uuid, int device) {
    const char *text = getenv("CUDA_STANDIN_UUID");
    memset(uuid, 0xee, 16);
    for (int i = 0; device == 1 && text && i < 16; i++) {
        unsigned byte = 0;
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) break;
        uuid[i] = (unsigned char)byte;
    }
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
    context = 1;
    return *made = (char *)0x1000 + device, SUCCESS;
}
int cuCtxGetCurrent(void **got) { return *got = current, SUCCESS; }
int cuCtxSetCurrent(void *to) { return current = to, SUCCESS; }
int cuCtxPushCurrent_v2(void *to) { return current = to, SUCCESS; }
int cuCtxPopCurrent_v2(void **got) { return *got = current, current = NULL, SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return *mode = 0, SUCCESS; }
int cuCtxSynchronize(void) { return run_queued(); }
int cuStreamSynchronize(void *stream) {
    (void)stream;
    return run_queued();
}
int cuGetErrorName(int code, const char **text) { return *text = code == NOT_SUPPORTED ? "NOT_SUPPORTED" : "?", 0; }
int cuGetErrorString(int code, const char **text) { return (void)code, *text = "the stand-in lacks it", 0; }

// Lavapipe's file begins with a header: the file's size, and the memory's offset.
static size_t offset_in(const char *base, size_t size) {
    size_t header[2];
    memcpy(header, base, sizeof header);
    return header[0] == size && header[1] < size ? header[1] : 0;
}

struct memory_handle {
    int kind, padding, file, rest[3];
    uint64_t bytes;
    unsigned flags, reserved[16];
};
struct range {
    uint64_t offset, bytes;
    unsigned flags, reserved[16];
};

int cuImportExternalMemory(void **memory, const struct memory_handle *handle) {
    struct stat file;
    if (!current || handle->kind != 1 || import_count == MOST || fstat(handle->file, &file)) return INVALID_VALUE;
    char *base = mmap(NULL, file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, handle->file, 0);
    if (base == MAP_FAILED) return INVALID_VALUE;
    size_t offset = offset_in(base, file.st_size);
    if (offset + handle->bytes > (size_t)file.st_size) return INVALID_VALUE;
    close(handle->file);
    imports[import_count].base = base;
    imports[import_count].at = base + offset;
    imports[import_count].bytes = file.st_size;
    live_imports++;
    *memory = (void *)(uintptr_t)++import_count;
    return SUCCESS;
}

int cuExternalMemoryGetMappedBuffer(uint64_t *address, void *memory, const struct range *range) {
    int number = (int)(uintptr_t)memory - 1;
    if (!current || range->offset + range->bytes > imports[number].bytes) return INVALID_VALUE;
    imports[number].is_mapped = 1;
    live_mappings++;
    return *address = (uintptr_t)imports[number].at + range->offset, SUCCESS;
}

int cuMemFree_v2(uint64_t address) {
    for (int i = 0; i < import_count; i++)
        if (imports[i].is_mapped && (uintptr_t)imports[i].at == address) {
            imports[i].is_mapped = 0;
            return live_mappings--, SUCCESS;
        }
    return INVALID_VALUE;
}

int cuDestroyExternalMemory(void *memory) {
    int number = (int)(uintptr_t)memory - 1;
    if (imports[number].is_mapped) return INVALID_VALUE;
    munmap(imports[number].base, imports[number].bytes);
    return live_imports--, SUCCESS;
}

// The other functions that the driver looks up.
#define MISSING(name) \
    int name(void) { return NOT_SUPPORTED; }
MISSING(cuCtxGetStreamPriorityRange)
MISSING(cuMemGetInfo_v2)
MISSING(cuMemAlloc_v2)
MISSING(cuMemHostAlloc)
MISSING(cuMemFreeHost)
MISSING(cuMemsetD8Async)
MISSING(cuMemsetD16Async)
MISSING(cuMemsetD32Async)
MISSING(cuMemcpyHtoDAsync_v2)
MISSING(cuMemcpyDtoHAsync_v2)
MISSING(cuMemcpyDtoDAsync_v2)
MISSING(cuMemcpyPeerAsync)
MISSING(cuStreamCreateWithPriority)
MISSING(cuStreamDestroy_v2)
MISSING(cuStreamQuery)
MISSING(cuStreamWaitEvent)
MISSING(cuStreamIsCapturing)
MISSING(cuEventCreate)
MISSING(cuEventDestroy_v2)
MISSING(cuEventRecord)
MISSING(cuEventSynchronize)
MISSING(cuEventQuery)
MISSING(cuEventElapsedTime)
MISSING(cuModuleLoadDataEx)
MISSING(cuModuleUnload)
MISSING(cuModuleGetFunction)
MISSING(cuFuncGetAttribute)
MISSING(cuFuncSetAttribute)
MISSING(cuOccupancyMaxActiveBlocksPerMultiprocessor)
MISSING(cuLaunchKernel)
MISSING(cuGraphInstantiateWithFlags)
MISSING(cuGraphLaunch)
MISSING(cuGraphExecDestroy)
MISSING(cuImportExternalSemaphore)
MISSING(cuSignalExternalSemaphoresAsync)
MISSING(cuWaitExternalSemaphoresAsync)
MISSING(cuDestroyExternalSemaphore)
