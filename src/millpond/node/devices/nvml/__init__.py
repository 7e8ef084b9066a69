"""NVIDIA's cards by the driver's management library (NVML), one file per subject."""
