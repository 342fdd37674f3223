"""The built-in photo world: a rendered, time-stamped photo collection with the dirt of real life."""
