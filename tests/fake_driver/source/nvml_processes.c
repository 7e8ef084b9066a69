// Who is on a card, and how much of it they use. Process ids come out in the caller's namespace.
#include <string.h>

#include "nvml.h"

struct process_info { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct process_sample { unsigned pid; unsigned long long microseconds; unsigned sm, memory, encoder, decoder; };
struct process_use { unsigned long long microseconds; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; };
struct processes_use { unsigned version, count; unsigned long long last_seen; struct process_use *samples; };

#define NO_INSTANCE 0xffffffffu

#define COMPUTE 0u

// Which of the driver's lists it is in: COMPUTE, FAKE_USES_MPS or FAKE_USES_GRAPHICS.
static bool is_on(int process, int device, unsigned kind) {
    return fake->processes[process].used && fake_process_bytes(process, device) &&
           (fake->processes[process].uses & (FAKE_USES_MPS | FAKE_USES_GRAPHICS)) == kind;
}

static nvmlReturn list(int device, unsigned kind, unsigned *room, struct process_info *found) {
    unsigned count = 0, space = *room;
    fake_lock();
    fake_refresh_all();
    for (int process = 0; process < fake->process_top; process++) {
        if (!is_on(process, device, kind)) continue;
        if (found && count < space)
            found[count] = (struct process_info){(unsigned)fake_process_pid(process), fake_process_bytes(process, device), NO_INSTANCE, NO_INSTANCE};
        count++;
    }
    fake_unlock();
    *room = count;
    return count > space || (count && !found) ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice handle, unsigned *count, struct process_info *found) {
    ON_DEVICE("nvmlDeviceGetComputeRunningProcesses_v3", handle, index);
    return list(index, COMPUTE, count, found);
}

API nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice handle, unsigned *count, struct process_info *found) {
    ON_DEVICE("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle, index);
    return list(index, FAKE_USES_MPS, count, found);
}

API nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice handle, unsigned *count, struct process_info *found) {
    ON_DEVICE("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, index);
    return list(index, FAKE_USES_GRAPHICS, count, found);
}

// Under MPS the server owns all work, so its clients have no rows. A sample no newer than what the caller has seen is
// not told again; where nothing is new, nothing is found.
static unsigned uses(int index, unsigned long long last_seen, struct process_use *found, unsigned room) {
    unsigned count = 0;
    nvml_sample(index);
    fake_lock();
    unsigned long long at = nvml_at(index)->sampled_ns / 1000;
    for (int process = 0; process < fake->process_top; process++) {
        if (!is_on(process, index, COMPUTE) || at <= last_seen) continue;
        if (found && count < room)
            found[count] = (struct process_use){.microseconds = at, .pid = (unsigned)fake_process_pid(process),
                                                .sm = fake->processes[process].utilization[index]};
        count++;
    }
    fake_unlock();
    return count;
}

API nvmlDeviceGetProcessUtilization(nvmlDevice handle, struct process_sample *samples, unsigned *count, unsigned long long last_seen) {
    ON_DEVICE("nvmlDeviceGetProcessUtilization", handle, index);
    struct process_use found[FAKE_PROCESSES];
    unsigned number = uses(index, last_seen, found, FAKE_PROCESSES), room = *count;
    *count = number;
    if (!samples || room < number) return number ? NVML_INSUFFICIENT_SIZE : NVML_NOT_FOUND;
    for (unsigned row = 0; row < number; row++)
        samples[row] = (struct process_sample){.pid = found[row].pid, .microseconds = found[row].microseconds, .sm = found[row].sm};
    return NVML_SUCCESS;
}

API nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice handle, struct processes_use *about) {
    ON_DEVICE("nvmlDeviceGetProcessesUtilizationInfo", handle, index);
    unsigned room = about->count;
    about->count = uses(index, about->last_seen, about->samples, room);
    if (!about->count) return NVML_NOT_FOUND;
    return !about->samples || room < about->count ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
