"""Users, groups, tokens, the audit log; and jobs know their group."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "accounts"
down_revision = "datasets"
branch_labels = None
depends_on = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_name = sa.String(64)


def upgrade() -> None:
    """Create the tables, and close the audit log to everything but additions."""
    op.add_column("jobs", sa.Column("group", _name, nullable=False, server_default=""))
    op.create_index("jobs_by_group", "jobs", ["group", "submitted_at"])
    op.create_table(
        "users",
        sa.Column("name", _name, primary_key=True),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("service", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("password", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        *_limits(),
    )
    op.create_table(
        "groups",
        sa.Column("name", _name, primary_key=True),
        sa.Column("queue", sa.String(100), nullable=False, unique=True),
        sa.Column("created_at", sa.Float, nullable=False),
        *_limits(),
    )
    op.create_table(
        "members",
        sa.Column("group", _name, primary_key=True),
        sa.Column("user", _name, primary_key=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("user", _name, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("verbs", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=True),
        sa.Column("revoked_at", sa.Float, nullable=True),
        sa.Column("used_at", sa.Float, nullable=True),
    )
    op.create_index("tokens_by_user", "tokens", ["user"])
    op.create_table(
        "audit",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("user", _name, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("how", sa.String(20), nullable=False),
        sa.Column("verb", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("object", sa.String(200), nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
    )
    op.create_index("audit_by_time", "audit", ["at"])
    op.create_index("audit_by_group", "audit", ["group", "at"])
    for statement in _CLOSED[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    """Drop them."""
    for table in ("audit", "tokens", "members", "groups", "users"):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION audit_is_append_only")
    op.drop_index("jobs_by_group", "jobs")
    op.drop_column("jobs", "group")


def _limits() -> tuple[sa.Column[int] | sa.Column[float], ...]:
    return (
        sa.Column("limit_jobs", _number, nullable=True),
        sa.Column("limit_gpu_milli", _number, nullable=True),
        sa.Column("limit_cpu_milli", _number, nullable=True),
        sa.Column("limit_dev_s", sa.Float, nullable=True),
    )


_CLOSED = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{what} BEFORE {what.upper()} ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        for what in ("update", "delete")
    ],
    "postgresql": [
        """CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$""",
        """CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()""",
    ],
}
"""The database itself refuses to change or drop an entry, also for a program that is not ours."""
