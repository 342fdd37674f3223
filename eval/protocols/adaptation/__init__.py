"""Adaptation without labels, and accuracy estimates without labels."""
