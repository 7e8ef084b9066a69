// How cards are joined: NVLink, PCIe switches, sockets.
#include <stdio.h>
#include <string.h>

#include "nvml.h"

enum { SAME_SWITCH = 10, SAME_SOCKET = 40, OTHER_SOCKET = 50 };

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };

API nvmlDeviceGetTopologyCommonAncestor(nvmlDevice one, nvmlDevice other, unsigned *level) {
    ON_DEVICE("nvmlDeviceGetTopologyCommonAncestor", one, index);
    int second = nvml_device(other);
    if (second < 0) return NVML_INVALID_ARGUMENT;
    const int64_t *a = nvml_at(index)->knobs, *b = nvml_at(second)->knobs;
    *level = a[KNOB_SOCKET] != b[KNOB_SOCKET] ? OTHER_SOCKET : a[KNOB_SWITCH] != b[KNOB_SWITCH] ? SAME_SOCKET : SAME_SWITCH;
    return NVML_SUCCESS;
}

static bool linked(int device, unsigned link) { return link < FAKE_LINKS && nvml_at(device)->link_kind[link] >= 0; }

API nvmlDeviceGetNvLinkState(nvmlDevice handle, unsigned link, unsigned *active) {
    ON_DEVICE("nvmlDeviceGetNvLinkState", handle, index);
    if (!linked(index, link)) return NVML_NOT_SUPPORTED;
    *active = 1;
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice handle, unsigned link, unsigned *kind) {
    ON_DEVICE("nvmlDeviceGetNvLinkRemoteDeviceType", handle, index);
    if (!linked(index, link)) return NVML_NOT_SUPPORTED;
    *kind = (unsigned)nvml_at(index)->link_kind[link];
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice handle, unsigned link, struct pci *pci) {
    ON_DEVICE("nvmlDeviceGetNvLinkRemotePciInfo_v2", handle, index);
    if (!linked(index, link) || nvml_at(index)->link_peer[link] < 0) return NVML_NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->name, sizeof pci->name, "%s", nvml_at(nvml_at(index)->link_peer[link])->pci);
    return NVML_SUCCESS;
}

API nvmlDeviceGetP2PStatus(nvmlDevice one, nvmlDevice other, unsigned capability, unsigned *status) {
    ON_DEVICE("nvmlDeviceGetP2PStatus", one, index);
    (void)capability;
    if (nvml_device(other) < 0) return NVML_INVALID_ARGUMENT;
    *status = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice handle, unsigned words, unsigned long *set, unsigned scope) {
    ON_DEVICE("nvmlDeviceGetCpuAffinityWithinScope", handle, index);
    (void)scope;
    memset(set, 0, words * sizeof *set);
    set[0] = 0xful << 4 * nvml_at(index)->knobs[KNOB_SOCKET];  // four processors a socket
    return NVML_SUCCESS;
}
