"""Images in time order → time buckets, and a plot of the collection over time."""
