"""What all other modules use: errors, seeding, atomic files, registries, the executor, the run log."""
