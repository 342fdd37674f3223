"""Answers of people: the local page, the store of its answers, and the open batch on crowd platforms."""
