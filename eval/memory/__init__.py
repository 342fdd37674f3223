"""Memories of learners: buffers, samplers, a vector index, a ledger of corrections."""
