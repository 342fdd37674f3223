"""Rows of runs → scores, intervals and published values."""
