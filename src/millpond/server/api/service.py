"""All that the API can be asked, put together: one class for each topic, which the routes of the topic call.

None of them knows anything of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Event

from millpond.engines.task_access import TaskAccess
from millpond.server.auth.queues import QueuePlace, longest_dev
from millpond.server.http.long_answers import LongAnswers
from millpond.server.http.user_turns import UserCounts
from millpond.server.jobs.actions.changes import Changes, Requeueing, delete_job
from millpond.server.jobs.admission.plans import Plans
from millpond.server.jobs.admission.requirements import Requirements
from millpond.server.jobs.admission.submission import Submissions
from millpond.server.jobs.curves.service import Curves
from millpond.server.jobs.listing import ActiveOrders, JobListing
from millpond.server.jobs.next_jobs import NextJobs, Overview
from millpond.server.jobs.reasons import Reasons, with_waits
from millpond.server.jobs.reservations import Reservations
from millpond.server.jobs.saved_views import SavedViews
from millpond.server.jobs.sweeps.trials import Trials
from millpond.server.jobs.task_inputs import TaskInputs
from millpond.server.jobs.time_limits import time_left, with_limit_end
from millpond.server.jobs.what_if.service import WhatIf
from millpond.server.monitoring.time_series.reader import TimeSeriesReader
from millpond.server.runtime.clock import since_boot
from millpond.server.server_components import ServerComponents
from millpond.server.serving.front import ServiceFront
from millpond.server.serving.registry import Revisions, RevisionStore
from millpond.server.serving.rollouts import Rollouts
from millpond.server.serving.services import Services
from millpond.server.serving.updates import Updating
from millpond.server.sessions.websockets import MOST_SESSIONS
from millpond.server.storage.disk_use import DiskBooks
from millpond.server.storage.files.datasets import Datasets
from millpond.server.views.about import About, ServerFacts, ServerHealth
from millpond.server.views.events import EventLog
from millpond.server.views.hardware.machines import Machines
from millpond.server.views.log_search import LogSearch
from millpond.server.views.logs import Logs
from millpond.server.views.prometheus.metrics_page import MetricsPage, MetricsSources
from millpond.server.views.queues import Queues, cells_seen_by
from millpond.server.views.reports.history_export import HistoryExport
from millpond.server.views.reports.usage import Bookkeeper, ReportRates
from millpond.server.views.reports.wait_report import WaitReports


class Service:
    """Answers requests.

    Args:
        rates: gives the prices of cards and energy as they are now.

    Attributes:
        state_dir: where tasks leave their records and logs.
        engine: what carries decisions out: ``local`` or ``kubernetes``.
        runs: those whose files are carried into and out of pods.
        ssh: where people come into jobs with SSH.
        instruments: count what happens.
        long_answers: makes what would take the threads and the memory of all others.
        sessions: the commands and connections to ports that each user has open inside jobs.
        closing: set when the server is about to stop.
        version: gives a number that rises with all that happens to jobs, nodes and queues, and when more is known.
    """

    def __init__(
        self,
        components: ServerComponents,
        identity: ServerFacts,
        access: TaskAccess,
        rates: Callable[[], ReportRates] = ReportRates,
    ) -> None:
        loop, store, state_dir = components.loop, components.store, components.state_dir
        self.state_dir, self.ssh, self.origins = state_dir, identity.ssh, identity.origins
        self.engine = identity.engine
        self.access, self.runs = access, components.runs
        self.lookup = components.lookup
        self.isolation, self.vault, self.files = components.isolation, components.vault, components.files
        self.run_files = components.files.run_files(lambda job: components.job_files.latest(job).spec.file)
        self.job_files, self.images = components.job_files, components.provisioning.images
        self.closing = Event()
        self.version: Callable[[], int] = lambda: loop.seq + loop.job_cache.version + self.next_jobs.version
        self.activity = components.activity
        self.long_answers = LongAnswers()
        self.sessions = UserCounts(
            MOST_SESSIONS, "commands and forwarded connections of", "wait until some have ended, or close them"
        )
        self.machines = Machines(loop, components.isolation, identity.unlimited, identity.cards_not_closed)
        self.about = About(identity, loop, store.jobs, self.isolation, self.machines)
        self.disk = DiskBooks(
            store.jobs, Datasets(store.database), state_dir, components.accounts, components.files.sent
        )
        self.reservations = Reservations(loop, components.accounts)
        self.saved_views = SavedViews(store.saved_views, components.accounts.group)
        self.health = ServerHealth(loop, store, self.disk, self.closing)
        self.books = Bookkeeper(store, components.accounts, self.disk, rates)
        self.wait_reports = WaitReports(store.start_waits, loop.job_cache, components.accounts, time.time)
        self.sweeps = Trials(state_dir, store, self.lookup.find, components.job_files.file_of, loop.note)
        members = store.jobs.member_states
        self.curves = Curves(
            state_dir,
            self.lookup.find,
            components.job_files.file_of,
            self.sweeps.table,
            lambda array: list(members(array)),
        )
        self.events = EventLog(store, self.lookup, self.sweeps.table)
        self.inputs = TaskInputs(state_dir, loop.job_cache.get, self.closing)
        self.logs = Logs(state_dir, self.lookup, self.closing)
        self.log_search = LogSearch(state_dir, self.lookup)

        requirements = Requirements(components, self.disk)
        self.front = ServiceFront(loop, components.job_files.file_of)
        reasons = Reasons(loop, self.lookup, components.reason_outside_core, identity.unshared)
        self.queue_settings = components.queue_settings
        self.notifications, self.deliveries = components.notifications.settings, components.notifications.deliveries
        self.webhooks = components.notifications.receivers
        self.queues = Queues(loop, components.accounts, self.queue_settings, reasons.summary)
        self.cells_seen_by = partial(cells_seen_by, loop, components.accounts)
        orders = ActiveOrders(loop, time.monotonic)
        self.with_limit_end = partial(with_limit_end, loop)
        self.jobs = JobListing(
            loop.job_cache,
            store.jobs,
            self.lookup,
            reasons,
            lambda info: self.front.with_deadline(self.with_limit_end(info)),
            orders,
        )
        self.next_jobs = NextJobs(loop, reasons, time.monotonic)
        self.overview = Overview(loop.job_cache, self.next_jobs, self.machines.idle_cards, time.time)
        self.with_waits = partial(with_waits, store.histories)
        self.submissions = Submissions(components, requirements)
        self.history = HistoryExport(store, loop, components.job_files)
        self.plans = Plans(components, identity.unlimited, identity.unshared)
        self.what_if = WhatIf(components, self.history, time.time)
        self.time_left = partial(time_left, loop)
        self.delete_job = partial(delete_job, components, self.disk)

        revisions = Revisions(RevisionStore(store.database), time.time)
        self.rollouts = Rollouts(loop, store.jobs, revisions, self.front, access, since_boot)
        self.services = Services(self.lookup, self.job_files, self.front, revisions, identity.origins, access)
        self.updating = Updating(components.accounts, loop, requirements, self.services, self.rollouts)

        def longest(place: QueuePlace) -> float | None:
            own = longest_dev(components.accounts, components.queue_settings.rules, place)
            both = (None if own is None else own.seconds, identity.longest_dev_s)
            return min((most for most in both if most is not None), default=None)

        self.changes = Changes(loop, self.services, components.job_files, longest)
        self.requeueing = Requeueing(self.lookup, self.services, self.changes, self.submissions)

        self.time_series = TimeSeriesReader(store.time_series, time.time)
        self.instruments = components.instruments
        sources = MetricsSources(
            self.machines,
            self.queues,
            loop.job_cache,
            self.health,
            components.accounts.tokens,
            identity.certificate_ends,
            lambda: self.services.scaling,
        )
        self.metrics = MetricsPage(self.instruments.registry, sources)
