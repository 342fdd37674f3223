"""The configuration of a run: schema, loader, presets."""
