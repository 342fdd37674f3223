"""The metadata table: its schema, how columns of other tables map to it, and which rows are dropped."""
