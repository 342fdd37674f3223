"""Fast paths; each has a slow, literal twin in the tests."""
