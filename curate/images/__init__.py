"""Image files: shards, checks, local files, near-duplicates, removal of metadata."""
