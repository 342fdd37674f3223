"""Base classes of trained learners."""
