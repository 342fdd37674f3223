"""Sources of samples → a Stream."""
