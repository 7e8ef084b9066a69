"""Logging in and looking after accounts on the command line: what is sent, what is printed, where secrets lie."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import resource
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import click
import httpx2
import pytest

from millpond.client.cli import main
from millpond.client.sdk import find_server
from millpond.client.sdk.transport import credentials
from millpond.client.sdk.transport.credentials import StoredLogin, config_dir, keep_login, kept_login
from millpond.model.errors import UnavailableError

USER = {"name": "eve", "groups": [{"group": "vision", "queue": "vision", "role": "lead"}], "limits": {"jobs": 2}}


@pytest.fixture
def run_pond(client, server, capsys, monkeypatch):
    monkeypatch.setattr("millpond.client.cli.connection.Client", lambda **_: client)
    monkeypatch.setattr("millpond.client.cli.commands.accounts.tokens.time.time", lambda: 1000.0)

    def log_in(url, request, transport=None, authority=""):
        from millpond.client.sdk.transport.login import log_in

        return log_in(url, request, httpx2.MockTransport(server))

    monkeypatch.setattr("millpond.client.cli.commands.accounts.login.log_in", log_in)

    def run(*arguments, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main.run_line(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def cells(table):
    """The first row of a table, without its heading."""
    return re.split(r"\s{2,}", table.splitlines()[1])


def body_of(request):
    return json.loads(request.content)


def test_a_login_is_kept_for_its_owner_alone_and_used_from_then_on(server, run_pond, monkeypatch):
    server.will(200, {"user": "eve", "token": "pond_a_b"})
    code, out, err = run_pond("login", "pool:7433/", "--user", "eve", "--stdin", stdin="correct horse\n")
    assert code == 0
    assert "logged in at http://pool:7433 as eve" in out
    assert "not encrypted" in err
    assert body_of(server.requests[0])["password"] == "correct horse"
    (kept,) = config_dir().iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    monkeypatch.delenv("MILLPOND_STATE")
    found = find_server()
    assert (found.url, found.token) == ("http://pool:7433", "pond_a_b")


BEGUN = {"id": "l1", "link": "https://pool/oidc/code", "code": "BCDF-GHJK", "expires_at": 9e9, "ask_every_s": 0.01}


@pytest.fixture
def without_screen(monkeypatch):
    """A terminal on a machine without a screen, and no waiting."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def signing_on(server, monkeypatch):
    """What asks openly asks the test's server."""

    def ask(kind, url, path, request, transport=None, authority=""):
        from millpond.client.sdk.transport.login import ask_openly

        return ask_openly(kind, url, path, request, httpx2.MockTransport(server), authority)

    monkeypatch.setattr("millpond.client.sdk.transport.oidc_login.ask_openly", ask)


def test_without_a_screen_a_login_in_a_browser_shows_a_link_and_a_code(server, run_pond, signing_on, without_screen):
    server.will(201, BEGUN)
    server.will(200, {"state": "waiting"})
    server.will(200, {"state": "granted", "user": "eve", "token": "pond_a_b"})
    code, out, err = run_pond("login", "https://pool", "--oidc")
    assert code == 0
    assert out.splitlines()[0] == "BCDF-GHJK"
    assert "open https://pool/oidc/code in a browser" in err
    began, *proofs = map(body_of, server.requests)
    assert began.keys() == {"challenge", "label"}
    assert [hashlib.sha256(proof["secret"].encode()).hexdigest() for proof in proofs] == [began["challenge"]] * 2
    assert kept_login("https://pool") == StoredLogin("https://pool", "eve", "pond_a_b")


def test_with_a_screen_a_browser_opens_and_comes_back_to_a_port_here(server, run_pond, signing_on, monkeypatch):
    opened = []

    def open_browser(link):
        opened.append(link)
        port = body_of(server.requests[0])["port"]
        with httpx2.Client(trust_env=False) as browser:
            assert browser.get(f"http://127.0.0.1:{port}/?login=l1&code=half").status_code == 200

    monkeypatch.setattr("millpond.client.cli.commands.accounts.login.has_browser", lambda: True)
    monkeypatch.setattr("millpond.client.cli.commands.accounts.login.webbrowser.open", open_browser)
    server.will(201, BEGUN | {"link": "https://pool/oidc/login?login=l1"})
    server.will(200, {"state": "granted", "user": "eve", "token": "pond_a_b"})
    assert run_pond("login", "https://pool", "--oidc")[0] == 0
    assert opened == ["https://pool/oidc/login?login=l1"]
    assert body_of(server.requests[1])["code"] == "half"


