"""Fast implementations; each is tested against a slow, literal one."""
