"""Successive versions of a release: what is appended, what is dead, what changed, and what may be compared."""
