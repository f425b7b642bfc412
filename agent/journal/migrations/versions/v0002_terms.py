"""One writer: the term of each entry, the term that may write now, and the record by which wardens elect."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Entries written before terms came have none."""
    op.add_column("entries", sa.Column("term", sa.BigInteger, nullable=True))
    op.create_table(
        "writer",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
    op.execute("INSERT INTO writer (id, term, holder, since) VALUES (1, 0, '', 0)")
    op.create_table(
        "elections",
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("renewals", sa.BigInteger, nullable=False),
        sa.Column("lease", sa.Integer, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Forget who wrote what in which term."""
    op.drop_table("elections")
    op.drop_table("writer")
    op.drop_column("entries", "term")
