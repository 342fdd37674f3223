"""What every room stands on: errors, randomness, files, catalogues, progress."""
