"""URLs and local files → shards; every row becomes exactly one image, or is dropped with exactly one reason."""
