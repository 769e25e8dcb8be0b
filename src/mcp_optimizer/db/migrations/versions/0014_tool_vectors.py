"""Under which key the vector of a tool is stored, so that a tool can be read with it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("tool", sa.Column("vector_key", sa.Text))


def downgrade() -> None:
    op.drop_column("tool", "vector_key")
