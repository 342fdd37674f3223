"""Local annotation: web page, answer store, and the open batch."""
