// What all processes that use the pretended cards share: one file, mapped by each of them.
//
// Nothing here runs by itself. Devices, transitions and dead processes are brought up to date by whoever looks next
// (fake_refresh), so a card with a queue of kernels costs no processor time.
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_MAGIC 0x4d50464b44525631ull
#define FAKE_DEVICES 16
#define FAKE_PROCESSES 64
#define FAKE_CONTEXTS 96
#define FAKE_QUEUE 1024  // submitted and unfinished operations of one context; a launch into a full queue waits
#define FAKE_EVENTS 4096
#define FAKE_FAULTS 32
#define FAKE_XIDS 64
#define FAKE_LINKS 18
#define FAKE_INSTANCES 7
#define FAKE_KNOBS 64
#define FAKE_SLEEPERS 128

enum fake_process_state { FAKE_RUNNING, FAKE_LOCKED, FAKE_CHECKPOINTED, FAKE_FAILED, FAKE_CHECKPOINTING, FAKE_RESTORING };

// What keeps a process from being checkpointed. One of graphics has its memory by another library than CUDA's.
enum fake_use { FAKE_USES_MANAGED = 1, FAKE_USES_MPS = 2, FAKE_USES_MIG = 4, FAKE_USES_IPC = 8, FAKE_USES_GRAPHICS = 16 };

#define FAKE_STREAMS 64  // of a context that have a queue of their own; more than these share them
#define FAKE_LEGACY 0    // the default stream: it and blocking ones wait for each other

enum fake_word_use { FAKE_NO_WORD, FAKE_AWAITS_WORD, FAKE_WRITES_WORD };

struct fake_operation {
    uint64_t remaining_ns;
    uint64_t awaited;  // sequence of the operation of a context that has to be done before; 0 for none
    int32_t awaited_context;
    int32_t event;     // index into the process's events; -1 for a kernel
    uint8_t stream;
    bool blocking, done;
    enum fake_word_use word_use;
    uint64_t word;     // address
    uint32_t value;
};

#define FAKE_WORDS 16

// A word of memory on which streams of a context wait for each other.
struct fake_word { uint64_t address; uint32_t value; };

struct fake_event {
    uint64_t sequence;  // of its operation in the context's queue
    uint64_t done_ns;   // device time; 0 while pending
    int32_t context;
    int32_t used;
};

struct fake_context {
    bool used;
    bool primary;
    uint64_t number;          // among all that were ever made
    int32_t process, device;
    int32_t attached;         // how often, beyond having been made
    uint64_t overhead_bytes;  // what a context itself costs
    uint64_t bytes;           // allocations, without the overhead
    uint64_t limits[3];       // of cuCtxSetLimit; 0 for as it was made
    uint64_t submitted, completed;  // operations, up to the first that is not done; the queue holds what lies between
    uint64_t running;               // the operation that has begun; 0 for none
    uint32_t busy_streams;          // that have operations which are not done
    uint32_t waiting[FAKE_STREAMS]; // how many each
    uint64_t last[FAKE_STREAMS];    // and its last
    uint64_t blocking;              // streams that the legacy one waits for; bits
    int32_t stream;                 // whose turn it was
    uint64_t pending_ns;
    struct fake_word words[FAKE_WORDS];
    struct fake_operation queue[FAKE_QUEUE];
};

struct fake_process {
    bool used;
    int32_t pid;  // in the namespace of the process itself; see fake_process_pid
    enum fake_process_state state;
    enum fake_process_state next_state;  // where a checkpoint or restore under way leads
    uint64_t transition_ns;              // when it arrives there; 0 when none is under way
    uint64_t host_bytes;                 // host memory that holds its device memory while it is checkpointed
    uint32_t uses;                       // fake_use
    bool mps_failed;
    uint64_t busy_ns[FAKE_DEVICES];
    uint64_t sampled_busy_ns[FAKE_DEVICES];  // at the device's last sample
    uint32_t utilization[FAKE_DEVICES];      // percent, over the device's last sample
    uint64_t launches;
    struct fake_event events[FAKE_EVENTS];
};

struct fake_instance {
    bool used;
    int32_t id, profile, start, size;
    bool has_compute;
};

