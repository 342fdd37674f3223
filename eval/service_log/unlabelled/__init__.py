"""Predictions of a log without a label: what scores say of them, and which to label next."""
