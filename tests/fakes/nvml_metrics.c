/* A stand-in for libnvidia-ml.so.1 with the signatures of the public nvml.h: four GPUs, the last in MIG mode with two
   instances, whose values move with the clock. With it nvitop-exporter's own code runs where there is no GPU. It says
   nothing about NVML or any GPU; what it lacks is told to the caller as the real library tells it (symbol not found).

   Files in the folder that STANDIN_NVML names say what goes wrong: `lost` holds the index of a GPU that is gone,
   `xid` the index and the code of an error to report once, `recovery` the index and the number of what is to be done. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { GPUS = 4, MIG_GPU = 3, SLICES = 2 };
static const unsigned long long MIB = 1ull << 20;

typedef struct { int gpu, slice; } device;
typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned version; int sensor; int celsius; } temperature;
typedef struct { unsigned id, scope; long long time, latency; int kind, code; unsigned long long value; } field;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event;

static device gpus[GPUS] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}};
static device slices[SLICES] = {{MIG_GPU, 0}, {MIG_GPU, 1}};

/* between 0 and 1, another phase on each GPU, once around in ten minutes */
static double wave(const device *at)
{
    double turn = (time(NULL) % 600) / 600.0 + at->gpu * 0.25 + (at->slice > 0 ? 0.5 : 0);
    turn -= (int)turn;
    return turn < 0.5 ? 2 * turn : 2 - 2 * turn;
}
static FILE *told(const char *name)
{
    char path[512];
    const char *folder = getenv("STANDIN_NVML");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/run/stand-in-nvml", name);
    return fopen(path, "r");
}
static int lost(int gpu)
{
    int which = -1;
    FILE *file = told("lost");
    if (file) {
        if (fscanf(file, "%d", &which) != 1) which = -1;
        fclose(file);
    }
    return which == gpu;
}
#define ALIVE(handle) if (lost(((device *)(handle))->gpu)) return GPU_IS_LOST
#define WHOLE(handle) ALIVE(handle); if (((device *)(handle))->slice >= 0) return NOT_SUPPORTED

int nvmlInit_v2(void) { return OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "made up"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.95.05", size); return OK; }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { strncpy(text, "13.580.95.05", size); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 13000; return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 13000; return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = GPUS; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index >= GPUS) return INVALID;
    if (lost((int)index)) return GPU_IS_LOST;
    *handle = &gpus[index];
    return OK;
}
int nvmlDeviceGetIndex(device *at, unsigned *index) { ALIVE(at); *index = (unsigned)at->gpu; return OK; }
int nvmlDeviceGetName(device *at, char *text, unsigned size)
{
    ALIVE(at);
    snprintf(text, size, at->slice < 0 ? "NVIDIA H100 80GB HBM3" : "NVIDIA H100 80GB HBM3 MIG 3g.40gb");
    return OK;
}
int nvmlDeviceGetUUID(device *at, char *text, unsigned size)
{
    char host[65] = "";
    ALIVE(at);
    gethostname(host, 64);
    /* the last letter of the node's name, so that no two nodes of a lab have the same */
    snprintf(text, size, "%s-5ca1ab1e-0000-4000-8000-0000000%02x%d%d0", at->slice < 0 ? "GPU" : "MIG",
             host[strlen(host) - 1], at->gpu, at->slice + 1);
    return OK;
}
int nvmlDeviceGetMinorNumber(device *at, unsigned *minor) { WHOLE(at); *minor = (unsigned)at->gpu; return OK; }
int nvmlDeviceGetMigMode(device *at, unsigned *now, unsigned *pending)
{
    WHOLE(at);
    *now = *pending = at->gpu == MIG_GPU;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device *at, unsigned *count) { *count = at->gpu == MIG_GPU ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *at, unsigned index, void **handle)
{
    if (at->gpu != MIG_GPU || index >= SLICES) return NOT_FOUND;
    *handle = &slices[index];
    return OK;
}
int nvmlDeviceIsMigDeviceHandle(device *at, unsigned *is) { *is = at->slice >= 0; return OK; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *at, void **handle) { *handle = &gpus[at->gpu]; return OK; }
int nvmlDeviceGetGpuInstanceId(device *at, unsigned *id) { *id = (unsigned)at->slice + 1; return OK; }
int nvmlDeviceGetComputeInstanceId(device *at, unsigned *id) { (void)at; *id = 0; return OK; }