@pytest.mark.parametrize("more", [["--user", "eve"], ["--invitation"], ["--stdin"]])
def test_a_login_in_a_browser_asks_for_no_secrets_here(run_pond, more):
    code, _, err = run_pond("login", "https://pool", "--oidc", *more)
    assert code == 2
    assert "leave out --user" in err


def test_a_server_without_a_provider_is_told_in_plain_words(server, run_pond, signing_on, without_screen):
    error = {"cause": "this server knows no OpenID Connect provider", "remedy": "log in with a password"}
    server.will(404, {"error": error})
    code, _, err = run_pond("login", "https://pool", "--oidc")
    assert code == 4
    assert "log in with a password" in err


@pytest.mark.parametrize(
    ("arguments", "method", "told"),
    [
        (["bind", "eve", "0001"], "PUT", "eve is 0001 at https://login\n"),
        (["unbind", "eve"], "DELETE", "eve is no longer 0001 at https://login\n"),
    ],
)
def test_an_account_is_bound_to_its_owner_at_the_provider_and_back(server, run_pond, arguments, method, told):
    server.will(200, {"user": "eve", "issuer": "https://login", "subject": "0001"})
    assert run_pond("user", *arguments)[1] == told
    (request,) = server.requests
    assert (request.method, request.url.path) == (method, "/api/v1/users/eve/identity")
    assert method == "DELETE" or body_of(request) == {"subject": "0001"}


def test_an_invitation_chooses_a_password(server, run_pond):
    server.will(200, {"user": "eve", "token": "pond_a_b"})
    arguments = ("login", "https://pool", "--invitation", "--stdin")
    assert run_pond(*arguments, stdin="pond_i_j\nnew password\n")[0] == 0
    sent = body_of(server.requests[0])
    assert (sent["invitation"], sent["new_password"]) == ("pond_i_j", "new password")


@pytest.mark.parametrize("url", ["ftp://pool", "http://", "http://pool?token=x", "http://a:b@pool", "http://[x"])
def test_what_is_no_address_is_refused_before_a_password_is_asked_for(run_pond, url):
    code, _, err = run_pond("login", url)
    assert code == 2
    assert "is not a server's address" in err


def test_that_no_server_answers_is_said_before_a_password_is_asked_for(run_pond, monkeypatch):
    terminal = type("Terminal", (io.StringIO,), {"isatty": lambda _: True})
    monkeypatch.setattr("io.StringIO", terminal)
    monkeypatch.setattr("click.prompt", lambda *_, **__: pytest.fail("asked in vain"))
    code, _, err = run_pond("login", "http://127.0.0.1:1", "--user", "eve")
    assert (code, "no Millpond server answers at http://127.0.0.1:1" in err) == (2, True)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [("http://127.0.0.1:1", "start it with `pond up` if it is yours"), ("http://pool:1", "check the address")],
)
def test_where_no_server_answers_only_ones_own_is_for_the_user_to_start(server, run_pond, url, remedy):
    server.will_fail(httpx2.ConnectError("refused"))
    code, _, err = run_pond("login", url, "--user", "eve", "--stdin", stdin="x\n")
    assert (code, remedy in err) == (2, True)


def test_without_a_terminal_a_secret_is_asked_for_by_name(run_pond):
    code, _, err = run_pond("login", "https://pool", "--user", "eve")
    assert (code, err) == (2, "pond: no terminal to ask for the password of eve on\n      use --stdin\n")


def test_a_wrong_password_is_one_clear_error_and_nothing_is_kept(server, run_pond):
    server.will(401, {"error": {"cause": "user or password is wrong", "remedy": "try again"}})
    code, _, err = run_pond("login", "https://pool", "--stdin", stdin="x\n")
    assert (code, err) == (3, "pond: user or password is wrong\n      try again\n")
    assert kept_login("https://pool") is None


