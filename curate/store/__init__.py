"""The store of a run: photos, misses, vectors and answers by content, so that nothing is paid for twice."""

# Reasons that say more of the network, or of a disk, than of the photo.
NETWORK_REASONS = {"timeout", "connection_failed", "no_result", "file_unreadable"}
