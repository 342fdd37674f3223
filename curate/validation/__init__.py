"""Validation by people: question page, batches, answers, verdicts."""
