"""Builders: a release, a dataset with a shift sequence, arrays, tables or texts → a stream."""
