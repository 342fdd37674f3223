"""Charts as SVG text, and figures by matplotlib."""
