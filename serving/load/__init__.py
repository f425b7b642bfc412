"""The built-in load generator: users, well-behaved and otherwise."""
