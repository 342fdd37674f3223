"""Commands for runs that go on: `grow`, `heal`, `store`."""