struct fake_device {
    char name[64];
    char uuid[48];
    char pci[32];
    uint64_t memory_bytes;
    uint64_t advanced_ns;  // what has been executed up to here
    int32_t current;       // the context whose time slice it is; -1 for none
    int32_t loaded;        // the context that it last executed
    uint64_t switching_ns; // of the switch under way
    uint64_t slice_left_ns;
    uint64_t busy_ns;
    uint64_t sampled_ns, sampled_busy_ns;  // the last sample of utilisation, and what it found
    uint32_t utilization;
    uint64_t energy_ns, energy_busy_ns;    // up to where energy is counted
    double energy_mj;
    int32_t xids[FAKE_XIDS];
    int32_t xid_count;  // ever injected; the ring holds the last ones
    int32_t link_kind[FAKE_LINKS];  // -1 no link; otherwise NVML's remote device type
    int32_t link_peer[FAKE_LINKS];
    int32_t mig_mode, mig_pending;
    struct fake_instance instances[FAKE_INSTANCES];
    int64_t knobs[FAKE_KNOBS];  // by the names in knobs.h
};

struct fake_fault {
    char call[56];       // name of the entry point as it is exported
    int32_t pid;         // only for calls of, or about, this process; 0 for any
    int32_t device;      // only for this device; -1 for any
    int32_t action;      // fake_action
    int32_t result;      // returned by FAKE_RETURN
    uint32_t skip;       // calls let through first
    uint32_t times;      // how often it strikes; 0 for ever
    uint32_t one_in;     // strikes one call in so many, drawn from the seed; 0 and 1 for each
};

enum fake_action { FAKE_RETURN, FAKE_HANG, FAKE_KILL_CALLER, FAKE_KILL_TARGET, FAKE_FAIL_TARGET };

// A thread that takes part in the tests' own time; clock.c.
struct fake_sleeper {
    bool used, asleep;
    int32_t process;
    bool wakes;         // before its time, when anybody wakes anybody
    uint64_t until_ns;
    sem_t woken;
};

struct fake_clock {
    bool on;
    uint64_t now_ns;
    int32_t awake;
    struct fake_sleeper sleepers[FAKE_SLEEPERS];
    int32_t readers[FAKE_SLEEPERS];  // processes that take no part until they have their next order
};

struct fake_state {
    uint64_t magic;
    uint64_t size;
    pthread_mutex_t mutex;
    struct fake_clock clock;
    int32_t halts_again;     // the thread that held the mutex while it was stopped, and is let run until it gives it back
    int32_t device_count;
    int32_t driver_version;  // as cuDriverGetVersion tells it
    char driver_name[32];    // as NVML tells it
    uint64_t time_slice_ns;
    uint64_t switch_ns;      // of the device, from one context to another
    uint64_t launch_ns;      // of the thread that launches
    uint64_t contexts_made;
    uint64_t context_bytes;
    uint64_t host_bytes, host_used;
    uint64_t checkpoint_fixed_ns, bytes_per_second;
    uint64_t seed;
    uint64_t swept_ns;
    uint64_t module_bytes;       // what a module takes when it is loaded
    uint64_t copy_bytes_per_ms;  // within a card's memory; 0 for in no time
    uint64_t pool_piece_bytes;  // by which pools grow; at least a granule
    bool own_addresses;      // cuGetProcAddress hands out others than the library exports
    int32_t process_top, context_top;  // above these no process and no context has ever been
    uint32_t fault_count;
    struct fake_fault faults[FAKE_FAULTS];
    struct fake_device devices[FAKE_DEVICES];
    struct fake_context contexts[FAKE_CONTEXTS];
    struct fake_process processes[FAKE_PROCESSES];
};

extern struct fake_state *fake;  // mapped by fake_attach

// Maps the file named by MILLPOND_FAKE_DRIVER, once for each process; false where there is none.
bool fake_attach(void);
bool fake_attach_file(const char *path);
void fake_detach_file(void);

void fake_lock(void);
void fake_unlock(void);
uint64_t fake_now(void);
void fake_sleep(uint64_t nanoseconds);
void fake_spend(uint64_t nanoseconds);  // computing

// Brings everything up to now; with the lock held.
void fake_refresh(void);
// The same, and what processes that are dead by now held is free; fake_refresh notices a death a little later.
void fake_refresh_all(void);

// The caller's process slot: taken at its first use. NULL when the table is full.
struct fake_process *fake_self(void);
// Its number as the caller sees it; 0 when it is gone, or of a namespace that the caller does not see into.
pid_t fake_process_pid(int index);
int fake_process_by_pid(pid_t pid);

uint64_t fake_device_used(int device);
uint64_t fake_process_bytes(int process, int device);

// Strikes as the plan says. True when the call has to return *result.
bool fake_fault(const char *call, pid_t about, int device, int *result);

#endif
