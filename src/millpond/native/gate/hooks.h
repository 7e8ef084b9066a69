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
    HOOK(cuMemPoolCreate) HOOK(cuMemPoolDestroy) HOOK(cuMemPoolSetAttribute) HOOK(cuMemPoolTrimTo)                 \
    HOOK(cuMemGetDefaultMemPool) HOOK(cuMemGetMemPool)                                                             \
    HOOK(cuGraphAddMemAllocNode) HOOK(cuGraphAddNode) HOOK(cuGraphAddNode_v2) HOOK(cuGraphAddNode_v3) HOOK(cuGraphInstantiate)             \
    HOOK(cuGraphInstantiate_v2) HOOK(cuGraphInstantiateWithFlags) HOOK(cuGraphInstantiateWithParams)               \
    HOOK(cuGraphInstantiateWithParams_ptsz) HOOK(cuGraphUpload) HOOK(cuGraphUpload_ptsz) HOOK(cuGraphExecDestroy)  \
    HOOK(cuDeviceGraphMemTrim) HOOK(cuStreamSynchronize) HOOK(cuStreamSynchronize_ptsz) HOOK(cuCtxSynchronize)     \
    HOOK(cuCtxSynchronize_v2) HOOK(cuEventSynchronize)                                                             \
    HOOK(cuMemExportToShareableHandle) HOOK(cuMemMapArrayAsync) HOOK(cuMemMapArrayAsync_ptsz)                      \
    HOOK(cuMulticastBindMem) HOOK(cuMulticastBindMem_v2) HOOK(cuMulticastBindAddr) HOOK(cuMulticastBindAddr_v2)    \
    HOOK(cuMulticastUnbind) HOOK(cuCtxSetLimit) HOOK(cuGreenCtxCreate) HOOK(cuGreenCtxDestroy)                     \
    HOOK(cuCtxCreate) HOOK(cuGLCtxCreate) HOOK(cuGLCtxCreate_v2) HOOK(cuVDPAUCtxCreate) HOOK(cuVDPAUCtxCreate_v2)  \
    HOOK(cuCtxDestroy) HOOK(cuCtxDetach)                                                                           \
    HOOK(cuMemcpyDtoD_v2) HOOK(cuMemcpyDtoD_v2_ptds) HOOK(cuMemcpy) HOOK(cuMemcpy_ptds) HOOK(cuMemcpyPeer)         \
    HOOK(cuMemcpyPeer_ptds) HOOK(cuMemcpy2D_v2) HOOK(cuMemcpy2D_v2_ptds) HOOK(cuMemcpy2DUnaligned_v2)              \
    HOOK(cuMemcpy2DUnaligned_v2_ptds) HOOK(cuMemcpy3D_v2) HOOK(cuMemcpy3D_v2_ptds) HOOK(cuMemsetD8_v2)             \
    HOOK(cuMemsetD8_v2_ptds) HOOK(cuMemsetD16_v2) HOOK(cuMemsetD16_v2_ptds) HOOK(cuMemsetD32_v2)                   \
    HOOK(cuMemsetD32_v2_ptds) HOOK(cuMemsetD2D8_v2) HOOK(cuMemsetD2D8_v2_ptds) HOOK(cuMemsetD2D16_v2)              \
    HOOK(cuMemsetD2D16_v2_ptds) HOOK(cuMemsetD2D32_v2) HOOK(cuMemsetD2D32_v2_ptds) HOOK(cuMemcpyDtoDAsync_v2)      \
    HOOK(cuMemcpyDtoDAsync_v2_ptsz) HOOK(cuMemcpyAsync) HOOK(cuMemcpyAsync_ptsz)                                   \
    HOOK(cuMemcpyWithAttributesAsync) HOOK(cuMemcpyWithAttributesAsync_ptsz) HOOK(cuMemcpyPeerAsync)               \
    HOOK(cuMemcpyPeerAsync_ptsz) HOOK(cuMemcpy2DAsync_v2) HOOK(cuMemcpy2DAsync_v2_ptsz) HOOK(cuMemcpy3DAsync_v2)   \
    HOOK(cuMemcpy3DAsync_v2_ptsz) HOOK(cuMemcpyBatchAsync) HOOK(cuMemcpyBatchAsync_ptsz)                           \
    HOOK(cuMemcpyBatchAsync_v2) HOOK(cuMemcpyBatchAsync_v2_ptsz) HOOK(cuMemsetD8Async)                             \
    HOOK(cuMemsetD8Async_ptsz) HOOK(cuMemsetD16Async) HOOK(cuMemsetD16Async_ptsz) HOOK(cuMemsetD32Async)           \
    HOOK(cuMemsetD32Async_ptsz) HOOK(cuMemsetD2D8Async) HOOK(cuMemsetD2D8Async_ptsz) HOOK(cuMemsetD2D16Async)      \
    HOOK(cuMemsetD2D16Async_ptsz) HOOK(cuMemsetD2D32Async) HOOK(cuMemsetD2D32Async_ptsz)                           \
    HOOK(cuCtxCreate_v2) HOOK(cuCtxCreate_v3) HOOK(cuCtxCreate_v4) HOOK(cuCtxDestroy_v2)                           \
    HOOK(cuDevicePrimaryCtxRetain) HOOK(cuDevicePrimaryCtxRelease) HOOK(cuDevicePrimaryCtxRelease_v2)              \
    HOOK(cuDevicePrimaryCtxReset) HOOK(cuDevicePrimaryCtxReset_v2)                                                 \
    HOOK(cuMemGetInfo_v2) HOOK(cuDeviceTotalMem_v2)                                                                \
    HOOK(cuLaunch) HOOK(cuLaunchGrid) HOOK(cuLaunchGridAsync) HOOK(cuLaunchKernel) HOOK(cuLaunchKernel_ptsz)       \
    HOOK(cuLaunchKernelEx) HOOK(cuLaunchKernelEx_ptsz) HOOK(cuLaunchCooperativeKernel)                             \
    HOOK(cuLaunchCooperativeKernel_ptsz) HOOK(cuLaunchCooperativeKernelMultiDevice) HOOK(cuGraphLaunch)            \
    HOOK(cuGraphLaunch_ptsz) HOOK(cuStreamDestroy) HOOK(cuStreamDestroy_v2)

