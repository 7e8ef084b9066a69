"""Secrets of jobs: who may set them, which jobs get them, and that they show up nowhere else."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import pytest
import sqlalchemy as sa
from api_world import JOBS, Api, error_of

from millpond.model.errors import ConflictError, NotFoundError, UnavailableError
from millpond.server.auth.records import Group
from millpond.server.auth.roles import UserRole
from millpond.server.auth.vault import secrets
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import KEY_FILE, Vault
from millpond.server.store import schema

SECRETS = "/api/v1/secrets"
VALUE = "hf_a-token-that-is-nobody-elses-business"


def put(api: Api, path: str = "user/ada/HF_TOKEN", value: str = VALUE) -> None:
    answer = api.client.put(f"{SECRETS}/{path}", json={"value": value})
    assert answer.status_code == 201, answer.text
    assert value not in answer.text


def test_a_secret_is_listed_without_its_value_replaced_and_removed(api: Api) -> None:
    put(api, value="old")
    put(api)
    listed = api.client.get(SECRETS)
    (secret,) = listed.json()["secrets"]
    assert (secret["kind"], secret["owner"], secret["name"], secret["by"]) == ("user", "ada", "HF_TOKEN", "ada")
    assert VALUE not in listed.text
    assert api.vault.value("user", "ada", "HF_TOKEN") == VALUE
    assert api.client.delete(f"{SECRETS}/user/ada/HF_TOKEN").status_code == 204
    assert api.client.get(SECRETS).json()["secrets"] == []
    assert api.client.delete(f"{SECRETS}/user/ada/HF_TOKEN").status_code == 404


def test_an_owner_has_a_bounded_number_of_secrets_and_may_still_change_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "MOST_SECRETS", 2)
    put(api, "user/ada/A")
    put(api, "user/ada/B")
    refused = api.client.put(f"{SECRETS}/user/ada/C", json={"value": "x"})
    assert (refused.status_code, error_of(refused).cause) == (409, "user ada has 2 secrets")
    put(api, "user/ada/B", "another")
    put(api, "server/-/C")


def test_secrets_that_are_set_at_once_do_not_exceed_their_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "MOST_SECRETS", 1)
    store, both = api.vault._store, Barrier(2)
    count = store.others_of

    def count_together(*about: str) -> int:
        counted = count(*about)
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        return counted

    monkeypatch.setattr(store, "others_of", count_together)
    with ThreadPoolExecutor() as pool:
        puts = [pool.submit(api.vault.put, "user", "ada", name, VALUE, "ada") for name in "AB"]
    (refusal,) = filter(None, (put.exception() for put in puts))
    assert isinstance(refusal, ConflictError)
    assert len(api.vault.all()) == 1


@pytest.mark.parametrize("path", ["user/ada/9LIVES", "user/ada/A-B", "team/ada/A", "server/ada/A"])
def test_names_that_are_no_variables_and_owners_that_make_no_sense_are_refused(api: Api, path: str) -> None:
    assert api.client.put(f"{SECRETS}/{path}", json={"value": "x"}).status_code in (404, 422)


def test_a_job_that_names_a_secret_nobody_has_is_refused_with_what_to_do(api: Api) -> None:
    refused = api.client.post(JOBS, json={"command": "work", "secrets": ["HF_TOKEN"]})
    assert refused.status_code == 404
    assert error_of(refused).cause == "no secret 'HF_TOKEN' of user ada"
    assert "pond secret set HF_TOKEN" in error_of(refused).remedy


def test_a_secret_is_listed_with_the_living_jobs_that_are_given_it(api: Api) -> None:
    api.security.accounts.add_group(Group("vision", "default"))
    put(api)
    put(api, "user/ada/OTHER")
    put(api, "group/vision/HF_TOKEN")
    job, done = (api.submit(secrets=["HF_TOKEN"]) for _ in range(2))
    api.client.post(f"{JOBS}/{done.id}/stop")
    assert api.job(done.id).state == "cancelled"
    listed = api.client.get(SECRETS).json()["secrets"]
    assert {(secret["kind"], secret["name"]): secret["jobs"] for secret in listed} == {
        ("user", "HF_TOKEN"): [job.id],
        ("user", "OTHER"): [],
        ("group", "HF_TOKEN"): [],
    }


def test_the_value_is_in_nothing_that_the_server_stores_or_shows_of_a_job(api: Api) -> None:
    put(api)
    job = api.submit(secrets=["HF_TOKEN"])
    api.processor.keep_snapshot()
    shown = [api.client.get(f"{JOBS}/{job.id}{part}").text for part in ("", "/document", "/events", "/why")]
    assert VALUE not in "".join(shown)
    assert '"HF_TOKEN"' in shown[1]
    with api.store.database.connect() as connection:
        for table in schema.metadata.sorted_tables:
            assert VALUE not in str(connection.execute(sa.select(table)).all()), table.name
    api.security.audit.close()
    for path in api.state_dir.rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes(), path


def test_ones_own_secret_goes_before_that_of_the_group_and_others_are_not_given(api: Api) -> None:
    accounts = api.security.accounts
    accounts.add_group(Group("vision", "vision"))
    accounts.put_member("vision", "ada", UserRole.MEMBER)
    put(api, "group/vision/HF_TOKEN", "the group's")
    put(api, "group/vision/DB", "of all")
    assert api.vault.environment("ada", "vision", ["HF_TOKEN", "DB"]) == {"HF_TOKEN": "the group's", "DB": "of all"}
    put(api)
    assert api.vault.environment("ada", "vision", ["HF_TOKEN"]) == {"HF_TOKEN": VALUE}
    assert api.vault.environment("bob", "vision", ["HF_TOKEN"]) == {"HF_TOKEN": "the group's"}
    with pytest.raises(NotFoundError, match="no secret 'HF_TOKEN' of user sam or of group speech"):
        api.vault.environment("sam", "speech", ["HF_TOKEN"])


@pytest.mark.parametrize("cipher", Cipher)
def test_a_secret_cannot_be_passed_off_as_another_nor_opened_with_another_key(api: Api, cipher: Cipher) -> None:
    vault = Vault(api.store.secrets, api.state_dir, lambda: cipher, api.clock)
    vault.put("user", "ada", "A", "mine", "ada")
    assert vault.value("user", "ada", "A") == "mine"
    with api.store.database.begin() as connection:
        connection.execute(schema.secrets.update().values(owner="bob"))
    with pytest.raises(UnavailableError, match="cannot be opened"):
        vault.value("user", "bob", "A")
    with api.store.database.begin() as connection:
        connection.execute(schema.secrets.update().values(owner="ada"))
    (api.state_dir / KEY_FILE).write_bytes(b"another key, of at least 32 bytes")
    with pytest.raises(UnavailableError, match="not its key"):
        vault.value("user", "ada", "A")


def test_what_one_cipher_sealed_is_opened_after_another_was_chosen(api: Api) -> None:
    chosen = [Cipher.SM4_GCM]
    vault = Vault(api.store.secrets, api.state_dir, lambda: chosen[0], api.clock)
    vault.put("user", "ada", "A", "mine", "ada")
    chosen[0] = Cipher.AES_256_GCM
    assert vault.value("user", "ada", "A") == "mine"
