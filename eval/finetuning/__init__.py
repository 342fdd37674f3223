"""Parts that Seq-to-Final's methods are composed of: fits, searches, objectives, pulls, histories and final modes."""
