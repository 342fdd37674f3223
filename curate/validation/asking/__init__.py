"""Candidates → questions: batches, rounds, who judges, the platforms that take them."""
