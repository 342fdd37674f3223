"""Prompt exploration: a local web page, and contact sheets as files."""
