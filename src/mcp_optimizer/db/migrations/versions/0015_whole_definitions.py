"""Pins of all fields of a tool, beside those of the fields that older gateways compare."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("tool_pin", sa.Column("whole", sa.Text))
    op.add_column("tool_pin", sa.Column("sent", sa.Text))


def downgrade() -> None:
    op.drop_column("tool_pin", "sent")
    op.drop_column("tool_pin", "whole")
