"""Image files: shards, checks, local files, near copies, removal of metadata."""
