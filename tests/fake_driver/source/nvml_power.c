// Power, energy and clocks. A card draws P = bare + context + (work - bare - context) x busy share, at most its limit.
#include <unistd.h>

#include "nvml.h"

static bool has_context(int index) {
    for (int slot = 0; slot < fake->context_top; slot++)
        if (fake->contexts[slot].used && fake->contexts[slot].device == index) return true;
    return false;
}

static double draw_mw(int index, double busy) {
    const int64_t *knobs = nvml_at(index)->knobs;
    if (knobs[KNOB_POWER_MW] >= 0) return (double)knobs[KNOB_POWER_MW];
    double still = (double)knobs[KNOB_POWER_BARE_MW] + (has_context(index) ? (double)knobs[KNOB_POWER_CONTEXT_MW] : 0);
    double wanted = still + ((double)knobs[KNOB_POWER_WORK_MW] - still) * busy;
    return wanted < (double)knobs[KNOB_POWER_LIMIT_MW] ? wanted : (double)knobs[KNOB_POWER_LIMIT_MW];
}

API nvmlDeviceGetPowerUsage(nvmlDevice handle, unsigned *milliwatts) {
    ON_DEVICE("nvmlDeviceGetPowerUsage", handle, index);
    nvml_sample(index);
    *milliwatts = (unsigned)draw_mw(index, nvml_at(index)->utilization / 100.0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEnergyConsumption(nvmlDevice handle, unsigned long long *millijoules) {
    ON_DEVICE("nvmlDeviceGetTotalEnergyConsumption", handle, index);
    struct fake_device *device = nvml_at(index);
    fake_lock();
    fake_refresh();
    double span = (double)(device->advanced_ns - device->energy_ns), busy = (double)(device->busy_ns - device->energy_busy_ns);
    if (span > 0) device->energy_mj += draw_mw(index, busy / span) * span / 1e9;
    device->energy_ns = device->advanced_ns;
    device->energy_busy_ns = device->busy_ns;
    *millijoules = (unsigned long long)device->energy_mj;
    fake_unlock();
    return NVML_SUCCESS;
}

#define TELLS(call, knob)                                \
    API call(nvmlDevice handle, unsigned *value) {       \
        ON_DEVICE(#call, handle, index);                 \
        *value = (unsigned)nvml_at(index)->knobs[knob];  \
        return NVML_SUCCESS;                             \
    }

TELLS(nvmlDeviceGetPowerManagementLimit, KNOB_POWER_LIMIT_MW)
TELLS(nvmlDeviceGetEnforcedPowerLimit, KNOB_POWER_LIMIT_MW)
TELLS(nvmlDeviceGetPowerManagementDefaultLimit, KNOB_POWER_DEFAULT_MW)

API nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice handle, unsigned *minimum, unsigned *maximum) {
    ON_DEVICE("nvmlDeviceGetPowerManagementLimitConstraints", handle, index);
    *minimum = (unsigned)nvml_at(index)->knobs[KNOB_POWER_MINIMUM_MW];
    *maximum = (unsigned)nvml_at(index)->knobs[KNOB_POWER_MAXIMUM_MW];
    return NVML_SUCCESS;
}

API nvmlDeviceSetPowerManagementLimit(nvmlDevice handle, unsigned milliwatts) {
    ON_DEVICE("nvmlDeviceSetPowerManagementLimit", handle, index);
    int64_t *knobs = nvml_at(index)->knobs;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    if (milliwatts < knobs[KNOB_POWER_MINIMUM_MW] || milliwatts > knobs[KNOB_POWER_MAXIMUM_MW]) return NVML_INVALID_ARGUMENT;
    knobs[KNOB_POWER_LIMIT_MW] = milliwatts;
    return NVML_SUCCESS;
}

API nvmlDeviceSetGpuLockedClocks(nvmlDevice handle, unsigned minimum, unsigned maximum) {
    ON_DEVICE("nvmlDeviceSetGpuLockedClocks", handle, index);
    int64_t *knobs = nvml_at(index)->knobs;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    if (minimum > maximum || maximum > knobs[KNOB_SM_CLOCK_MAXIMUM_MHZ]) return NVML_INVALID_ARGUMENT;
    knobs[KNOB_LOCKED_MINIMUM_MHZ] = minimum;
    knobs[KNOB_LOCKED_MAXIMUM_MHZ] = knobs[KNOB_SM_CLOCK_MHZ] = maximum;
    return NVML_SUCCESS;
}

API nvmlDeviceResetGpuLockedClocks(nvmlDevice handle) {
    ON_DEVICE("nvmlDeviceResetGpuLockedClocks", handle, index);
    int64_t *knobs = nvml_at(index)->knobs;
    if (geteuid() != 0) return NVML_NO_PERMISSION;
    knobs[KNOB_LOCKED_MINIMUM_MHZ] = knobs[KNOB_LOCKED_MAXIMUM_MHZ] = 0;
    knobs[KNOB_SM_CLOCK_MHZ] = knobs[KNOB_SM_CLOCK_MAXIMUM_MHZ];
    return NVML_SUCCESS;
}

#define MEMORY_CLOCK 2

API nvmlDeviceGetClockInfo(nvmlDevice handle, unsigned clock, unsigned *megahertz) {
    ON_DEVICE("nvmlDeviceGetClockInfo", handle, index);
    *megahertz = (unsigned)nvml_at(index)->knobs[clock == MEMORY_CLOCK ? KNOB_MEMORY_CLOCK_MHZ : KNOB_SM_CLOCK_MHZ];
    return NVML_SUCCESS;
}

API nvmlDeviceGetMaxClockInfo(nvmlDevice handle, unsigned clock, unsigned *megahertz) {
    ON_DEVICE("nvmlDeviceGetMaxClockInfo", handle, index);
    *megahertz = (unsigned)nvml_at(index)->knobs[clock == MEMORY_CLOCK ? KNOB_MEMORY_CLOCK_MHZ : KNOB_SM_CLOCK_MAXIMUM_MHZ];
    return NVML_SUCCESS;
}
