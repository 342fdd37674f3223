"""Files that are read more than once: their digests, and what was read of them."""
