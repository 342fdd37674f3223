"""Image files: shards, checks, near duplicates, EXIF."""
