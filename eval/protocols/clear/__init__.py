"""CLEAR: train bucket after bucket, test on every bucket (iid) or on later ones (streaming)."""
