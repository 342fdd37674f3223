"""The server of the local pages (browse, annotate): no build step, nothing from another host."""
