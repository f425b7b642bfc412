"""How the journal's tables came to be, one version a file. Alembic runs these when the warden opens its journal."""
