"""Reports on a run or a release: audit, trace, site, cards, dependency licences."""
