"""Candidates → verdicts: batches of questions, marketplaces, answers of workers, agreement, rounds."""
