"""What is run: learners with settings, presets, tuning, estimated cost."""
