"""The oldest schema whose gateways can use this one, so that older gateways go on while newer ones start."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    made = op.create_table("oldest_reader", sa.Column("revision", sa.Text, primary_key=True))
    op.bulk_insert(made, [{"revision": revision}])


def downgrade() -> None:
    op.drop_table("oldest_reader")
