"""What learners keep: buffers, samplers, a vector index, a ledger of corrections."""
