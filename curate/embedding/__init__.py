"""Images → vectors: computed here, imported, or extracted as features for evaluation."""
