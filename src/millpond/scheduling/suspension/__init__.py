"""Work that leaves its devices without ending: frozen or swapped to host memory, by request or in time slices."""
