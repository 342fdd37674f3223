"""Charts as SVG, for pages and files."""