@pytest.mark.parametrize("status", [204, 401])
def test_logging_out_forgets_the_login_whether_or_not_the_server_knows_it(server, run_pond, status):
    keep_login(StoredLogin("http://pool:1", "eve", "secret"))
    server.will(status, {"error": {"cause": "the token is expired"}})
    assert run_pond("logout")[0] == 0
    assert kept_login("http://pool:1") is None
    assert server.requests[0].url.path == "/api/v1/logout"


def test_whoami_says_roles_limits_and_what_the_token_allows(server, run_pond):
    server.will(
        200,
        USER | {"user": "eve", "admin": False, "how": "token", "verbs": ["read-jobs"], "limits": {"gpu_milli": 2500}},
    )
    assert run_pond("whoami")[1].splitlines() == [
        "eve at http://pool:1, by a token",
        "lead of vision, queue vision",
        "this token allows read-jobs",
        "at most 2.5 cards",
    ]


def test_a_new_user_gets_an_invitation_on_standard_output(server, run_pond):
    server.will(200, {"settings": {"listen": {"public_url": "https://pool.example.org"}}})
    server.will(201, {"user": USER, "invitation": "pond_i_j"})
    code, out, err = run_pond("user", "add", "eve", "--group", "vision", "--role", "lead", "--jobs", "2")
    assert (code, out) == (0, "pond_i_j\n")
    assert "pond login https://pool.example.org --invitation" in err
    sent = body_of(server.requests[1])
    assert (sent["name"], sent["group"], sent["role"], sent["limits"]["jobs"]) == ("eve", "vision", "lead", 2)
    assert "is in no group" not in err


def test_of_a_new_user_in_no_group_the_next_command_is_named(server, run_pond):
    server.will(403, {"error": {"code": "not-allowed", "cause": "this token may not", "remedy": "ask an admin"}})
    server.will(201, {"user": USER, "invitation": "pond_i_j"})
    code, out, err = run_pond("user", "add", "eve")
    assert "pond login http://pool:1 --invitation" in err, "the address that the command itself uses"
    assert (code, out) == (0, "pond_i_j\n")
    assert "eve is in no group and may submit no jobs: `pond group add-member GROUP eve`" in err


def test_a_limit_below_nothing_is_refused(server, run_pond):
    server.will(200, {"users": [USER]})
    code, _, err = run_pond("user", "set", "eve", "--jobs", "-1")
    assert (code, err.splitlines()[0]) == (2, "pond: --jobs: '-1' is not a whole number of 0 or more")


@pytest.mark.parametrize("jobs", ["1000000001", "9" * 5000])
def test_a_limit_that_no_server_takes_is_refused_by_name(server, run_pond, jobs):
    server.will(200, {"users": [USER]})
    code, _, err = run_pond("user", "set", "eve", "--jobs", jobs)
    assert (code, len(server.requests)) == (2, 1)
    assert err.splitlines() == [
        f"pond: --jobs: {jobs[:20]} is more than 1000000000",
        "      write a smaller number, or none",
    ]


@pytest.mark.parametrize("time", ["0", "0s", "4000d"])
def test_a_time_of_dev_jobs_that_no_server_takes_is_refused_by_name(server, run_pond, time):
    server.will(200, {"users": [USER]})
    code, _, err = run_pond("user", "set", "eve", "--dev-time", time)
    assert (code, len(server.requests)) == (2, 1)
    assert err.splitlines() == [
        f"pond: --dev-time: '{time}' is not between 0 and 10 years",
        "      write a time such as 8h, or none",
    ]


def test_limits_that_are_not_given_stay_and_none_lifts_one(server, run_pond):
    server.will(200, {"users": [USER | {"limits": {"jobs": 2, "gpu_milli": 1000}}]})
    server.will(200, USER | {"limits": {"gpu_milli": 1000, "dev_s": 28800}})
    code, out, _ = run_pond("user", "set", "eve", "--jobs", "none", "--dev-time", "8h")
    assert (code, out) == (0, "eve: user, at most 1 card, dev jobs of 8h00m\n")
    sent = body_of(server.requests[1])
    assert sent["limits"] == {"gpu_milli": 1000, "dev_s": 28800}


