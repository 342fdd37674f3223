"""Commands that read what people already have, and publish where they look."""
