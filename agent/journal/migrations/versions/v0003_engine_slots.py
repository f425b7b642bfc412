"""Which number each pod of a cluster has among the engines of its workload."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No pod has a number yet."""
    op.create_table(
        "engine_slots",
        sa.Column("pod", sa.String(128), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Engines are numbered anew."""
    op.drop_table("engine_slots")
