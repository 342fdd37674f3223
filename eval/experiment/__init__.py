"""Definition of an experiment: learners with settings, presets, tuning, estimated cost."""
