"""The tables of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

# Named after the last of the steps in which they came to be: a database that went through all of these is gone on with.
revision = "names_by_pattern"
down_revision = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_job = sa.String(120)
_name = sa.String(64)
_visibility = sa.String(20)
_ENERGY = ("known_gpu_s", "energy_j", "declared_j", "cost", "priced_j", "co2_g", "carbon_j")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "events",
        sa.Column("seq", _number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("job", _job, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("events_by_job", "events", ["job", "seq"])
    op.create_table(
        "decisions",
        sa.Column("id", _number, primary_key=True, autoincrement=False),
        sa.Column("seq", _number, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("job", _job, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("decisions_by_job", "decisions", ["job", "id"])
    op.create_index("decisions_by_seq", "decisions", ["seq"])
    op.create_table(
        "claims",
        sa.Column("seq", _number, primary_key=True, autoincrement=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("seq", _number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", _job, primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("group", _name, nullable=False, server_default=""),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("ended_at", sa.Float, nullable=True),
        sa.Column("info", sa.Text, nullable=True),
        sa.Column("parent", _job, nullable=False, server_default=""),
        sa.Column("members", sa.Integer, nullable=False, server_default="0"),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("queue", sa.Text, nullable=True),
    )
    op.create_index("jobs_by_time", "jobs", ["submitted_at"])
    op.create_index("jobs_by_state", "jobs", ["state", "submitted_at"])
    op.create_index("jobs_by_group", "jobs", ["group", "submitted_at"])
    op.create_index("jobs_by_parent", "jobs", ["parent", "submitted_at", "name", "user", "queue", "state"])
    op.create_index("jobs_by_name", "jobs", ["name", "parent", "user", "submitted_at"])
    op.create_index("jobs_of_name", "jobs", ["name", "submitted_at"])
    op.create_index("jobs_of_user", "jobs", ["user", "submitted_at"])
    op.create_index("jobs_of_queue", "jobs", ["queue", "submitted_at"])
    op.create_index("jobs_of_user_in_queue", "jobs", ["user", "queue", "submitted_at"])
    op.create_table(
        "trials",
        sa.Column("job", _job, primary_key=True),
        sa.Column("parent", _job, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("trials_by_parent", "trials", ["parent"])
    op.create_table(
        "time_series",
        sa.Column("subject", sa.String(20), primary_key=True),
        sa.Column("step_s", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", _number, primary_key=True, autoincrement=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("job", _job, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("job", _job, nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("model", sa.String(120), nullable=False),
        sa.Column("gpu_milli", sa.BigInteger, nullable=False),
        sa.Column("cpu_milli", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=True),
        sa.Column("group", _name, nullable=False, server_default=""),
    )
    op.create_index("usage_by_end", "usage", ["until"])
    op.create_index("usage_by_job", "usage", ["job"])
    op.create_table(
        "card_use",
        sa.Column("job", _job, primary_key=True),
        sa.Column("model", sa.String(120), primary_key=True),
        sa.Column("day", sa.Float, primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("measured_gpu_s", sa.Float, nullable=False),
        sa.Column("busy_gpu_s", sa.Float, nullable=False),
        sa.Column("idle_gpu_s", sa.Float, nullable=False),
        *(sa.Column(name, sa.Float, nullable=False, server_default="0") for name in _ENERGY),
    )
    op.create_index("card_use_by_end", "card_use", ["until"])
    op.create_table(
        "start_waits",
        sa.Column("job", _job, primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("gpu_milli", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float, nullable=True),
        sa.Column("ended_at", sa.Float, nullable=False),
    )
    op.create_index("start_waits_by_time", "start_waits", ["submitted_at"])
    op.create_table(
        "deliveries",
        sa.Column("id", _number, primary_key=True, autoincrement=True),
        sa.Column("hook", sa.String(120), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("notice", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
        sa.Column("channel", sa.String(10), nullable=False, server_default="webhook"),
        sa.Column("key", sa.String(400), nullable=False, server_default=""),
    )
    op.create_index("deliveries_by_due", "deliveries", ["state", "due_at"])
    op.create_index("deliveries_by_target", "deliveries", ["hook", "channel", "state"])
    op.create_table(
        "notification_settings",
        sa.Column("user", _name, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("by", _name, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "datasets",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("size", _number, nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
        sa.Column("group", _name, nullable=False, server_default=""),
        sa.Column("visibility", _visibility, nullable=False, server_default="everyone"),
    )
    op.create_table(
        "images",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("tag", sa.String(128), primary_key=True),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("size", _number, nullable=False),
        sa.Column("user", _name, nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("visibility", _visibility, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("login", sa.String(100), nullable=False, server_default=""),
        sa.Column("exact", sa.Text, nullable=False, server_default=""),
    )
    op.create_table(
        "revisions",
        sa.Column("service", _job, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job", _job, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("group", _name, nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("target", sa.Integer, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
    )
    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", _number, nullable=False),
        sa.Column("url", sa.String(400), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("pid", _number, nullable=False),
        sa.Column("state_dir", sa.Text, nullable=False),
    )
    op.create_table(
        "server_identity",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("server", sa.String(64), nullable=False),
        sa.Column("state_dir", sa.Text, nullable=False),
        sa.Column("formerly", sa.Text, nullable=False),
    )
    op.create_table(
        "users",
        sa.Column("name", _name, primary_key=True),
        sa.Column("admin", sa.Boolean, nullable=False),
        sa.Column("service", sa.Boolean, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("password", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        *_limits(),
        sa.Column("pass_epoch", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_table(
        "user_numbers",
        sa.Column("user", _name, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    )
    op.create_table(
        "secrets",
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("owner", _name, primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("cipher", sa.String(20), nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("by", _name, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "groups",
        sa.Column("name", _name, primary_key=True),
        sa.Column("queue", sa.String(100), nullable=False, unique=True),
        sa.Column("created_at", sa.Float, nullable=False),
        *_limits(),
    )
    op.create_table(
        "queue_settings",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("applied", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("by", _name, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("user", _name, nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("by", _name, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column("group", _name, primary_key=True),
        sa.Column("user", _name, primary_key=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("issuer", sa.String(300), nullable=False, server_default=""),
    )
    op.create_table(
        "group_invitations",
        sa.Column("group", _name, primary_key=True),
        sa.Column("user", _name, primary_key=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("by", _name, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "identities",
        sa.Column("issuer", sa.String(300), primary_key=True),
        sa.Column("subject", sa.String(255), primary_key=True),
        sa.Column("user", _name, nullable=False, unique=True),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("makes_admin", sa.Boolean, nullable=False),
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
        "ssh_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("user", _name, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float, nullable=True),
    )
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
    for statement in _APPEND_ONLY[op.get_bind().dialect.name]:
        op.execute(statement)


def _limits() -> tuple[sa.Column[int] | sa.Column[float], ...]:
    return (
        sa.Column("limit_jobs", _number, nullable=True),
        sa.Column("limit_gpu_milli", _number, nullable=True),
        sa.Column("limit_cpu_milli", _number, nullable=True),
        sa.Column("limit_card_mib", _number, nullable=True),
        sa.Column("limit_dev_s", sa.Float, nullable=True),
        sa.Column("limit_disk_bytes", sa.BigInteger, nullable=True),
    )


_APPEND_ONLY = {
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
