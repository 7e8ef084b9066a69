"""The tables. Records are JSON text: the log is read back whole and in order, never searched by content."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    event,
)

from millpond.model.energy import ENERGY_FIELDS
from millpond.model.workloads import LONGEST_JOB_ID

metadata = MetaData()

LONGEST_USER = 120
"""Characters of whose a job is."""
_JOB = String(LONGEST_JOB_ID)
_NAME = String(64)
_VISIBILITY = String(20)
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

events = Table(
    "events",
    metadata,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("type", String(40), nullable=False),
    Column("job", _JOB, nullable=False, default=""),
    Column("data", Text, nullable=False),
    Index("events_by_job", "job", "seq"),
)
"""The scheduler's log in the order in which it was handled. ``type`` is that of the event, for histories, or
``UNACCEPTED``."""

UNACCEPTED: Final = "Unaccepted"
"""Of an event that the scheduler refused: nothing came of it."""

decisions = Table(
    "decisions",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("seq", _NUMBER, nullable=False),
    Column("at", Float, nullable=False),
    Column("type", String(40), nullable=False),
    Column("job", _JOB, nullable=False),
    Column("data", Text, nullable=False),
    Index("decisions_by_job", "job", "id"),
    Index("decisions_by_seq", "seq"),
)
"""What was decided; ``seq`` is that of the tick in the log."""

claims = Table(
    "claims",
    metadata,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("data", Text, nullable=False),
)
"""The places that the scheduler kept for jobs until others had left, where a cycle changed them; ``seq`` is that of its
tick in the log."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("version", String(40), nullable=False),
    Column("data", Text, nullable=False),
)
"""The scheduler's whole state after the log entry ``seq``."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", _JOB, primary_key=True),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("group", _NAME, nullable=False, server_default=""),
    Column("submitted_at", Float, nullable=False),
    Column("document", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("ended_at", Float, nullable=True),
    Column("info", Text, nullable=True),
    Column("parent", _JOB, nullable=False, server_default=""),
    Column("members", Integer, nullable=False, server_default="0"),
    Column("name", Text, nullable=True),
    Column("queue", Text, nullable=True),
    Index("jobs_by_time", "submitted_at"),
    Index("jobs_by_state", "state", "submitted_at"),
    Index("jobs_by_group", "group", "submitted_at"),
    Index("jobs_by_parent", "parent", "submitted_at", "name", "user", "queue", "state"),
    Index("jobs_by_name", "name", "parent", "user", "submitted_at"),
    Index("jobs_of_name", "name", "submitted_at"),
    Index("jobs_of_user", "user", "submitted_at"),
    Index("jobs_of_queue", "queue", "submitted_at"),
    Index("jobs_of_user_in_queue", "user", "queue", "submitted_at"),
)
"""Every job ever submitted; ``state`` is ``live`` until it ends, ``info``, ``name`` and ``queue`` are those that it had
then.

An array is one row with the number of its ``members``; a member has a row from when it is handed to the scheduler on,
with its array as ``parent`` and no document of its own.
"""

trials = Table(
    "trials",
    metadata,
    Column("job", _JOB, primary_key=True),
    Column("parent", _JOB, nullable=False),
    Column("data", Text, nullable=False),
    Index("trials_by_parent", "parent"),
)
"""What is known of the trials of sweeps by what they reported. See ``server.jobs.sweeps``."""

time_series = Table(
    "time_series",
    metadata,
    Column("subject", String(20), primary_key=True),
    Column("step_s", Integer, primary_key=True, autoincrement=False),
    Column("at", _NUMBER, primary_key=True, autoincrement=False),
    Column("samples", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""The pool's own history, by subject and length of the span; ``data`` is compressed. See
``server.monitoring.time_series``."""

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", Float, nullable=False),
)
"""Submissions that were answered, so that repeating one gives the same job."""

