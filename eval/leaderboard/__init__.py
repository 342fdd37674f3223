"""Submissions: packed, verified, ranked."""
