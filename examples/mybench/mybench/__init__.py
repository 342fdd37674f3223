"""A small package of somebody else: one of everything that driftline can be extended with."""
