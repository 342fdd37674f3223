"""Judges: models that answer the workers' question, as workers with a name, and what their answers are worth."""
