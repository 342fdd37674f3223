"""Seq-to-Final: learn from all steps of a sequence, for the last one."""
