"""Orchestration: stages, command line, web pages. May import every package; no package imports it."""

VERSION = "0.2.0"
