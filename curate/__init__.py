"""Metadata table → labelled release: sources, filters, fetch, buckets, embedding, concepts, validation."""
