"""What can be measured on a stream: shift distances and label correlation."""
