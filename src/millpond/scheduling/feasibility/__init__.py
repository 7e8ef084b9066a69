"""What requests ask for, as classes and arrays, and whether the cluster could take them if it were empty."""
