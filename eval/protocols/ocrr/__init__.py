"""Online correction recovery: new classes or a new distribution come, users correct, and the old must not be lost."""
