// Memory that the driver keeps for later: of pools, and of graphs. What is charged for is what it has reserved, whether in
// use or not.
#ifndef GATE_RESERVES_H
#define GATE_RESERVES_H

#include "region.h"

struct reserve;
struct charge;

// Of a pool; NULL with `*host` for memory of the host, and with neither where there is no memory to note it.
struct reserve *reserve_of_pool(void *pool, bool *host);
// Made with memory of the host.
void reserve_note_host(void *pool);
typedef CUresult pool_function(void *);
CUresult reserve_end_pool(void *pool, pool_function *destroy);
// Before an allocation from a reserve that may make it grow: false when the cap does not allow that.
bool reserve_claim(struct reserve *reserve, uint64_t bytes, uint64_t *claimed);
// After it: charges what the reserve really has. False when it took more than was claimed, and than the cap allows.
bool reserve_settle(struct reserve *reserve, uint64_t claimed);
// What a pool's allocation is; and of any memory that is freed, what it was charged, which is nothing where it is a pool's.
void reserve_note(struct reserve *reserve, CUdeviceptr pointer);
void reserve_refund(const struct charge *charge);
// All of them, when the driver may have given memory back.
void reserves_settle(void);
// Gives back what is idle; whether there was any.
bool reserves_trim(void);

// Of the graphs of this process; NULL while none has nodes that allocate memory.
struct reserve *reserve_of_graphs(void);
void reserve_begin_graphs(void);

// In a child after fork.
void reserves_reset(void);

#endif
