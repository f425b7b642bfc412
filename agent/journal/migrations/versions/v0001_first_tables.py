"""The first tables: entries, incidents, operation keys, switches and cursors."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "entries",
        sa.Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("incident", sa.String(128), nullable=True),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("entries_of_incident", "entries", ["incident", "seq"])
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(128), primary_key=True),
        sa.Column("opened_seq", _SEQUENCE, nullable=False),
        sa.Column("ended", sa.Boolean, nullable=False),
        sa.Column("standing", sa.Boolean, nullable=False),
        sa.Column("over_at", sa.Float, nullable=True),
    )
    op.create_index("incidents_standing", "incidents", ["standing"])
    op.create_table(
        "operation_keys",
        sa.Column("key", sa.String(256), primary_key=True),
        sa.Column("incident", sa.String(128), nullable=False),
    )
    op.create_index("operation_keys_of_incident", "operation_keys", ["incident"])
    op.create_table(
        "switches",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("is_on", sa.Boolean, nullable=False),
        sa.Column("turned_by", sa.Text, nullable=False),
        sa.Column("turned_at", sa.Float, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_table(
        "cursors",
        sa.Column("sink", sa.String(128), primary_key=True),
        sa.Column("seq", _SEQUENCE, nullable=False),
    )


def downgrade() -> None:
    """Drop all tables, and with them all that is recorded."""
    for table in ("cursors", "switches", "operation_keys", "incidents", "entries"):
        op.drop_table(table)
