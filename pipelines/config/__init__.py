"""The run file: schema, loader, error messages, presets, reference."""
