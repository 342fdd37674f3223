"""What a release may contain: which accepted images, and what it says of their owners."""
