"""Stream → rows → numbers: protocols, learners, scores, report."""
