// Every entry point that the gate stands in front of, and those that it calls itself. Entry points that take the default
// stream of the calling thread for none end in _ptsz.
#ifndef GATE_HOOKS_H
#define GATE_HOOKS_H

#include "gate.h"

#define CUDA_HOOKS(HOOK)                                                                                           \
    HOOK(cuInit) HOOK(cuGetProcAddress) HOOK(cuGetProcAddress_v2)                                                  \
    HOOK(cuMemAlloc) HOOK(cuMemAlloc_v2) HOOK(cuMemAllocPitch) HOOK(cuMemAllocPitch_v2) HOOK(cuMemAllocManaged)    \
    HOOK(cuMemAllocAsync) HOOK(cuMemAllocAsync_ptsz) HOOK(cuMemAllocFromPoolAsync)                                 \
    HOOK(cuMemAllocFromPoolAsync_ptsz) HOOK(cuMemFree_v2) HOOK(cuMemFreeAsync) HOOK(cuMemFreeAsync_ptsz)           \
    HOOK(cuMemCreate) HOOK(cuMemRelease) HOOK(cuMemMap) HOOK(cuMemUnmap) HOOK(cuMemRetainAllocationHandle)         \
    HOOK(cuArrayCreate) HOOK(cuArrayCreate_v2) HOOK(cuArray3DCreate) HOOK(cuArray3DCreate_v2)                      \
    HOOK(cuMipmappedArrayCreate) HOOK(cuArrayDestroy) HOOK(cuMipmappedArrayDestroy)                                \
    HOOK(cuGraphAddMemAllocNode) HOOK(cuGraphAddNode) HOOK(cuGraphAddNode_v2) HOOK(cuGraphDestroy)                 \
    HOOK(cuCtxCreate_v2) HOOK(cuCtxCreate_v3) HOOK(cuCtxCreate_v4) HOOK(cuCtxDestroy_v2)                           \
    HOOK(cuDevicePrimaryCtxRetain) HOOK(cuDevicePrimaryCtxRelease_v2) HOOK(cuDevicePrimaryCtxReset_v2)             \
    HOOK(cuMemGetInfo_v2) HOOK(cuDeviceTotalMem_v2)                                                                \
    HOOK(cuLaunch) HOOK(cuLaunchGrid) HOOK(cuLaunchGridAsync) HOOK(cuLaunchKernel) HOOK(cuLaunchKernel_ptsz)       \
    HOOK(cuLaunchKernelEx) HOOK(cuLaunchKernelEx_ptsz) HOOK(cuLaunchCooperativeKernel)                             \
    HOOK(cuLaunchCooperativeKernel_ptsz) HOOK(cuLaunchCooperativeKernelMultiDevice) HOOK(cuGraphLaunch)            \
    HOOK(cuGraphLaunch_ptsz) HOOK(cuStreamDestroy_v2)

#define NVML_HOOKS(HOOK) HOOK(nvmlDeviceGetMemoryInfo) HOOK(nvmlDeviceGetMemoryInfo_v2)

#define CUDA_CALLS(CALL)                                                                                           \
    CALL(cuCtxGetCurrent) CALL(cuCtxSetCurrent) CALL(cuDevicePrimaryCtxGetState) CALL(cuEventCreate)               \
    CALL(cuEventRecord) CALL(cuEventDestroy_v2) CALL(cuEventQuery) CALL(cuEventSynchronize) CALL(cuEventElapsedTime) \
    CALL(cuStreamIsCapturing) CALL(cuThreadExchangeStreamCaptureMode)

#define NVML_CALLS(CALL) CALL(nvmlDeviceGetUUID)

enum gate_hook {
#define NAME(name) HOOK_##name,
    CUDA_HOOKS(NAME) NVML_HOOKS(NAME) HOOK_COUNT, CUDA_CALLS(NAME) NVML_CALLS(NAME) CALL_COUNT
#undef NAME
};

typedef void gate_function(void);
extern gate_function *const gate_hooks[HOOK_COUNT];
extern void *gate_real[CALL_COUNT];
void *gate_resolve(int hook);

// The driver's function of that name, of the type that `like` has.
#define REAL_AS(name, like) \
    ((__typeof__(like) *)(LIKELY(gate_real[HOOK_##name]) ? gate_real[HOOK_##name] : gate_resolve(HOOK_##name)))
#define REAL(name) REAL_AS(name, name)

#endif
