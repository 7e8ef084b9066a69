// What puts work on the card.
#ifndef GATE_GATED_H
#define GATE_GATED_H

#include "hooks.h"
#include "pacing/pacing.h"
#include "region.h"

// The body of such hooks. Work of a kind is measured by itself; NULL for kernels and what takes as long.
#define GATED(stream_, kind_, call_)                             \
    if (!gate_ready()) return call_;                             \
    struct lane *lane_ = gate_enter(stream_, kind_);             \
    CUresult result_ = call_;                                    \
    gate_leave(lane_);                                           \
    return result_

#define OF_THREAD (stream ? stream : CUDA_STREAM_PER_THREAD)

#endif
