"""The store of a run: photos, misses, vectors and answers by content, so that nothing is paid for twice."""
