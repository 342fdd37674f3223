"""Reports on a run or a release: audit, trace, pages, cards."""
