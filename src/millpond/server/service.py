"""All that the API can be asked, put together: one class for each topic, which the routes of the topic call.

None of them knows anything of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

from millpond.server.about import About, Identity
from millpond.server.activity import Activity
from millpond.server.asking import Asking
from millpond.server.auth.queues import longest_dev_s
from millpond.server.bookkeeping import Bookkeeper
from millpond.server.disk_use import DiskBooks
from millpond.server.event_log import EventLog
from millpond.server.forecasts import Forecaster
from millpond.server.ground import Ground
from millpond.server.health import Health
from millpond.server.history_export import HistoryExport
from millpond.server.inbox import wall_clock
from millpond.server.jobs.changing import Changes
from millpond.server.jobs.reasons import Reasons
from millpond.server.jobs.removing import Removal
from millpond.server.jobs.requirements import Requirements
from millpond.server.jobs.showing import Jobs
from millpond.server.jobs.submitting import Submissions
from millpond.server.jobs.trying import Plans
from millpond.server.logs import Logs
from millpond.server.machines import Machines
from millpond.server.metrics.instruments import Instruments
from millpond.server.metrics.scraping import Scrape
from millpond.server.queue_views import Queues
from millpond.server.serving.front import ServiceFront
from millpond.server.serving.registry import Revisions
from millpond.server.serving.rollouts import Rollouts
from millpond.server.serving.services import Services
from millpond.server.serving.updating import Updating
from millpond.server.sweeps.trials import Trials
from millpond.server.task_inputs import TaskInputs
from millpond.specs.job_bodies import JobInfo
from millpond.specs.prices import PriceList


class Service:
    """Answers requests.

    Args:
        prices: gives the price list as it is now.

    Attributes:
        state_dir: where tasks leave their records and logs.
        ssh: where people come into jobs with SSH.
        origins: where browsers reach what jobs serve.
        instruments: count what happens.
        closing: set when the server is about to stop.
    """

    def __init__(self, ground: Ground, identity: Identity, prices: Callable[[], PriceList] = PriceList) -> None:
        loop, store, state_dir = ground.loop, ground.store, ground.state_dir
        self.state_dir, self.ssh, self.origins = state_dir, identity.ssh, identity.origins
        self.lookup = loop.lookup
        self.isolation, self.vault, self.files = ground.isolation, ground.vault, ground.files
        self.job_files, self.images = ground.job_files, ground.outfit.images
        self.closing = Event()
        self.activity = Activity(wall_clock)
        asking = Asking(loop)
        self.machines = Machines(loop, asking, ground.isolation, identity.unlimited)
        self.about = About(identity, ground, self.machines)
        self.disk = DiskBooks(store, state_dir, ground.accounts)
        self.queues = Queues(asking, loop.board, ground.accounts)
        self.health = Health(loop, asking, store, self.disk, self.closing)
        self.books = Bookkeeper(store, ground.accounts, self.disk, prices)
        self.sweeps = Trials(state_dir, store, loop.lookup.find, ground.job_files.file_of, loop.note)
        self.events = EventLog(store, loop.lookup, self.sweeps)
        self.inputs = TaskInputs(state_dir, loop.board.get, self.closing)
        self.logs = Logs(state_dir, loop.lookup, self.closing)

        forecaster = Forecaster(lambda most: store.jobs.ended_jobs(most, of=None))
        requirements = Requirements(ground, asking, self.disk)
        self.front = ServiceFront(loop, ground.job_files.file_of)
        self.jobs = Jobs(loop, store, ground.job_files, Reasons(loop, asking), self.front)
        self.submissions = Submissions(ground, asking, requirements, forecaster)
        self.history = HistoryExport(store, loop.board, ground.job_files, asking)
        self.plans = Plans(ground.accounts, asking, loop.lookup)
        self.removal = Removal(ground)

        revisions = Revisions(store.revisions, wall_clock)
        self.rollouts = Rollouts(loop, store, revisions, self.front, state_dir, wall_clock)
        self.services = Services(self.jobs, self.front, revisions, identity.origins, state_dir)
        self.updating = Updating(ground, asking, requirements, self.services, self.rollouts)

        def longest(user: str, group: str) -> float | None:
            both = (longest_dev_s(ground.accounts, user, group), identity.longest_dev_s)
            return min((most for most in both if most is not None), default=None)

        self.changes = Changes(loop, asking, self.services, ground.job_files, longest)

        self.instruments = Instruments()
        self.scrape = Scrape(identity.version, self.instruments, self.machines, loop.board)

        def note_ended(jobs: Sequence[JobInfo]) -> None:
            forecaster.note(jobs)
            self.instruments.ended(jobs)

        loop.on_ended = note_ended
        loop.on_cycle = self.instruments.cycled
        loop.board.on_first_start = self.instruments.started
        loop.forecast = forecaster.predict_at_once
