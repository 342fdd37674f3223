"""Images in time order → time buckets, and a picture of the collection over time."""
