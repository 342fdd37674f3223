"""The server of the local pages (explore, annotate): no build step, nothing from another host."""
