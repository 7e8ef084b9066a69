"""The machines: they join, fail, are cordoned and drained; how near they are; how readers see them."""