#define NVML_HOOKS(HOOK) HOOK(nvmlDeviceGetMemoryInfo) HOOK(nvmlDeviceGetMemoryInfo_v2)

#define CUDA_CALLS(CALL)                                                                                           \
    CALL(cuCtxGetCurrent) CALL(cuCtxSetCurrent) CALL(cuDevicePrimaryCtxGetState) CALL(cuEventCreate)               \
    CALL(cuEventRecord) CALL(cuEventDestroy_v2) CALL(cuEventQuery) CALL(cuEventElapsedTime)                        \
    CALL(cuStreamIsCapturing) CALL(cuThreadExchangeStreamCaptureMode) CALL(cuCtxGetDevice) CALL(cuDeviceGetMemPool) \
    CALL(cuMemPoolGetAttribute) CALL(cuDeviceGetGraphMemAttribute) CALL(cuGraphGetNodes) CALL(cuGraphNodeGetType)  \
    CALL(cuGraphMemAllocNodeGetParams) CALL(cuGraphMemFreeNodeGetParams) CALL(cuGraphChildGraphNodeGetGraph) \
    CALL(cuCtxGetLimit) CALL(cuDeviceGetAttribute) CALL(cuCtxFromGreenCtx) CALL(cuPointerGetAttribute) \
    CALL(cuStreamGetCtx) CALL(cuCtxPushCurrent_v2) CALL(cuCtxPopCurrent_v2)

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

static inline CUcontext current_context(void) {
    CUcontext context = NULL;
    return REAL_AS(cuCtxGetCurrent, CUresult(CUcontext *))(&context) ? NULL : context;
}

// What this thread may do while one of its streams captures; returns what it might before.
static inline int exchange_capture_mode(int mode) {
    REAL_AS(cuThreadExchangeStreamCaptureMode, CUresult(int *))(&mode);
    return mode;
}

#endif
