"""The browse page: a grid over the photos of a run or a release, with filters, a timeline and prompts."""
