"""The papers' tables, ours beside them: a list of cells for each paper, and what composes, evaluates and compares."""
