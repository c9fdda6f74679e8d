/* A stand-in for libnvidia-ml.so.1 with the signatures of the public nvml.h, for tests of the CALLING side only: that
   arguments arrive as C expects them and errors come back as words. It says nothing about NVML or any GPU. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned version; unsigned char uuid[16]; int status; unsigned clique; unsigned char state;
                 unsigned health; } fabric;
static int gpus[2];

int sizes(int which) { return which == 0 ? sizeof(memory) : which == 1 ? sizeof(pci) : sizeof(fabric); }

int nvmlInit_v2(void) { const char *code = getenv("FAKE_NVML_INIT"); return code ? atoi(code) : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "made up"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.95.05", size); return 0; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strncpy(text, "13.580.95.05", size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index == 2) return 15; /* the GPU is lost */
    *handle = &gpus[index];
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    *handle = &gpus[uuid[4] == '1' && uuid[5] == '1'];
    return 0;
}
int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) { (void)handle; *mhz = kind == 1 ? 1755 : 2619; return 0; }
/* a pointer cut to 32 bits on its way through ctypes would not be found here */
static int index_of(void *handle) { return handle == &gpus[0] ? 0 : handle == &gpus[1] ? 1 : -1; }
int nvmlDeviceGetName(void *handle, char *text, unsigned size)
{
    if (index_of(handle) < 0 || size < 96) return 2;
    strcpy(text, "NVIDIA H100 80GB HBM3");
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size)
{
    if (size < 96) return 7;
    strcpy(text, index_of(handle) == 0 ? "GPU-10101010-1010-1010-1010-101010101010" : "GPU-11111111-1111-1111-1111-111111111111");
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory *found)
{
    if (index_of(handle) < 0 || found->version != (sizeof(memory) | 2u << 24)) return 25;
    found->total = 81559ull << 20;
    return 0;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci *found)
{
    found->domain = 0; found->bus = 0x1b + index_of(handle); found->device = 2;
    return 0;
}
int nvmlDeviceGetGpuFabricInfoV(void *handle, fabric *found)
{
    if (index_of(handle) < 0 || found->version != (sizeof(fabric) | 2u << 24)) return 25;
    found->state = 3; found->status = 0; found->health = 2 | 2 << 2 | 1 << 4;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *infos)
{
    unsigned has = index_of(handle) ? 2 : 0;
    int room = *count;
    (void)infos;
    *count = has;
    return has && !room ? 7 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count)
{
    (void)handle;
    *count = (1ull << 40) + 10 * kind + counter;
    return 0;
}
int nvmlDeviceGetEccMode(void *handle, unsigned *now, unsigned *pending) { (void)handle; *now = 1; *pending = 0; return 0; }
int nvmlDeviceGetRemappedRows(void *handle, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed)
{
    (void)handle;
    *c = 1; *u = 2; *pending = 1; *failed = 0;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits)
{
    (void)handle;
    *bits = 0x44;
    return 0;
}
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active)
{
    (void)handle;
    if (link >= 4) return 2;
    *active = link != 3;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) { (void)handle; *milliwatts = 70125; return 0; }
int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) { (void)handle; (void)mode; return 3; }
