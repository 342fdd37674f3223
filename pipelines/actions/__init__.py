"""A typed function becomes the Python call, the command and its help."""
