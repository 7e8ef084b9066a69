"""Who comes into a group: by an admin's word, or invited by a lead and by their own."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from auth_world import API, AuthWorld, error_of
from test_roles_and_routes import put_photos

from millpond.model.errors import NotFoundError
from millpond.server.auth import group_invitations
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.group_invitations import VALID_S, GroupInvitations
from millpond.server.auth.records import GroupMember, TokenKind, User
from millpond.server.auth.roles import UserRole
from millpond.server.storage.files import service
from millpond.server.storage.files.blobs import BlobStore
from millpond.server.storage.files.datasets import Dataset
from millpond.specs.job.snapshots import FolderSnapshot

INVITATION = f"{API}/groups/speech/invitations/max"
MEMBERSHIP = f"{API}/groups/speech/membership"


def groups_of(world: AuthWorld, user: str) -> dict[str, str]:
    return {each["group"]: each["role"] for each in world.client(user).get(f"{API}/whoami").json()["groups"]}


def test_a_lead_takes_nobody_in_unasked_and_does_not_learn_who_is_there(world: AuthWorld) -> None:
    told = {
        name: world.client("sue").put(f"{API}/groups/speech/members/{name}", json={"role": "viewer"})
        for name in ("max", "never-was")
    }
    assert {answer.status_code for answer in told.values()} == {403}
    assert "group invite" in error_of(told["max"]).remedy
    assert told["max"].text.replace("max", "never-was") == told["never-was"].text
    invited = [
        world.client("sue").put(f"{API}/groups/speech/invitations/{name}", json={"role": "viewer"})
        for name in ("max", "never-was")
    ]
    assert [answer.status_code for answer in invited] == [200, 200]
    assert groups_of(world, "max") == {"vision": "member"}
    assert world.client("sue").put(f"{API}/groups/speech/members/sam", json={"role": "viewer"}).status_code == 200


def test_whoever_is_invited_accepts_once_or_declines(world: AuthWorld) -> None:
    sue, max_ = world.client("sue"), world.client("max")
    shown = sue.put(INVITATION, json={"role": "viewer"}).json()
    assert shown["invited"] == [{"user": "max", "role": "viewer"}]
    (place,) = max_.get(f"{API}/whoami").json()["invitations"]
    assert (place["group"], place["role"], place["by"]) == ("speech", "viewer", "sue")
    assert world.client("mia").post(MEMBERSHIP).status_code == 404, "it is for one user alone"
    assert max_.post(MEMBERSHIP).status_code == 200
    assert groups_of(world, "max") == {"vision": "member", "speech": "viewer"}
    assert sue.put(INVITATION, json={"role": "lead"}).status_code == 409
    assert sue.delete(f"{API}/groups/speech/members/max").status_code == 200
    assert max_.post(MEMBERSHIP).status_code == 404, "it was used"
    sue.put(INVITATION, json={"role": "viewer"})
    assert max_.delete(MEMBERSHIP).status_code == 204
    assert max_.post(MEMBERSHIP).status_code == 404
    sue.put(INVITATION, json={"role": "viewer"})
    assert sue.delete(INVITATION).json()["invited"] == []
    assert max_.post(MEMBERSHIP).status_code == 404


def test_an_older_invitation_does_not_bring_back_a_member_who_was_taken_out(world: AuthWorld) -> None:
    sue, max_, admin = world.client("sue"), world.client("max"), world.client("amy")
    sue.put(INVITATION, json={"role": "lead"})
    assert admin.put(f"{API}/groups/speech/members/max", json={"role": "viewer"}).status_code == 200
    assert max_.post(MEMBERSHIP).status_code == 404, "an admin has decided otherwise"
    assert groups_of(world, "max")["speech"] == "viewer"
    assert sue.delete(f"{API}/groups/speech/members/max").status_code == 200
    assert max_.post(MEMBERSHIP).status_code == 404
    assert groups_of(world, "max") == {"vision": "member"}


def test_members_do_not_see_who_is_invited(world: AuthWorld) -> None:
    world.client("sue").put(INVITATION, json={"role": "viewer"})
    for user, seen in (("sue", True), ("amy", True), ("sam", False)):
        groups = {group["name"]: group for group in world.client(user).get(f"{API}/groups").json()["groups"]}
        assert bool(groups["speech"]["invited"]) is seen, user


def test_an_invitation_ends_with_time_and_with_the_rights_of_who_made_it(world: AuthWorld) -> None:
    olga, max_ = world.client("olga"), world.client("max")
    world.client("sue").put(INVITATION, json={"role": "lead"})
    olga.put(f"{API}/groups/speech/members/sue", json={"role": "member"})
    assert max_.post(MEMBERSHIP).status_code == 404
    olga.put(f"{API}/groups/speech/members/sue", json={"role": "lead"})
    olga.patch(f"{API}/users/sue", json={"disabled": True})
    assert max_.post(MEMBERSHIP).status_code == 404
    olga.patch(f"{API}/users/sue", json={"disabled": False})
    world.clock.now += VALID_S
    assert world.client("max").post(MEMBERSHIP).status_code == 404


def test_a_token_that_is_confined_accepts_nothing(world: AuthWorld) -> None:
    world.client("sue").put(INVITATION, json={"role": "viewer"})
    _, secret = world.accounts.tokens.issue("max", TokenKind.PERSONAL, 60.0, "reader", frozenset({"read-jobs"}))
    answer = world.client().post(MEMBERSHIP, headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 403


def test_open_invitations_are_kept_over_a_restart_and_have_a_bound(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_invitations, "MOST_PER_GROUP", 2)
    for name, status in (("a1", 200), ("a2", 200), ("a3", 422), ("a2", 200)):
        answer = world.client("sue").put(f"{API}/groups/speech/invitations/{name}", json={})
        assert answer.status_code == status
    again = GroupInvitations(AccountStore(world.store.database), world.accounts, world.clock)
    assert [each.user for each in again.of_group("speech")] == ["a1", "a2"]
    assert again.of_group("speech")[0].role is UserRole.MEMBER


def test_an_invitation_is_either_accepted_or_withdrawn(world: AuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    invitations = GroupInvitations(AccountStore(world.store.database), world.accounts, world.clock)
    invitations.invite("speech", "max", UserRole.VIEWER, "sue")
    put_member, was_withdrawn = world.accounts.put_member, list[bool]()

    def withdraw() -> None:
        try:
            invitations.withdraw("speech", "max")
        except NotFoundError:
            was_withdrawn.append(False)
        else:
            was_withdrawn.append(True)

    withdrawal = threading.Thread(target=withdraw)

    def put_while_withdrawn(group: str, user: str, role: UserRole) -> GroupMember:
        withdrawal.start()
        withdrawal.join(0.05)
        return put_member(group, user, role)

    monkeypatch.setattr(world.accounts, "put_member", put_while_withdrawn)
    assert invitations.accept("speech", "max").user == "max"
    withdrawal.join()
    assert was_withdrawn == [False]


def test_the_lead_of_another_group_of_its_owner_owns_no_dataset_and_reads_nothing_of_it(world: AuthWorld) -> None:
    put_photos(world)
    world.accounts.put_member("speech", "max", UserRole.VIEWER)
    sue = world.client("sue")
    for answer in (
        sue.patch(f"{API}/datasets/photos", json={"visibility": "everyone"}),
        sue.delete(f"{API}/datasets/photos/1"),
        sue.post(f"{API}/datasets/photos", json={"snapshot": "0" * 64}),
    ):
        assert answer.status_code == 403
    assert world.client("max").patch(f"{API}/datasets/photos", json={"visibility": "group"}).status_code == 200
    assert "photos" not in world.client("sue").get(f"{API}/audit", params={"by": "max"}).text
    assert "photos" in world.client("lea").get(f"{API}/audit", params={"by": "max"}).text
    assert world.client("lea").delete(f"{API}/datasets/photos/1").status_code == 200


def test_a_private_dataset_is_not_opened_by_a_lead(world: AuthWorld) -> None:
    put_photos(world)
    world.client("max").patch(f"{API}/datasets/photos", json={"visibility": "private"})
    answer = world.client("lea").patch(f"{API}/datasets/photos", json={"visibility": "group"})
    assert answer.status_code == 403


def test_what_somebody_of_two_groups_does_for_themselves_is_no_matter_of_either_lead(world: AuthWorld) -> None:
    world.accounts.add_user(User("eve"), "speech")
    world.accounts.put_member("vision", "eve", UserRole.VIEWER)
    world.client("olga").patch(f"{API}/users/eve", json={"disabled": True})
    for lead, seen in (("lea", False), ("sue", False), ("amy", True)):
        entries = world.client(lead).get(f"{API}/audit", params={"object": "eve"}).json()["entries"]
        assert bool(entries) is seen, lead


def test_a_dataset_whose_name_another_user_took_meanwhile_gets_no_version_of_theirs(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_photos(world)
    (first,) = world.client("max").get(f"{API}/datasets").json()["datasets"]
    assert world.client("max").delete(f"{API}/datasets/photos/1").status_code == 200
    complete = service.complete_snapshot

    def max_comes_first(blobs: BlobStore, digest: str) -> FolderSnapshot:
        monkeypatch.undo()
        put_photos(world)
        return complete(blobs, digest)

    monkeypatch.setattr(service, "complete_snapshot", max_comes_first)
    assert world.client("sam").post(f"{API}/datasets/photos", json={"snapshot": first["digest"]}).status_code == 403
    (second,) = world.client("max").get(f"{API}/datasets").json()["datasets"]
    assert (second["version"], second["user"]) == (2, "max")


def test_a_version_that_comes_while_its_dataset_is_closed_is_closed_too(
    world: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_photos(world)
    datasets = world.service.files._datasets
    closing = threading.Thread(target=world.service.files.share_dataset, args=("photos", "private"))
    add = datasets.add

    def close_and_add(put: Dataset) -> Dataset:
        closing.start()
        closing.join(0.5)
        return add(replace(put, digest=put.digest[::-1]))

    monkeypatch.setattr(datasets, "add", close_and_add)
    put_photos(world)
    closing.join(60.0)
    assert {each.visibility for each in datasets.all()} == {"private"}
