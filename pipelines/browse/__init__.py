"""The browse page: a grid over the photos of a run, a release or a stream, with filters, a timeline and a map."""
