/* A stand-in for libcuda.so.1 with the signatures of the public cuda.h, for tests of OUR side only: that calls are made
   with the right arguments in the right order, and that a wrong result is noticed. Device memory is host memory, and the
   kernels are written again in C. It says nothing about CUDA or any GPU.

   FAKE_CUDA names a fault: no-device, old, jit, flip (a bit is lost on every way), lost (a launch fails), blind (no wrong
   word is found).

   With LAB it is part of tests/fakes/gpu_node.c, which knows the node's GPUs: more memory, and a copy that was just made is
   not made again, as these copies are the processor's. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long pointer;
static int enabled[2];
static uintptr_t current;

static int faulty(const char *name) { const char *set = getenv("FAKE_CUDA"); return set && !strcmp(set, name); }

#ifdef LAB
int stand_in_device(int ordinal), stand_in_count(void), stand_in_last_byte(void);
void stand_in_hang(void);
#define DEVICES stand_in_count()
#define DEVICE(ordinal) stand_in_device(ordinal)
#define LAST_BYTE(device) stand_in_last_byte()
#define MEMORY (256u << 20)
static uintptr_t last[3];
static void forget(void) { last[2] = 0; }
static int again(uintptr_t to, uintptr_t from, size_t size)
{
    int same = last[0] == to && last[1] == from && last[2] == size;
    last[0] = to; last[1] = from; last[2] = size;
    return same;
}
#else
#define DEVICES 2
#define DEVICE(ordinal) (ordinal)
#define LAST_BYTE(device) (0x10 + (device))
#define MEMORY (16u << 20)
#define again(to, from, size) 0
static void forget(void) {}
static void stand_in_hang(void) {}
#endif

int cuInit(unsigned flags) { stand_in_hang(); return flags ? 1 : faulty("no-device") ? 100 : 0; }
int cuGetErrorName(int code, const char **name)
{
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 218 ? "CUDA_ERROR_INVALID_PTX" : "CUDA_ERROR_MADE_UP";
    return 0;
}
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = DEVICES; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = DEVICE(ordinal); return *device < 0 ? 101 : 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    memset(uuid, 0x10 + device, 16);
    uuid[15] = LAST_BYTE(device);
    return 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case 16: *value = 2; return 0;    /* multiprocessors */
    case 39: *value = 1024; return 0; /* threads on each */
    case 75: *value = faulty("old") ? 7 : 9; return 0;
    case 76: *value = 0; return 0;
    }
    return 1;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(uintptr_t)(0x500000000 + device); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
/* contexts are beyond 32 bits: one that ctypes cut would not be known here */
int cuCtxSetCurrent(void *context)
{
    current = (uintptr_t)context - 0x500000000;
    return current > 1 ? 201 : 0;
}
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { *free_bytes = MEMORY; *total = 2 * MEMORY; return 0; }
#ifdef LAB
void *stand_in_memory(size_t size);
void stand_in_free(void *address);
#else
#define stand_in_memory malloc
#define stand_in_free free
#endif
int cuMemAlloc_v2(pointer *address, size_t size) { *address = (uintptr_t)stand_in_memory(size); return *address ? 0 : 2; }
int cuMemFree_v2(pointer address) { stand_in_free((void *)(uintptr_t)address); return 0; }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) { *address = malloc(size); return flags; }
int cuMemFreeHost(void *address) { free(address); return 0; }
int cuMemcpyHtoD_v2(pointer to, const void *from, size_t size) { memcpy((void *)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, pointer from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t size, void *stream)
{
    if (stream) return 1;
    if (!again(to, (uintptr_t)from, size)) memcpy((void *)(uintptr_t)to, from, size);
    if (faulty("flip")) ((char *)(uintptr_t)to)[size / 2] ^= 4;
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t size, void *stream)
{
    if (stream) return 1;
    return again((uintptr_t)to, from, size) ? 0 : cuMemcpyDtoH_v2(to, from, size);
}
int cuDeviceCanAccessPeer(int *able, int device, int peer) { *able = device != peer; return 0; }
int cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    uintptr_t other = (uintptr_t)peer - 0x500000000;
    if (flags || other > 1 || other == current) return 1;
    return enabled[current]++ ? 704 : 0;
}
int cuMemcpyPeerAsync(pointer to, void *to_context, pointer from, void *from_context, size_t size, void *stream)
{
    uintptr_t one = (uintptr_t)from_context - 0x500000000, other = (uintptr_t)to_context - 0x500000000;
    if (stream || one != current || other != 1 - one) return 1;
    if (!again(to, from, size)) memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
    if (faulty("flip")) ((char *)(uintptr_t)to)[size / 2] ^= 4;
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(1); return flags != 1; }
int cuStreamSynchronize(void *stream) { return !stream; }
int cuEventCreate(void **event, unsigned flags) { *event = malloc(1); return flags; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuEventRecord(void *event, void *stream) { return !event || stream; }
int cuEventSynchronize(void *event) { return !event; }
/* always a tenth of a second: rates come out the same on every machine */
int cuEventElapsedTime(float *milliseconds, void *from, void *to) { *milliseconds = 100; return !from || !to; }

int cuModuleLoadDataEx(void **module, const char *text, unsigned count, int *options, void **values)
{
    if (count != 2 || options[0] != 5 || options[1] != 6 || !strstr(text, ".visible .entry")) return 1;
    if (faulty("jit")) {
        snprintf(values[0], (size_t)values[1], "ptxas application ptx input, line 7;\n made up");
        return 218;
    }
    *module = (void *)text;
    return 0;
}
static const char *names[] = {"fill", "check", "copy", "triad", "fma_rate", "mma_rate"};
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    for (uintptr_t number = 0; module && number < 6; number++)
        if (!strcmp(names[number], name)) { *function = (void *)(number + 1); return 0; }
    return 500;
}

