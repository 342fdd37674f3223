"""What a report writes beside its pages: tables, charts, results for other boards."""
