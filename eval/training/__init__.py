"""Training loops that learners share."""
