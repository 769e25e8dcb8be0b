"""Lets keys belong to a person, and lets a key replace another one."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.add_column("api_key", sa.Column("holder", sa.Text))
    op.add_column("api_key", sa.Column("stands_for", sa.Text))
    op.add_column("api_key", sa.Column("replaced_at_ms", sa.BigInteger))
