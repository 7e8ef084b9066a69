"""A row that can be read no more ends no other job, and where nothing can go on without it, a start changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from server_world import Clock, Server, World

from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.records import Token, TokenKind
from millpond.server.auth.roles import Verb
from millpond.server.store.settings import QueueRow


class Scene:
    """One job that runs, one that waits for it, an array, and one more that can be run; then the server is killed."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.world, self.clock = World(), Clock()
        server = Server(state_dir, self.world, self.clock)
        server.submit("early", gpus=1)
        server.turn(2)
        server.processor.keep_snapshot()
        server.submit("waits", after={"ok": ["early"]})
        server.submit("many", array="3%1")
        server.submit("other", gpus=1)
        server.turn(2)
        server.store.close()

    def damage(self, statement: str) -> None:
        with sa.create_engine(f"sqlite:///{self.state_dir / 'millpond.db'}").begin() as connection:
            assert connection.execute(sa.text(statement)).rowcount > 0

    def start(self) -> Server:
        return Server(self.state_dir, self.world, self.clock)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


CUT = "substr({0}, 1, length({0}) / 2)"


@pytest.mark.parametrize("left", [CUT.format("data"), "'{}'", "''"])
def test_a_damaged_state_is_made_anew_from_the_one_before_it(scene: Scene, left: str) -> None:
    scene.damage(f"UPDATE snapshots SET data = {left} WHERE seq = (SELECT max(seq) FROM snapshots)")
    server = scene.start()
    assert {"early", "other"} <= set(server.core.scheduler.jobs)
    server.run_to_the_end()
    assert set(scene.world.starts.values()) == {1}


@pytest.mark.parametrize("statement", [f"UPDATE snapshots SET data = {CUT.format('data')}", "DELETE FROM snapshots"])
def test_without_any_state_that_can_be_read_a_start_ends_nothing(scene: Scene, statement: str) -> None:
    scene.damage(statement)
    running = scene.world.running
    with pytest.raises(UnavailableError, match="restore a backup"):
        scene.start()
    assert scene.world.running == running


def test_a_damaged_entry_of_the_log_is_named(scene: Scene) -> None:
    scene.damage(f"UPDATE events SET data = {CUT.format('data')} WHERE job = 'other' AND type = 'JobSubmitted'")
    with pytest.raises(InvalidInputError, match=r"^entry \d+ of the stored log is damaged .*restore a backup"):
        scene.start()


def test_a_missing_entry_of_the_log_is_noticed(scene: Scene) -> None:
    scene.damage("DELETE FROM events WHERE job = 'other' AND type = 'JobSubmitted'")
    with pytest.raises(InvalidInputError, match=r"^entry \d+ of the stored log is missing.*restore a backup"):
        scene.start()


@pytest.mark.parametrize("left", [CUT.format("document"), "'[]'", "'{}'"])
@pytest.mark.parametrize("job", ["waits", "many"])
def test_a_waiting_job_with_a_damaged_file_has_failed_and_the_others_go_on(scene: Scene, job: str, left: str) -> None:
    scene.damage(f"UPDATE jobs SET document = {left} WHERE id = '{job}'")
    server = scene.start()
    server.turn()
    ended = server.store.jobs.ended_job(job)
    assert ended is not None
    assert (ended.state, ended.user, ended.reason) == ("failed", "ada", "its stored file is damaged; submit it again")
    server.run_to_the_end()
    assert server.store.jobs.ended_job("other").state == "succeeded"
    again = scene.start()
    assert again.loop.job_cache.get(job) is None


def test_a_job_whose_last_look_is_damaged_is_listed_by_what_else_is_known_of_it(scene: Scene) -> None:
    server = scene.start()
    server.run_to_the_end()
    before = server.store.jobs.ended_jobs(10)
    scene.damage(f"UPDATE jobs SET info = {CUT.format('info')} WHERE id = 'early'")
    after = server.store.jobs.ended_jobs(10)
    assert [info.id for info in after] == [info.id for info in before]
    assert [info for info in after if info.id != "early"] == [info for info in before if info.id != "early"]
    found = server.store.jobs.ended_job("early")
    assert (found.state, found.reason) == ("succeeded", "what is stored of it is damaged")


def test_what_is_kept_of_a_user_and_is_damaged_is_left_out_and_named(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    store = scene.start().store
    accounts = AccountStore(store.database)
    for name, verbs in (("whole", frozenset()), ("cut", frozenset({Verb.READ_JOBS}))):
        accounts.save(Token(name, f"digest of {name}", TokenKind.PERSONAL, "ada", name, verbs, 1.0))
    for user in ("ada", "max"):
        store.notification_settings.save(user, {"rules": []})
    scene.damage(f"UPDATE tokens SET verbs = {CUT.format('verbs')} WHERE id = 'cut'")
    scene.damage(f"UPDATE notification_settings SET document = {CUT.format('document')} WHERE user = 'max'")
    assert [token.id for token in accounts.tokens()] == ["whole"]
    assert set(store.notification_settings.all()) == {"ada"}
    assert "the token cut (cut) of ada is damaged" in caplog.text
    assert "what max is told of is damaged" in caplog.text


def test_a_queue_of_which_the_settings_are_damaged_is_named(scene: Scene) -> None:
    settings = scene.start().store.queue_settings
    settings.save([QueueRow("vision", {"limit": 4}, None, 1, "ada", 1.0)])
    scene.damage(f"UPDATE queue_settings SET document = {CUT.format('document')}")
    with pytest.raises(InvalidInputError, match=r"what is stored of queue 'vision' is damaged .*restore a backup"):
        settings.all()


def test_a_damaged_file_is_named_by_its_job_and_keeps_no_other_from_being_found(scene: Scene) -> None:
    scene.damage(f"UPDATE jobs SET document = {CUT.format('document')} WHERE id = 'early'")
    jobs = scene.start().store.jobs
    for read in (jobs.document, jobs.submitted):
        with pytest.raises(InvalidInputError, match="the stored file of job 'early' is damaged; submit it again"):
            read("early")
    assert set(jobs.live_documents_with("command")) == {"waits", "many", "other"}
