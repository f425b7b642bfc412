"""A real PostgreSQL server for tests, with a database for each."""
