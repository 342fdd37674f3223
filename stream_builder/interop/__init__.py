"""Streams in other libraries: Avalanche."""
