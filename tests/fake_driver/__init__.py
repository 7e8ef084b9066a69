"""A pretended NVIDIA driver: ``libcuda.so.1`` and ``libnvidia-ml.so.1`` for programs that expect the real ones."""
