"""The same scheduler on a virtual clock: trace readers, the kernel, metrics, comparisons."""
