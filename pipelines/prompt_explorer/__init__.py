"""Prompt exploration: web page and contact sheets."""