def test_card_memory_is_limited_by_its_size(server, run_pond):
    server.will(200, {"users": [USER]})
    server.will(200, USER | {"limits": {"jobs": 2, "card_mib": 163_840}})
    code, out, _ = run_pond("user", "set", "eve", "--card-memory", "160GiB")
    assert (code, out) == (0, "eve: user, at most 2 running jobs, 160 GiB of card memory\n")
    assert body_of(server.requests[1])["limits"] == {"jobs": 2, "card_mib": 163_840}
    code, _, err = run_pond("group", "add", "vision", "--card-memory", "much")
    assert (code, err.startswith("pond: --card-memory: ")) == (2, True)


def test_a_limit_that_is_no_number_names_its_option(run_pond):
    code, _, err = run_pond("group", "add", "vision", "--gpus", "many")
    assert code == 2
    assert "--gpus" in err


def test_a_new_group_is_said_to_have_no_members(server, run_pond):
    server.will(201, {"name": "vision", "queue": "vision", "members": []})
    code, out, _ = run_pond("group", "add", "vision")
    assert (code, out) == (0, "vision: queue vision, no members; no limits\n")


def test_groups_are_listed_with_their_members(server, run_pond):
    members = [{"user": "lea", "role": "lead"}, {"user": "max", "role": "member"}]
    server.will(200, {"groups": [{"name": "vision", "queue": "v", "members": members}]})
    assert cells(run_pond("group", "ls")[1]) == ["vision", "v", "lea (lead), max", "no limits"]


TOKEN = {"id": "abc", "kind": "personal", "user": "eve", "name": "ci", "created_at": 0.0, "verbs": ["submit-jobs"]}


def test_a_token_is_printed_once(server, run_pond):
    server.will(201, TOKEN | {"secret": "pond_abc_x"})
    code, out, _ = run_pond("token", "create", "ci", "--allow", "submit-jobs,read-jobs", "--expires", "1d")
    assert (code, out) == (0, "pond_abc_x\n")
    sent = body_of(server.requests[0])
    assert (sent["lifetime_s"], sent["verbs"]) == (86400, ["submit-jobs", "read-jobs"])


