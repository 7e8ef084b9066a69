"""Contents that clients send and jobs leave: blobs, snapshots, datasets, outputs, results, metrics."""
