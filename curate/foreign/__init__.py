"""What strangers' bytes mean."""
