"""Components of Seq-to-Final's methods: fits, searches, objectives, regularisers, histories and final modes."""
