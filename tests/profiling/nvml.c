/* Stands in for NVIDIA's management library: GPU_COUNT GPUs, the state of each in the file GPU_STATE-<index> as
   "busy% used_mib processes pid", each process with that number (0 without) and all of the memory; without the file an
   idle GPU. One with a file GPU_STATE-lost-<index> has fallen off the bus,
   one with GPU_STATE-mig-<index> is divided into as many instances as the file says; while there is GPU_STATE-hang the
   driver hangs. Signatures are those of the public nvml.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { PARTS = 100 };
static Device devices[64 * PARTS];

static int count(void) { return atoi(getenv("GPU_COUNT")); }

static int state(Device *device, int *busy, int *used_mib, int *processes) {
    char path[4096];
    int pid = 0;
    *busy = *used_mib = *processes = 0;
    snprintf(path, sizeof path, "%s-%d", getenv("GPU_STATE"), device->index);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d %d %d %d", busy, used_mib, processes, &pid) < 3) *busy = 0;
        fclose(file);
    }
    return pid;
}

static int number_in(const char *what, int index, int otherwise) {
    char path[4096];
    int found = otherwise;
    snprintf(path, sizeof path, "%s-%s-%d", getenv("GPU_STATE"), what, index);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &found) < 1) found = 0;
        fclose(file);
    }
    return found;
}

static void hang(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s-hang", getenv("GPU_STATE"));
    while (access(path, F_OK) == 0) usleep(10000);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; hang(); return count() ? SUCCESS : NOT_FOUND; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in"; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count(); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **found) {
    if ((int)index >= count()) return NOT_FOUND;
    if (number_in("lost", index, -1) >= 0) return GPU_IS_LOST;
    devices[index].index = index;
    *found = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *id, Device **found) {
    return strncmp(id, "GPU-", 4) ? NOT_FOUND : nvmlDeviceGetHandleByIndex_v2(atoi(id + 4), found);
}

int nvmlDeviceGetUUID(Device *device, char *text, unsigned size) {
    int part = device->index / PARTS, gpu = device->index % PARTS;
    if (part) snprintf(text, size, "MIG-%d-%d", gpu, part - 1);
    else snprintf(text, size, "GPU-%d", gpu);
    return SUCCESS;
}

int nvmlDeviceGetName(Device *device, char *text, unsigned size) {
    snprintf(text, size, "Model T%s", device->index >= PARTS ? " MIG 1g.10gb" : "");
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    *current = *pending = number_in("mig", device->index, -1) >= 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *found) { (void)device; *found = 7; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **found) {
    if ((int)index >= number_in("mig", device->index, 0)) return NOT_FOUND;
    *found = &devices[device->index + PARTS * (index + 1)];
    (*found)->index = device->index + PARTS * (index + 1);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *found) {
    int busy, used_mib, processes;
    state(device, &busy, &used_mib, &processes);
    found->total = 16ull << 30;
    found->used = (unsigned long long)used_mib << 20;
    found->free = found->total - found->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *found) {
    int busy, used_mib, processes;
    state(device, &busy, &used_mib, &processes);
    if (busy < 0) return NOT_SUPPORTED;
    found->gpu = busy;
    found->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *found, void *infos) {
    int busy, used_mib, processes, pid = state(device, &busy, &used_mib, &processes);
    int enough = (int)*found >= processes;
    *found = processes;
    if (!enough) return INSUFFICIENT_SIZE;
    struct { unsigned pid; unsigned long long used; unsigned instances[2]; } *each = infos;
    for (int i = 0; i < processes; i++) {
        memset(&each[i], 0, sizeof each[i]);
        each[i].pid = pid;
        each[i].used = (unsigned long long)used_mib << 20;
    }
    return SUCCESS;
}
