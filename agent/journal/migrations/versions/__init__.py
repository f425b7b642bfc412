"""One file a version of the tables. A published one is never changed: the next version is a new file."""
