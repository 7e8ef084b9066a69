"""Training curves: what runs report and what their TensorBoard files have, read as it grows, for any runs together."""
