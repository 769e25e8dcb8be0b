"""Which keys the results of a tool have."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "result_shape",
        sa.Column("definition_hash", sa.Text, primary_key=True),
        sa.Column("results", sa.Integer, nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("result_shape")
