"""Images → vectors: computed by an encoder, or imported from files; also features of a release."""
