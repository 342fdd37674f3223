"""Answers → verdicts: reading them, agreement, the rule that decides."""

FORGOTTEN = "forgotten.parquet"  # in a run folder: verdicts and counts whose answers were deleted
