"""Vectors and prompts → candidates: exact nearest-neighbour search."""
