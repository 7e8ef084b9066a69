// The three files of a slice, as the agent and the gate see them. Mirrored in node/sharing/gate/layout.py, and a test
// compares the two. All words are little-endian and aligned; times are CLOCK_MONOTONIC in nanoseconds, which all
// processes of a machine share: that of the first time namespace.
#ifndef GATE_LAYOUT_H
#define GATE_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define GATE_MAGIC 0x31455441474c504dull  // "MPLGATE1"
#define GATE_VERSION 1
#define GATE_SLOTS 64
#define GATE_MEMBERS 64
#define GATE_CLASSES 3

enum gate_class { GATE_ONLINE, GATE_NORMAL, GATE_BACKFILL };

// Written by the agent alone; the task maps it read-only.
struct gate_control {
    uint64_t magic;
    uint32_t version;
    uint32_t member;                       // its number in the card file
    uint64_t reserved0;
    _Atomic uint64_t cap_bytes;            // device memory of the slice; 0 for no cap
    _Atomic uint64_t context_bytes;        // what a context counts for
    _Atomic uint32_t guarantee_milli;      // share of device time when others want the card too
    _Atomic uint32_t limit_milli;          // the most when they do not; 1000 for no limit
    _Atomic uint32_t share_class;          // gate_class
    _Atomic uint32_t paused;
    _Atomic uint32_t in_flight_us;         // work in flight while a higher class is about; 0 for any amount
    _Atomic uint32_t floor_milli;          // share of device time that even an active higher class leaves
    _Atomic uint32_t refuse_managed;       // managed memory keeps a process from being checkpointed
    _Atomic uint32_t cards;                // how often the slice has moved to another card; then member is another too
    char uuid[48];                         // of the card, as NVML spells it
    _Atomic uint64_t uncounted_bytes;      // on the card for the slice, as the driver says, beyond what slots count
};

// One process of the task. It holds two locks while it lives, which is how others know: a POSIX lock on byte `index` of the
// file, by which the kernel names it, and one of its mapping (F_OFD_SETLK) on byte GATE_LIVE_LOCK + `index`.
struct gate_slot {
    _Atomic uint64_t pid;             // in the process's own namespace
    _Atomic uint64_t used_bytes;
    uint64_t reserved0;
    _Atomic uint64_t launches;
    _Atomic uint64_t busy_ns;         // measured device time
    _Atomic uint64_t last_launch_ns;
    _Atomic uint64_t denials;         // allocations refused
    _Atomic uint64_t in_flight;       // launches not known to be complete
    _Atomic uint64_t outstanding_ns;  // the device time that they are expected to take
    _Atomic uint64_t unmeasured;      // launches whose time was estimated
    _Atomic uint64_t turn_timeouts;   // turns taken because whoever held one did not pass it on
    _Atomic uint64_t waited_ns;       // for turns, limits, higher classes, while paused
    _Atomic uint64_t claimed_bytes;   // while it finds out whether the cap allows them
    _Atomic uint64_t due_ns;          // by when what is in flight is surely done, if the process lives to see it
    uint64_t reserved[2];
};

// Written by the task's processes.
struct gate_usage {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t clocked_milli;    // the limit that limit_clock_ns goes by; 0 for none yet
    _Atomic uint64_t busy_clock_ns;    // busy time of all processes together is counted up to here
    _Atomic uint64_t limit_clock_ns;   // when the limit allows the next launch
    _Atomic uint64_t floor_clock_ns;   // when the floor does
    _Atomic uint64_t fill_clock_ns;    // when the room that others leave does
    // The window over which the slice's demand is taken, what was launched in it, and up to when.
    _Atomic uint64_t demand_from_ns, demand_busy_ns, demand_launched_ns;
    // What processes counted that have given their slot back.
    _Atomic uint64_t past_launches, past_busy_ns, past_denials, past_unmeasured, past_turn_timeouts, past_waited_ns;
    _Atomic uint64_t slot_top;         // above it no slot has ever been taken
    struct gate_slot slot[GATE_SLOTS];
};

// Byte of the usage file that is locked while memory is charged.
#define GATE_CHARGE_LOCK 4096
#define GATE_LIVE_LOCK 65536

// What the gates of one card need of each other. Any task may write anything here: a reader trusts no word of it.
struct gate_member {
    _Atomic uint32_t present;         // gate_class + 1; 0 for nobody. Written by the agent
    _Atomic uint32_t guarantee_milli;
    _Atomic uint64_t virtual_ns;      // device time divided by the guarantee
    _Atomic uint64_t active_until_ns; // it has, or soon will have, work on the card
    _Atomic uint64_t waiting_ns;      // when it last said that it waits for a turn; 0 when it does not
    _Atomic uint64_t active_ns;       // when it last launched or had work on the card; lower classes yield to this
    _Atomic uint64_t returns_ns;      // its limit keeps it off the card up to then, in the future; 0 when it does not
    _Atomic uint64_t demand_milli;    // of the card's time that it would use by itself
    _Atomic uint64_t demand_until_ns; // up to when that is known
};

struct gate_turn {
    _Atomic uint32_t holder;          // the member's number + 1; 0 for nobody. Waited for with a futex
    uint32_t reserved0;
    _Atomic uint64_t until_ns;
    uint64_t reserved[6];
};

struct gate_card {
    uint64_t magic;
    uint32_t version;
    uint32_t members;
    uint64_t reserved[6];
    struct gate_turn turn[GATE_CLASSES];
    struct gate_member member[GATE_MEMBERS];
};

#endif
