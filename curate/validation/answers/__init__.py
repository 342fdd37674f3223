"""Answers → verdicts: reading them, agreement, the rule that decides."""
