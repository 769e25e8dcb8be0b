"""What else servers listed last: prompts, resources and resource templates."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "server_list",
        sa.Column("mcpserver_id", sa.Text, sa.ForeignKey("mcpserver.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("entries", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("server_list")
