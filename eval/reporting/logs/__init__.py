"""What `driftline age` says of a log: the page, JSON, sentences."""
