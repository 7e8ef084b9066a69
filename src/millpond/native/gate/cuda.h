// The driver's types, as far as the gate needs them, laid out as CUDA 13 publishes them. Handles are opaque.
#ifndef GATE_CUDA_H
#define GATE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;  // CUmemGenericAllocationHandle
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUarray_st *CUarray;
typedef void *nvmlDevice;

enum {
    CUDA_SUCCESS = 0,
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_NOT_READY = 600,
    CUDA_NOT_FOUND = 500,
    CUDA_NOT_SUPPORTED = 801,
    CUDA_SYSTEM_NOT_READY = 802,
    NVML_UNINITIALIZED = 1,
};

#define CUDA_STREAM_PER_THREAD ((CUstream)2)
#define CUDA_CAPTURE_RELAXED 2
#define CUDA_GRAPH_NODE 4
#define CUDA_MEM_ALLOC_NODE 10
#define CUDA_MEM_FREE_NODE 11
#define CUDA_POOL_RESERVED 5
#define CUDA_POOL_USED 7
#define CUDA_POOL_LOCATION_TYPE 12
#define CUDA_MANAGED_ALLOCATION 2
#define CUDA_OPERATION_MAP 1
#define CUDA_GRAPHS_USED 0
#define CUDA_GRAPHS_RESERVED 2
#define CUDA_ARRAY_LAYERED 0x01
#define CUDA_ARRAY_CUBEMAP 0x04
#define CUDA_ARRAY_SPARSE 0x40
#define CUDA_ARRAY_DEFERRED 0x80

struct array_descriptor { size_t width, height; unsigned format, channels; };
struct array3d_descriptor { size_t width, height, depth; unsigned format, channels, flags; };
struct launch_config { unsigned grid[3], block[3], shared; CUstream stream; void *attributes; unsigned attribute_count; };
struct launch_parameters { CUfunction function; unsigned shape[7]; CUstream stream; void **parameters; };
struct pool_properties { int type, handle_types, location_type, location; void *security; size_t maximum; unsigned char rest[56]; };
struct alloc_node { struct pool_properties pool; const void *access; size_t access_count, bytes; CUdeviceptr pointer; };
struct graph_node { int type, reserved[3]; struct alloc_node allocation; };
struct copy_end { int type; const void *host; CUdeviceptr device; CUarray array; };
struct copy2d {
    size_t from_x, from_y;
    struct copy_end from;
    size_t from_pitch, to_x, to_y;
    struct copy_end to;
    size_t to_pitch, width, height;
};
struct copy3d {
    size_t from_place[4];
    struct copy_end from;
    void *reserved0;
    size_t from_pitch, from_height, to_place[4];
    struct copy_end to;
    void *reserved1;
    size_t to_pitch, to_height, width, height, depth;
};
struct nvml_memory { unsigned long long total, available, used; };
struct nvml_memory_v2 { unsigned version; unsigned long long total, reserved, available, used; };

struct array_map {
    int resource_type;
    void *resource;
    int part_type;
    uint64_t part[4];
    int operation, handle_type;
    CUhandle handle;
    uint64_t offset;
    unsigned devices, flags, reserved[2];
};
struct location { int type, id; };
struct allocation_properties { int type, handle_types; struct location location; };  // and more

// The types between those of devices and those that newer versions of CUDA have added for parts of devices.
static inline int cuda_location_is_host(int type) { return type >= 2 && type <= 4; }

#endif