def test_tokens_that_still_work_are_listed(server, run_pond):
    old = TOKEN | {"id": "old", "expires_at": 900.0}
    server.will(200, {"tokens": [TOKEN | {"expires_at": 4600.0, "used_at": 940.0}, old]})
    out = run_pond("token", "ls")[1]
    assert cells(out) == ["abc", "eve", "personal", "1m00s ago", "1h00m", "submit-jobs", "ci"]
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("job", ["train-abcde", "long-" * 10 + "abcde"])
def test_a_narrow_terminal_is_shown_whole_ids_in_the_audit_log_and_the_whole_change_in_several_lines(
    server, run_pond, monkeypatch, job
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    entry = {"at": 0.0, "user": "amy", "address": "::1", "how": "token", "verb": "change-jobs", "kind": "job"}
    change = {"before": "gpus=1", "after": "gpus=2, cpus=8, memory=64 GiB"}
    server.will(200, {"entries": [entry | change | {"object": job, "group": "", "status": 200}]})
    titles, line, *further = click.unstyle(run_pond("audit")[1]).splitlines()
    assert f"job {job}  gpus=1 -> " in line
    assert line.endswith("     200")
    at = titles.index("CHANGE")
    assert " ".join(part[at:].strip() for part in further).endswith("gpus=2, cpus=8, memory=64 GiB")
    assert job != "train-abcde" or max(map(len, (titles, line, *further))) <= 80


def test_the_audit_log_is_asked_for_by_who_when_and_what(server, run_pond):
    entry = {"at": 0.0, "user": "amy", "address": "::1", "how": "token", "verb": "change-users", "kind": "user"}
    server.will(200, {"entries": [entry | {"object": "max", "group": "", "before": "a", "after": "b", "status": 200}]})
    code, out, _ = run_pond("audit", "--by", "amy", "--since", "1970-01-02", "--object", "max", "-o", "wide")
    assert code == 0
    assert cells(out) == [
        "1970-01-01 00:00:00",
        "amy",
        "::1",
        "change-users",
        "user max",
        "a -> b",
        "200",
    ]
    asked = dict(server.requests[0].url.params)
    assert (asked["by"], asked["since"], asked["object"]) == ("amy", "86400.0", "max")
    assert run_pond("audit", "--since", "whenever")[0] == 2


def test_the_token_of_the_server_here_is_sent_to_no_other(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("secret\n")
    left = {"url": "http://127.0.0.1:5000", "pid": 1, "token_path": str(tmp_path / "token"), "version": "0.1"}
    (tmp_path / "server.json").write_text(json.dumps(left))
    monkeypatch.setenv("MILLPOND_STATE", str(tmp_path))
    assert find_server("http://127.0.0.1:5000/").token == "secret"
    with pytest.raises(UnavailableError, match="pond login http://elsewhere"):
        find_server("http://elsewhere")


def test_a_state_directory_that_is_named_beats_the_last_login(tmp_path):
    keep_login(StoredLogin("http://pool:1", "eve", "secret"))
    with pytest.raises(UnavailableError, match="pond up"):
        find_server(state_dir=tmp_path)
    with pytest.raises(UnavailableError, match="pond up"):
        find_server()  # $MILLPOND_STATE is set


def test_a_broken_file_of_logins_is_named():
    keep_login(StoredLogin("http://pool:1", "eve", "secret"))
    (path,) = config_dir().iterdir()
    path.write_text('{"servers": 1}')
    with pytest.raises(UnavailableError, match=r"logins\.json cannot be read"):
        kept_login()


def test_a_login_for_which_the_disk_has_no_room_leaves_those_before_it_and_no_piece_of_a_file():
    keep_login(StoredLogin("http://pool:7433", "eve", "pond_a_b"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(UnavailableError, match="cannot be written"):
            keep_login(StoredLogin("http://other:7433", "eve", "pond_c_d"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in config_dir().iterdir()] == ["logins.json"]
    assert kept_login() == StoredLogin("http://pool:7433", "eve", "pond_a_b")


@pytest.mark.parametrize("name", ["TOKEN=hush", "1TOKEN", "TO-KEN", ""])
def test_a_secret_that_no_variable_can_have_the_name_of_is_refused_before_its_value_is_asked_for(run_pond, name):
    code, _, err = run_pond("secret", "set", name, "--stdin", stdin="hush\n")
    assert code == 2
    assert f"{name!r} is not a name of a variable" in err
    assert sys.stdin.read() == "hush\n"


@pytest.mark.parametrize(
    "words",
    [
        ("secret", "set", "TOKEN"),
        ("webhooks", "add", "room", "--format", "slack"),
        ("notify", "chat", "--format", "slack"),
    ],
)
def test_nothing_secret_is_asked_for_while_no_server_runs(monkeypatch, capsys, tmp_path, words):
    monkeypatch.setattr("sys.stdin", io.StringIO("hush\n"))
    assert main.run_line([*words, "--stdin", "--state-dir", str(tmp_path)]) == 2
    assert "no Millpond server is running here" in capsys.readouterr().err
    assert sys.stdin.read() == "hush\n"


def test_an_account_of_this_machine_without_a_name_is_to_be_named(run_pond, server, monkeypatch):
    def without_name() -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("millpond.client.cli.commands.accounts.login.getpass.getuser", without_name)
    code, _, err = run_pond("login", "http://pool:1", "--stdin", stdin="hush\n")
    assert code == 2
    assert "has no name here" in err
    assert "--user" in err
    assert not server.requests


def test_of_two_logins_at_once_both_are_kept(monkeypatch):
    read, both_read = credentials._read, threading.Barrier(2, timeout=0.1)

    def read_at_once():
        found = read()
        with contextlib.suppress(threading.BrokenBarrierError):
            both_read.wait()
        return found

    logins = [StoredLogin(f"http://pool:{number}", "eve", "secret") for number in (1, 2)]
    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as pool:
        patched.setattr(credentials, "_read", read_at_once)
        list(pool.map(keep_login, logins))
    assert [kept_login(login.url) for login in logins] == logins