static unsigned long long total(const device *at) { return (at->slice < 0 ? 81559ull : 40448ull) * MIB; }
static unsigned long long used(const device *at) { return (unsigned long long)(total(at) / MIB * 0.9 * wave(at)) * MIB; }
int nvmlDeviceGetMemoryInfo(device *at, memory_v1 *found)
{
    ALIVE(at);
    *found = (memory_v1){total(at), total(at) - used(at), used(at)};
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device *at, memory_v2 *found)
{
    ALIVE(at);
    *found = (memory_v2){found->version, total(at), 0, total(at) - used(at), used(at)};
    return OK;
}
/* NVML has no utilization of a GPU in MIG mode, nor of its instances */
int nvmlDeviceGetUtilizationRates(device *at, rates *found)
{
    WHOLE(at);
    if (at->gpu == MIG_GPU) return NOT_SUPPORTED;
    found->gpu = (unsigned)(100 * wave(at));
    found->memory = found->gpu / 3;
    return OK;
}
int nvmlDeviceGetClockInfo(device *at, unsigned kind, unsigned *mhz)
{
    WHOLE(at);
    *mhz = kind == 2 ? 2619 : 1410 + (unsigned)(570 * wave(at));
    return OK;
}
int nvmlDeviceGetPowerUsage(device *at, unsigned *mw) { WHOLE(at); *mw = 71000 + (unsigned)(620000 * wave(at)); return OK; }
int nvmlDeviceGetPowerManagementLimit(device *at, unsigned *mw) { WHOLE(at); *mw = 700000; return OK; }
int nvmlDeviceGetTemperature(device *at, int sensor, unsigned *celsius)
{
    (void)sensor;
    WHOLE(at);
    *celsius = 28 + (unsigned)(42 * wave(at));
    return OK;
}
int nvmlDeviceGetTemperatureV(device *at, temperature *found)
{
    unsigned celsius = 0;
    int code = nvmlDeviceGetTemperature(at, 0, &celsius);
    found->celsius = (int)celsius;
    return code;
}
int nvmlDeviceGetPcieThroughput(device *at, int way, unsigned *kilobytes)
{
    (void)way;
    WHOLE(at);
    *kilobytes = (unsigned)(2000000 * wave(at));
    return OK;
}
int nvmlDeviceGetTotalEccErrors(device *at, int kind, int counter, unsigned long long *count)
{
    (void)kind, (void)counter;
    WHOLE(at);
    *count = 0;
    return OK;
}
int nvmlDeviceGetRemappedRows(device *at, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed)
{
    WHOLE(at);
    *c = *u = *pending = *failed = 0;
    return OK;
}
/* of all fields it has one: what is to be done with the GPU */
int nvmlDeviceGetFieldValues(device *at, int count, field *fields)
{
    int gpu = -1;
    unsigned action = 0;
    WHOLE(at);
    FILE *file = told("recovery");
    if (file) {
        if (fscanf(file, "%d %u", &gpu, &action) != 2 || gpu != at->gpu) action = 0;
        fclose(file);
    }
    for (int i = 0; i < count; i++) {
        fields[i].code = fields[i].id == 230 ? OK : NOT_SUPPORTED;
        fields[i].kind = 1;
        fields[i].value = action;
    }
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(device *at, unsigned long long *bits)
{
    WHOLE(at);
    *bits = wave(at) > 0.95 ? 4 : wave(at) < 0.02 ? 1 : 0;
    return OK;
}
/* what these GPUs have not; nvitop writes a page to the log for each symbol that a library lacks */
int nvmlDeviceGetFanSpeed(device *at, unsigned *percent) { (void)at, (void)percent; return NOT_SUPPORTED; }
int nvmlDeviceGetEncoderUtilization(device *at, unsigned *u, unsigned *p) { (void)at, (void)u, (void)p; return NOT_SUPPORTED; }
int nvmlDeviceGetDecoderUtilization(device *at, unsigned *u, unsigned *p) { (void)at, (void)u, (void)p; return NOT_SUPPORTED; }
int nvmlDeviceGetComputeRunningProcesses_v3(device *at, unsigned *n, void *into) { (void)at, (void)into; *n = 0; return OK; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *at, unsigned *n, void *into) { (void)at, (void)into; *n = 0; return OK; }

int nvmlEventSetCreate(void **set) { static int one; *set = &one; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceGetSupportedEventTypes(device *at, unsigned long long *types) { WHOLE(at); *types = 8; return OK; }
int nvmlDeviceRegisterEvents(device *at, unsigned long long types, void *set) { WHOLE(at); (void)types, (void)set; return OK; }
int nvmlEventSetWait_v2(void *set, event *found, unsigned milliseconds)
{
    static int reported;
    int gpu;
    unsigned long long code;
    FILE *file = told("xid");
    (void)set;
    if (file) {
        int read = fscanf(file, "%d %llu", &gpu, &code);
        fclose(file);
        if (read == 2 && !reported && gpu >= 0 && gpu < GPUS) {
            reported = 1;
            *found = (event){&gpus[gpu], 8, code, 0xffffffff, 0xffffffff};
            return OK;
        }
    }
    usleep(milliseconds * 1000);
    return TIMEOUT;
}
