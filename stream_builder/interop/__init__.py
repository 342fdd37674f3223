"""Streams in other libraries: torch and Avalanche."""
