"""What a state directory remembers of the options of its last start, and how a start says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from millpond.client.cli.main import cli
from millpond.model.errors import MillpondError, UnavailableError
from millpond.node.host.files import write_json
from millpond.server.startup.command_line import parse_options
from millpond.server.startup.options import ServerOptions, remember, with_remembered
from millpond.server.startup.process import serve
from millpond.server.state_dir import IDENTITY_FILE, StateDir


def started(state_dir: Path, *arguments: str) -> tuple[ServerOptions, str]:
    options, note = with_remembered(parse_options(["--state-dir", str(state_dir), *arguments]))
    remember(options)
    return options, note


def test_a_first_start_without_options_uses_the_machines_own_cards_and_says_nothing(tmp_path):
    options, note = started(tmp_path)
    assert (options.fake_gpus, options.config, note) == ("", None, "")
    assert list(tmp_path.iterdir()) == []


def test_what_a_start_leaves_out_is_as_at_the_last_one_and_that_is_said(tmp_path, monkeypatch):
    config = tmp_path / "pond.yaml"
    config.touch()
    monkeypatch.chdir(tmp_path)
    started(tmp_path, "--fake-gpus", "2x8:V100-32GB", "--config", "pond.yaml")
    monkeypatch.chdir("/")
    options, note = started(tmp_path)
    assert (options.fake_gpus, options.config) == ("2x8:V100-32GB", config)
    assert note == (
        f"as at the last start: --fake-gpus 2x8:V100-32GB --config {config} (`none` forgets --fake-gpus and --config)"
    )


def test_what_is_given_counts_and_is_remembered_instead(tmp_path):
    started(tmp_path, "--fake-gpus", "2x8:V100-32GB")
    assert started(tmp_path, "--fake-gpus", "1x4:V100-32GB")[1] == ""
    assert started(tmp_path)[0].fake_gpus == "1x4:V100-32GB"


@pytest.mark.parametrize("left", [b"", bytes(40)], ids=["emptied", "zeroed"])
def test_options_that_a_power_cut_emptied_have_to_be_given_again(tmp_path, left):
    started(tmp_path, "--fake-gpus", "2x8:V100-32GB")
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(left)
    for given in ([], ["--fake-gpus", "2x8:V100-32GB"], ["--config", "none"]):
        with pytest.raises(UnavailableError, match="name them once more"):
            started(tmp_path, *given)
    started(tmp_path, "--fake-gpus", "none", "--config", "none")
    assert started(tmp_path)[0].fake_gpus == ""


def test_none_forgets(tmp_path):
    (tmp_path / "pond.yaml").touch()
    started(tmp_path, "--fake-gpus", "2x8:V100-32GB", "--config", str(tmp_path / "pond.yaml"))
    options, note = started(tmp_path, "--fake-gpus", "none", "--config", "none")
    assert (options.fake_gpus, options.config, note) == ("", None, "")
    assert started(tmp_path)[1] == ""


def test_a_configuration_that_is_gone_is_named_with_what_to_do(tmp_path):
    config = tmp_path / "pond.yaml"
    config.touch()
    started(tmp_path, "--config", str(config))
    config.unlink()
    with pytest.raises(UnavailableError, match="--config none"):
        started(tmp_path)


def test_the_database_is_that_of_the_last_start_and_its_password_is_not_kept(tmp_path):
    given = "postgresql+psycopg://pond:hidden@db/millpond?connect_timeout=3&password=hidden"
    assert started(tmp_path, "--store", given)[0].store == given
    assert all("hidden" not in file.read_text() for file in tmp_path.iterdir())
    options, note = started(tmp_path)
    assert options.store == "postgresql+psycopg://pond@db/millpond?connect_timeout=3"
    assert note == f"as at the last start: --store {options.store} (`none` forgets --store)"
    assert started(tmp_path, "--store", "none")[0].store == started(tmp_path)[0].store == ""


def test_a_sqlite_file_elsewhere_is_remembered_as_it_was_named(tmp_path):
    given = "sqlite:////srv/a b?c.db"
    started(tmp_path, "--store", given)
    assert started(tmp_path)[0].store == given


@pytest.mark.parametrize("refused", [["--fake-gpus", "no such cards"], ["--store", "none"]])
def test_what_a_refused_start_asked_for_is_not_remembered(tmp_path, refused):
    given = ["--fake-gpus", "1x4:V100-32GB", "--store", "postgresql+psycopg://pond@db/millpond"]
    before = started(tmp_path, *given)[0]
    write_json(tmp_path / IDENTITY_FILE, {"server": "a1", "state_dir": str(tmp_path), "has_database": True})
    wanted = [*refused, "--store", "none"]
    with pytest.raises(MillpondError):
        serve(*with_remembered(parse_options(["--state-dir", str(tmp_path), "--port", "0", *wanted])))
    assert started(tmp_path)[0] == before


def test_the_log_is_verified_in_the_database_of_the_last_start_while_no_server_runs(tmp_path, database_url):
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    started(state_dir, "--store", database_url)
    arguments = ["verify", "--state-dir", str(state_dir)]

    def refusal(*more: str) -> str:
        return str(CliRunner().invoke(cli, [*arguments, *more]).exception)

    assert "the database has no log" in refusal()
    assert "no database in" in refusal("--store", "none")
    with StateDir(state_dir):
        assert "stop it with `pond down`" in refusal()


def test_a_database_of_another_version_is_not_verified_and_stays_as_it_is(tmp_path, database_url):
    state_dir = tmp_path / "state"
    state_dir.mkdir(mode=0o700)
    started(state_dir, "--store", database_url)
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'of_yesterday'"))
    done = CliRunner().invoke(cli, ["verify", "--state-dir", str(state_dir)])
    assert "it is at 'of_yesterday'" in str(done.exception)
    assert "use the version that wrote it" in done.exception.remedy
    with engine.connect() as connection:
        left = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one()
    assert left == "of_yesterday"
    engine.dispose()
    assert list(tmp_path.glob("*.before-*")) == []
