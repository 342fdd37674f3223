"""The state of a run: its stages, their folders and marks, what to do next, how it grows."""
