"""The journeys: the only place that knows everybody; nobody knows it."""

VERSION = "0.1.0"
