"""The built-in photo world: a rendered photo collection with timestamps and with the faults of real data."""
