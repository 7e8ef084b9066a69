#ifndef GATE_CONTEXTS_H
#define GATE_CONTEXTS_H

// In a child after fork: none of the parent's contexts.
void contexts_reset(void);

#endif
