"""Times: of cells, files, names and sidecars; units of numbers; periods of the calendar."""
