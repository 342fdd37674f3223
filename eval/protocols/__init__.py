"""A folder for each family of protocols: protocol, loop, score, figures."""