usage = Table(
    "usage",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("job", _JOB, nullable=False),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("queue", String(120), nullable=False),
    Column("group", _NAME, nullable=False, server_default=""),
    Column("kind", String(20), nullable=False),
    Column("model", String(120), nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("cpu_milli", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=True),
    Index("usage_by_end", "until"),
    Index("usage_by_job", "job"),
)
"""Stretches of time in which a job held the same; ``until`` is empty while it still does. See
``server.runtime.usage``."""

card_use = Table(
    "card_use",
    metadata,
    Column("job", _JOB, primary_key=True),
    Column("model", String(120), primary_key=True),
    Column("day", Float, primary_key=True),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("queue", String(120), nullable=False),
    Column("group", _NAME, nullable=False),
    Column("kind", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("measured_gpu_s", Float, nullable=False),
    Column("busy_gpu_s", Float, nullable=False),
    Column("idle_gpu_s", Float, nullable=False),
    *(Column(name, Float, nullable=False, server_default="0") for name in ENERGY_FIELDS),
    Index("card_use_by_end", "until"),
)
"""What each job made of the cards that it held, day by day, as far as that was measured. See
``server.monitoring.card_use``."""

start_waits = Table(
    "start_waits",
    metadata,
    Column("job", _JOB, primary_key=True),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("queue", String(120), nullable=False),
    Column("group", _NAME, nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("submitted_at", Float, key="eligible_at", nullable=False),
    Column("started_at", Float, nullable=True),
    Column("ended_at", Float, nullable=False),
    Index("start_waits_by_time", "eligible_at"),
)
"""How long each job that has ended waited for its first start, since it could start; ``started_at`` is empty where that
never came. It stays when the job is deleted."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("hook", String(120), nullable=False),
    Column("at", Float, nullable=False),
    Column("notice", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("trouble", Text, nullable=False),
    Column("channel", String(10), nullable=False, server_default="webhook"),
    Column("key", String(400), nullable=False, server_default=""),
    Index("deliveries_by_due", "state", "due_at"),
    Index("deliveries_by_target", "hook", "channel", "state"),
)
"""Deliveries to webhooks and to users, and what became of them; ``hook`` is the webhook's name or the user's. See
``server.notifications``."""

notification_settings = Table(
    "notification_settings",
    metadata,
    Column("user", _NAME, primary_key=True),
    Column("document", Text, nullable=False),
)
"""What users are told of, and where, as JSON. See ``server.notifications.settings``."""

webhooks = Table(
    "webhooks",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("document", Text, nullable=False),
    Column("by", _NAME, nullable=False),
    Column("at", Float, nullable=False),
)
"""Webhooks that were added while the server ran, as JSON. See ``server.notifications.webhook_receivers``."""

datasets = Table(
    "datasets",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("files", Integer, nullable=False),
    Column("size", _NUMBER, nullable=False),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("group", _NAME, nullable=False, server_default=""),
    Column("visibility", _VISIBILITY, nullable=False, server_default="everyone"),
)
"""Named data: every version ever put; ``digest`` is that of its snapshot."""

images = Table(
    "images",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("tag", String(128), primary_key=True),
    Column("origin", Text, nullable=False),
    Column("digest", String(80), nullable=False),
    Column("size", _NUMBER, nullable=False),
    Column("user", _NAME, nullable=False),
    Column("group", _NAME, nullable=False),
    Column("visibility", _VISIBILITY, nullable=False),
    Column("description", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("login", String(100), nullable=False, server_default=""),
    Column("exact", Text, nullable=False, server_default=""),
)
"""The catalogue of images. See ``server.storage.provisioning.catalogue``."""


revisions = Table(
    "revisions",
    metadata,
    Column("service", _JOB, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job", _JOB, nullable=False),
    Column("document", Text, nullable=False),
    Column("user", String(LONGEST_USER), nullable=False),
    Column("group", _NAME, nullable=False, server_default=""),
    Column("created_at", Float, nullable=False),
    Column("phase", String(20), nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("percent", Float, nullable=False),
    Column("target", Integer, nullable=False),
    Column("before", Integer, nullable=False),
    Column("told", Text, nullable=False),
)
"""Revisions of services that were ever updated. See ``server.serving.revisions``."""


def _limits() -> tuple[Column[int] | Column[float], ...]:
    """What an account may hold at once; null is no limit."""
    return (
        Column("limit_jobs", _NUMBER, nullable=True),
        Column("limit_gpu_milli", _NUMBER, nullable=True),
        Column("limit_cpu_milli", _NUMBER, nullable=True),
        Column("limit_card_mib", _NUMBER, nullable=True),
        Column("limit_dev_s", Float, nullable=True),
        Column("limit_disk_bytes", BigInteger, nullable=True),
    )


leadership = Table(
    "leadership",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", _NUMBER, nullable=False),
    Column("url", String(400), nullable=False),
    Column("host", String(255), nullable=False),
    Column("boot_id", String(64), nullable=False),
    Column("pid", _NUMBER, nullable=False),
    Column("state_dir", Text, nullable=False),
)
"""One row: who leads, and how often that has changed. On PostgreSQL only; see ``leadership``."""

server_identity = Table(
    "server_identity",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("server", String(64), nullable=False),
    Column("state_dir", Text, nullable=False),
    Column("formerly", Text, nullable=False),
)
"""One row: the server whose database this is, and where it keeps what is not in the database. See ``identity``."""

users = Table(
    "users",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("admin", Boolean, nullable=False),
    Column("service", Boolean, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("password", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    *_limits(),
    Column("pass_epoch", Integer, nullable=False, server_default="0"),
)
"""Accounts of people and of services; ``password`` is a hash, empty where none is set."""

user_numbers = Table(
    "user_numbers",
    metadata,
    Column("user", _NAME, primary_key=True),
    Column("number", BigInteger, nullable=False, unique=True),
)
"""User numbers of the machine under which the tasks of users run; a number is never given to a second user."""

secrets = Table(
    "secrets",
    metadata,
    Column("kind", String(10), primary_key=True),
    Column("owner", _NAME, primary_key=True),
    Column("name", String(100), primary_key=True),
    Column("cipher", String(20), nullable=False),
    Column("sealed", Text, nullable=False),
    Column("by", _NAME, nullable=False),
    Column("at", Float, nullable=False),
)
"""Secrets of users, groups and the server, encrypted with a key that is not in the database."""

groups = Table(
    "groups",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("queue", String(100), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    *_limits(),
)
"""Groups of users; each owns one queue."""

queue_settings = Table(
    "queue_settings",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("document", Text, nullable=False),
    Column("applied", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("by", _NAME, nullable=False),
    Column("at", Float, nullable=False),
)
"""What queues say, and what the configuration file said of them last, as JSON. See
``server.runtime.queue_settings``."""

saved_views = Table(
    "saved_views",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("user", _NAME, nullable=False),
    Column("group", _NAME, nullable=False),
    Column("name", String(100), nullable=False),
    Column("query", Text, nullable=False),
    Column("by", _NAME, nullable=False),
    Column("at", Float, nullable=False),
)
"""Lists of jobs that people have named: of a user, or of a group; the other of the two is empty. ``query`` is that of
their addresses."""

members = Table(
    "members",
    metadata,
    Column("group", _NAME, primary_key=True),
    Column("user", _NAME, primary_key=True),
    Column("role", String(20), nullable=False),
    Column("since", Float, nullable=False),
    Column("issuer", String(300), nullable=False, server_default=""),
)
"""Who is in which group, as what; ``issuer`` is the provider whose word it follows from, empty where none's."""

group_invitations = Table(
    "group_invitations",
    metadata,
    Column("group", _NAME, primary_key=True),
    Column("user", _NAME, primary_key=True),
    Column("role", String(20), nullable=False),
    Column("by", _NAME, nullable=False),
    Column("at", Float, nullable=False),
)
"""Invitations to groups: the user, the role, and who invited them."""

identities = Table(
    "identities",
    metadata,
    Column("issuer", String(300), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("user", _NAME, nullable=False, unique=True),
    Column("since", Float, nullable=False),
    Column("makes_admin", Boolean, nullable=False),
)
"""Who the owners of accounts are to OpenID Connect providers."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("user", _NAME, nullable=False),
    Column("name", String(100), nullable=False),
    Column("verbs", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=True),
    Column("revoked_at", Float, nullable=True),
    Column("used_at", Float, nullable=True),
    Index("tokens_by_user", "user"),
)
"""Secrets that stand for an account: never the secret, only its hash. ``verbs`` is a JSON list, empty for all."""

ssh_keys = Table(
    "ssh_keys",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("user", _NAME, nullable=False),
    Column("name", String(100), nullable=False),
    Column("kind", String(40), nullable=False),
    Column("blob", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("used_at", Float, nullable=True),
)
"""Public keys for SSH; a key is one user's. ``blob`` is its base64."""

audit = Table(
    "audit",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("user", _NAME, nullable=False),
    Column("address", String(64), nullable=False),
    Column("how", String(20), nullable=False),
    Column("verb", String(40), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("object", String(200), nullable=False),
    Column("group", _NAME, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Index("audit_by_time", "at"),
    Index("audit_by_group", "group", "at"),
)
"""Who changed what, and who was refused. Rows are only ever added: the database itself refuses to change or drop an
entry, also for a program that is not ours."""

_APPEND_ONLY: Final = {
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
for _dialect, _statements in _APPEND_ONLY.items():
    for _statement in _statements:
        event.listen(audit, "after_create", DDL(_statement).execute_if(dialect=_dialect))  # type: ignore[no-untyped-call]
