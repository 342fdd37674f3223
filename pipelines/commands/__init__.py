"""Every action, once: a typed function is the Python call, the command, its options and its help."""
