"""Scores → a site of HTML pages, CSV and LaTeX."""
