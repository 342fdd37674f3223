"""Near-future accuracy: a stream in its own order, judged on samples S ahead, online accuracy beside it."""
