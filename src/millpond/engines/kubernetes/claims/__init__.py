"""Cards of NVIDIA's DRA driver: read from its ResourceSlices, asked for by claims, allocated by Millpond."""
