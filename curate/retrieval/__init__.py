"""Vectors and prompts → candidates: exact and approximate nearest-neighbour search."""
