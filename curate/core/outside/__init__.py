"""What comes from outside, such as somebody else's release: names, documents and arrays are checked before use."""