#define AT(kind, number) (*(kind *)arguments[number])
#define PLACE(kind, number) ((kind *)(uintptr_t)AT(pointer, number))
static uint32_t word(uint64_t i, uint32_t seed, uint32_t step)
{
    return ((uint32_t)i + (uint32_t)(i >> 32) * 0x85EBCA6Bu) * step + seed;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    if (!gx || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared || stream || extra) return 1;
    uint64_t threads = (uint64_t)gx * bx;
    const int blind = faulty("blind");
    forget();
    if (faulty("lost") && (uintptr_t)function == 5) return 719;
    switch ((uintptr_t)function) {
    case 1:
        for (uint64_t i = 0; i < AT(uint64_t, 1); i++) PLACE(uint32_t, 0)[i] = word(i, AT(uint32_t, 2), AT(uint32_t, 3));
        return 0;
    case 2:
        for (uint64_t i = 0; i < AT(uint64_t, 1) && !blind; i++)
            if (PLACE(uint32_t, 0)[i] != word(i, AT(uint32_t, 2), AT(uint32_t, 3))) {
                uint64_t *found = PLACE(uint64_t, 4);
                found[0]++;
                if (i < found[1]) found[1] = i;
            }
        return 0;
    case 3:
        memcpy(PLACE(char, 0), PLACE(char, 1), AT(uint64_t, 2) * 16);
        if (faulty("flip")) PLACE(char, 0)[160] ^= 4;
        return 0;
    case 4:
        for (uint64_t i = 0; i < AT(uint64_t, 4) * 4; i++)
            PLACE(float, 0)[i] = PLACE(float, 1)[i] + AT(float, 3) * PLACE(float, 2)[i];
        return 0;
    case 5:
        for (uint64_t i = 0; i < threads; i++) {
            float sum = 0;
            for (int chain = 0; chain < 8; chain++) {
                float x = i % 1024 + chain;
                for (uint32_t step = 0; step < 8 * AT(uint32_t, 1) + 1; step++) x = x * AT(float, 2) + AT(float, 3);
                sum += x;
            }
            PLACE(float, 0)[i] = sum + (faulty("flip") && i == 77);
        }
        return 0;
    case 6:
        for (uint64_t i = 0; i < threads; i++)
            for (int j = 0; j < 4; j++) {
                int lane = i % 32, row = lane / 4 + j / 2 * 8, column = lane % 4 * 2 + j % 2;
                PLACE(float, 0)[4 * i + j] = 8 * 16 * (row + 1) * (column + 1) + (faulty("flip") && i == 3);
            }
        return 0;
    }
    return 1;
}
