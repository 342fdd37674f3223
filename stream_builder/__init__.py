"""Anything labelled and ordered in time → a Stream: steps with named splits."""
