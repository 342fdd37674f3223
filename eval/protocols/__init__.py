"""One folder a family: walk, score, presets."""
