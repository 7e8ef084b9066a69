// The few types of the driver's interface that the pretended library needs, laid out as CUDA 13 publishes them.
#ifndef FAKE_DRIVER_API_H
#define FAKE_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

#include "execution.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle;  // CUmemGenericAllocationHandle
typedef struct fake_context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct function *CUfunction;
typedef struct graph *CUgraph;
typedef struct graph *CUgraphExec;
typedef struct array *CUarray;
typedef struct { unsigned char bytes[16]; } CUuuid;

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, DEINITIALIZED = 4, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_CONTEXT = 201, OPERATING_SYSTEM = 304, INVALID_HANDLE = 400, ILLEGAL_STATE = 401,
    NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, NOT_PERMITTED = 800, NOT_SUPPORTED = 801, MPS_SERVER_NOT_READY = 807, MPS_CLIENT_TERMINATED = 810,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_IMPLICIT = 906,
};

struct array_descriptor { size_t width, height; unsigned format, channels; };
struct array3d_descriptor { size_t width, height, depth; unsigned format, channels, flags; };
struct launch_config { unsigned grid[3], block[3], shared; CUstream stream; void *attributes; unsigned attribute_count; };
struct location { int type, id; };
struct allocation_properties { int type, handle_types; struct location location; void *metadata; unsigned char flags[8]; };
struct pool_properties {
    int type, handle_types;
    struct location location;
    void *security;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};
struct alloc_node_parameters {
    struct pool_properties pool;
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr pointer;
};

#define API __attribute__((visibility("default"))) CUresult

// Another name of a function, with an address of its own as in the real library.
#if defined(__aarch64__)
#define FAKE_JUMP "b "
#else
#define FAKE_JUMP "jmp "
#endif
#define FAKE_ALSO_NAMED(other, name)                                                                      \
    __asm__(".pushsection .text\n.globl " other "\n.type " other ", %function\n" other ": " FAKE_JUMP #name \
            "\n.size " other ", .-" other "\n.popsection")

// The variant of an entry point for programs whose default stream is the thread's own; here it is the legacy one all the same.
#define PER_THREAD(name) FAKE_ALSO_NAMED(#name "_ptsz", name)

// At the head of each entry point: refuses before cuInit, strikes as the fault plan says, and waits while a checkpoint
// holds the process.
#define ENTER(call)                                                        \
    do {                                                                   \
        int result_;                                                       \
        if (!process_ready()) return NOT_INITIALIZED;                      \
        if (fake_fault(call, 0, -1, &result_)) return result_;             \
        if ((result_ = process_await_unlocked())) return result_;          \
    } while (0)

bool process_ready(void);
int process_await_unlocked(void);
// A function of the program's own that a stream waits for; the driver may not be called from it.
void process_call_host(void (*function)(void *), void *argument);
// A kernel touched memory that is not there: all further calls fail, as those of the other clients of MPS do.
void process_fault(int device);
// The context of the calling thread: its number among the shared ones, -1 where there is none.
int current_context(void);
// The card that a device ordinal of this process stands for, after CUDA_VISIBLE_DEVICES; -1 where there is none.
int visible_device(CUdevice ordinal);
int visible_count(void);
CUdevice ordinal_of(int device);

// Takes or gives back memory of the context's card; false when it is not there.
bool memory_take(int context, uint64_t bytes);
void memory_give(int context, uint64_t bytes);
CUdeviceptr memory_map(uint64_t bytes);
bool memory_is_there(CUdeviceptr pointer);
CUresult memory_allocate(CUdeviceptr *pointer, uint64_t bytes);

// What the driver takes from the card at a time.
#define GRANULE (2ull << 20)
uint64_t memory_rounded(uint64_t bytes, uint64_t unit);
// Memory that a graph's nodes allocate: addresses alone until it is launched or uploaded, then from what the device keeps
// for graphs until it is trimmed.
bool graph_memory_take(CUgraphExec exec);
// What pools keep beyond their threshold is given back whenever the program waits for the card.
void pools_release(void);

// The context a stream works on, by its handle; -1 where there is none.
int stream_context(CUstream stream);
struct fake_queue stream_queue(CUstream stream);
// The graph that a stream's capture fills; NULL where it does not capture.
CUgraph stream_capture(CUstream stream);
// What a call that may not be made during a capture has to return; it spoils the capture too.
CUresult unsafe_during_capture(void);

struct graph {
    uint64_t kernels_ns;
    size_t nodes;
    uint64_t bytes;  // of allocation nodes
    struct graph_node *allocations;
    int context;
    bool instantiated;
    bool taken;  // what can be launched has its memory
};

struct graph_node { int type; struct alloc_node_parameters about; struct graph_node *next; };
CUresult graph_add_allocation(CUgraph graph, struct alloc_node_parameters *about, void **node);

#endif
