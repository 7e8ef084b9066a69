"""The server's configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest

from millpond.model.errors import UnavailableError
from millpond.model.hardware.nodes import SharingPolicy
from millpond.model.sharing import DEFAULT_SLICE_RULES
from millpond.specs.config.cluster import load_cluster, read_cluster
from millpond.specs.config.queue_documents import read_queue_rules
from millpond.specs.config.tasks import RunAsFile, TasksFile
from millpond.specs.errors import SpecError

FULL = """\
pools:
- {name: shared, sharing: overcommitted, limit_factor: 2, suspends: true, turn: 2m, memory_overcommit: 1.5,
   longest_suspended: 10m, lending_hours: 20:00-08:00}
queues:
- {name: ada, parent: vision}
- {name: vision, guarantee: {gpus: 4}, limit: {gpus: 8}, weight: 2, borrows: false}
nodes:
- {name: n1, devices: 8, model: A100, device_memory: 80GiB, cpus: 96, memory: 1TiB, swap_memory: 64GiB,
   pool: shared, rack: r1, remaps: true}
"""


def test_the_floor_of_a_pool_is_a_part_of_its_devices_time() -> None:
    config = read_cluster("pools: [{name: gold, slices: {floor: 0.005}}, {name: free}]\n")
    assert config.slices["gold"].floor_milli == 5
    with pytest.raises(SpecError, match="floor"):
        read_cluster("pools: [{name: gold, slices: {floor: 5}}]\n")


def test_work_of_a_higher_class_leaves_nothing_where_no_floor_is_set() -> None:
    config = read_cluster("pools: [{name: gold, slices: {enforce: required}}]\n")
    assert config.slices["gold"].floor_milli == 0
    assert DEFAULT_SLICE_RULES.floor_milli == 0  # of a pool that says nothing of slices


def test_pools_queues_and_pretended_nodes_are_read() -> None:
    config = read_cluster(FULL)
    (pool,) = config.pools
    assert (pool.sharing, pool.limit_factor_milli, pool.suspends) == (SharingPolicy.OVERCOMMITTED, 2000, True)
    assert (pool.turn_s, pool.memory_factor_milli, pool.longest_suspended_s) == (120.0, 1500, 600.0)
    assert [str(window) for window in pool.lending] == ["20:00-08:00 UTC"]
    (node,) = config.nodes
    assert len(node.devices) == 8
    assert all(device.fake and device.remaps and device.memory_mib == 80 * 1024 for device in node.devices)
    assert (node.cpu_milli, node.pool, node.rack_name, node.swap_mib) == (96_000, "shared", "r1", 64 * 1024)


def test_pools_and_queues_name_the_registries_that_images_may_come_from() -> None:
    config = read_cluster(
        "pools: [{name: gold, images: [nvcr.io/nvidia/, quay.io]}, {name: free}, {name: shut, images: []}]\n"
        "queues: [{name: nlp, images: [docker.io/pytorch/]}]\n"
    )
    assert config.provisioning.images == {"gold": ("nvcr.io/nvidia", "quay.io"), "shut": ()}
    assert read_queue_rules(config.queue_documents)["nlp"].images == ("docker.io/pytorch",)


def test_an_amount_that_is_a_word_is_told_what_to_write() -> None:
    with pytest.raises(
        SpecError,
        match=r"guarantee: .four. is not a number; write a number of cards, or \{name: value\}; fields are gpus, ",
    ):
        read_cluster("queues:\n- {name: vision, guarantee: four}\n")


def test_faults_come_in_the_order_of_the_file() -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster("pols: []\nqueues:\n- {name: a, wieght: 2, limit: many}\npools:\n- {name: 5}\n")
    assert [problem.line for problem in caught.value.problems] == [1, 3, 3, 5]


def test_what_tasks_run_as_and_are_kept_to_is_read() -> None:
    config = read_cluster(
        "run_as: {users: unix, range: 300000 - 300009}\ntasks: {cpu: bound, processes: 100}\n"
        "pools:\n- {name: default, cpu_overcommit: 1.5}\n"
    )
    assert (config.run_as.users, config.run_as.numbers) == ("unix", range(300_000, 300_010))
    assert config.tasks == TasksFile(cpu="bound", processes=100)
    assert config.pools[0].cpu_factor_milli == 1_500
    plain = read_cluster("{}")
    assert (plain.run_as, plain.tasks) == (RunAsFile(), TasksFile())
    assert plain.run_as.users == "range"


def test_parents_come_before_their_children() -> None:
    assert [queue.name for queue in read_cluster(FULL).queues] == ["vision", "ada"]


@pytest.mark.parametrize(
    ("queues", "fault"),
    [
        (
            "- {name: a, guarantee: 8, limit: 4}",
            r"2:34: queues.0.limit: at most 4 GPUs, but it is guaranteed 8 GPUs; raise it to 8 GPUs",
        ),
        (
            "- {name: a, parent: g, guarantee: 3}\n- {name: g, guarantee: 4}\n- {name: b, parent: g, guarantee: 3}",
            r"3:24: queues.1.guarantee: 4 GPUs, but the queues below g are guaranteed 6 GPUs together; raise it to 6",
        ),
        (
            "- {name: g, limit: {cpus: 8}}\n- {name: h, parent: g}\n- {name: a, parent: h, guarantee: {cpus: 16}}",
            r"queues.0.limit: at most 8 CPUs, but the queues below g are guaranteed 16 CPUs",
        ),
    ],
)
def test_guarantees_that_cannot_hold_are_refused_with_their_line(queues: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        read_cluster(f"queues:\n{queues}\n")


@pytest.mark.parametrize("other", ["pools: [{name: a, sharing: sliecd}]", "nodes: [{name: n, pool: x}]", "queue: []"])
def test_promises_that_cannot_hold_are_told_with_the_other_faults_of_the_file(other: str) -> None:
    queues = "- {name: a, guarantee: 8, limit: 4}\n- {name: b, guarantee: 2, cells: {node: 3}}"
    with pytest.raises(SpecError) as caught:
        read_cluster(f"{other}\nqueues:\n{queues}\n")
    assert [problem.line for problem in caught.value.problems] == [1, 3, 4]


def test_of_queues_that_make_no_tree_no_promises_are_told() -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster("queues:\n- {name: a, parent: nowhere, guarantee: 8, limit: 4}\npool: []\n")
    assert [problem.line for problem in caught.value.problems] == [2, 3]


def test_a_limit_bounds_only_what_it_names_and_a_guarantee_gives_only_that() -> None:
    vision = read_cluster(FULL).queues[0]
    assert vision.guarantee.gpu_milli == 4000
    assert vision.guarantee.cpu_milli == 0
    assert vision.limit is not None
    assert vision.limit.gpu_milli == 8000
    assert vision.limit.cpu_milli > 10**12


def test_what_hangs_below_queues_that_lead_round_in_a_circle_is_no_fault() -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster("queues:\n- {name: a, parent: b}\n- {name: b, parent: a}\n- {name: c, parent: a}\n")
    assert [problem.line for problem in caught.value.problems] == [2, 3]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("queues:\n- {name: a, parent: b}\n", 2, "unknown queue 'b'"),
        ("queues:\n- {name: a, parent: b}\n- {name: b, parent: a}\n", 2, "below itself"),
        ("queues:\n- {name: a}\n- {name: a}\n", 3, "is taken"),
        ("queues:\n- {name: root}\n", 2, "is taken"),
        ("nodes:\n- {name: n}\n- {name: n}\n", 3, "the name 'n' is taken"),
        (
            "pools:\n- {name: a}\n- {name: b}\nnodes:\n- {name: n, pool: a}\n- {name: n, pool: b}\n",
            6,
            "node 'n' is in pool 'a' already",
        ),
        ("pools:\n- {name: a, memory_overcommit: 2}\n", 2, "no work is swapped off"),
        ("pools:\n- {name: a, suspends: true, packs: true}\n", 2, "shared in turns"),
        ("kubernetes: {}\npools:\n- {name: a, packs: true}\n", 3, "to one pod only"),
        ("nodes:\n- {name: a, pool: x}\n", 2, "unknown pool 'x'"),
        ("nodes:\n- {name: a, link_map: v100}\n", 2, "unknown link map"),
        ("pools:\n- {name: a, sharing: sliecd}\n", 2, "not allowed"),
        ("pool: []\n", 1, "unknown field 'pool'"),
        ("queues:\n- {name: a, weight: 0}\n", 2, "too small"),
        ("run_as:\n  range: 9-5\n", 2, "no range of user numbers"),
        ("run_as:\n  range: everybody\n", 2, "no range of numbers"),
        ("pools:\n- {name: a, cpu_overcommit: 0.5}\n", 2, "too small"),
        ("pools:\n- {name: a, turn: 0.001s}\n", 2, "turns of 0.001s"),
        (f"pools:\n- {{name: a, lending_hours: {'x' * 9_999}}}\n", 2, "xxx...xxx"),
        (f"pools:\n- {{name: a, sharing: {'x' * 9_999}}}\n", 2, "xxx... is not allowed"),
    ],
)
def test_faults_are_told_with_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster(text, "cluster.yaml")
    assert words in caught.value.problems[0].message
    assert len(caught.value.problems[0].message) < 500
    assert caught.value.problems[0].line == line


def test_a_queue_with_an_unknown_parent_is_not_offered_itself_nor_what_lies_below_it() -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster("queues:\n- {name: mix, parent: nix}\n- {name: nix2, parent: mix}\n- {name: apart}\n")
    assert caught.value.problems[0].hint == "use one of root, apart"


def test_a_pool_that_names_its_nodes_hears_how_nodes_come_into_pools() -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster("pools: [{name: big, nodes: [a, b]}]\nqueues: [{name: vision, nominalQuota: 8}]\n")
    pool, queue = caught.value.problems
    assert pool.loc == "pools.0.nodes"
    assert pool.hint.startswith("nodes name their pool: pretended ones by `pool` in the section `nodes`")
    assert queue.hint == "did you mean 'guarantee'?"


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="No such file"):
        load_cluster(tmp_path / "none.yaml")


def test_the_secret_of_a_webhook_lies_in_a_file_of_its_own(tmp_path):
    (tmp_path / "secret").write_text("quiet\n")
    text = f"webhooks: [{{name: team, url: 'https://chat/x', on: [job.failed], secret_file: {tmp_path}/secret}}]"
    (hook,) = read_cluster(text).webhooks
    assert (hook.secret, hook.on) == ("quiet", ("job.failed",))
    assert "quiet" not in repr(hook)


def test_a_webhook_that_names_no_topic_is_told_of_every_one():
    (hook,) = read_cluster("webhooks: [{name: team, url: 'https://chat/x'}]").webhooks
    told = "started preempted suspended succeeded failed cancelled"
    assert set(hook.on) == {f"job.{word}" for word in told.split()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("webhooks: [{name: a, url: 'ftp://x'}]", "url"),
        ("webhooks: [{name: a, url: 'http://x', on: [job.exploded]}]", "job.failed"),
        ("webhooks: [{name: a, url: 'http://x', secret_file: /no/such/file}]", "cannot be read"),
        ("webhooks: [{name: a, url: 'http://x', secret_file: /x, secret: X}]", "both secret and secret_file"),
        ("webhooks: [{name: a, url: 'http://x'}, {name: a, url: 'http://y'}]", "taken"),
        ("prices: {gpu_hour: {V100: -1}}", "V100"),
    ],
)
def test_a_wrong_webhook_or_price_is_told_with_its_place(text, said):
    with pytest.raises(SpecError) as raised:
        read_cluster(text, "pond.yaml")
    assert said in str(raised.value)
    assert str(raised.value).startswith("pond.yaml:1:")


def test_a_price_for_all_other_models_is_not_for_work_without_cards():
    prices = read_cluster("prices: {gpu_hour: {V100: 0.5, default: 0.2}}").prices
    assert (prices.cost("V100", 4), prices.cost("T4", 5), prices.cost("", 5)) == (2.0, 1.0, None)
    assert read_cluster("queues: []").prices.cost("V100", 1) is None


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("dev: {idle_after: 5s}", "use at least 1m"),
        ("dev: {longest: 0s}", "use more than 0s"),
        ("pools: [{name: a, turn: 2d}]", "use at most 1d"),
        ("queues: [{name: a, weight: 0}]", "use more than 0"),
        ("dev: {idle_after: 5}", "did you mean 5s, 5m or 5h?"),
        ("swap_memory: 12", "did you mean 12GiB, or 12MiB?"),
    ],
)
def test_bounds_are_told_with_their_units(text: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_cluster(text)
    assert [problem.hint for problem in caught.value.problems] == [hint]


def test_an_address_is_asked_for_in_words_and_by_an_example() -> None:
    with pytest.raises(SpecError, match=r"'pool.test' is not the address of a server; .* as https://pond.example.org"):
        read_cluster("listen: {public_url: pool.test}")


def test_limits_name_models_and_rules_of_queues_are_read() -> None:
    config = read_cluster(
        "queues:\n- {name: a, limit: {gpus: 4, models: {V100: 2, H100: 0.5}}, priorities: [normal, low], "
        "max_running_jobs: 3, max_dev_hours: 1.5, min_run: 30m}\n"
    )
    [queue] = config.queues
    assert queue.limit is not None
    assert (queue.limit.gpu_milli, queue.limit.models) == (4_000, (("H100", 500), ("V100", 2_000)))
    assert (queue.priorities, queue.running_jobs, queue.minimum_run_s) == ((0, 1), 3, 1_800.0)
    assert read_queue_rules(config.queue_documents)["a"].longest_dev_s == 5_400.0


def test_a_limit_of_a_model_that_no_machine_of_the_file_has_is_named_with_its_line() -> None:
    text = "nodes: [{name: n, devices: 2, model: V100}]\nqueues:\n- name: a\n  limit:\n    models: {V10: 1, V100: 1}\n"
    with pytest.raises(
        SpecError, match=r"5:19: queues.0.limit.models.V10: unknown model 'V10'; did you mean 'V100'"
    ) as caught:
        read_cluster(text)
    assert len(caught.value.problems) == 1


def test_a_guarantee_of_models_is_read_with_what_it_gives_of_others() -> None:
    config = read_cluster(
        "queues:\n- {name: a, guarantee: {models: {V100: 2, H100: 1}}}\n"
        "- {name: b, guarantee: {gpus: 4, models: {V100: 1}}}\n"
    )
    assert [queue.guarantee.gpu_milli for queue in config.queues] == [3_000, 4_000]
    assert config.queues[0].guarantee.models == (("H100", 1_000), ("V100", 2_000))


@pytest.mark.parametrize(
    ("queues", "wrong"),
    [
        (
            ["{name: a, guarantee: {models: {V10: 1}}}"],
            r"3:39: queues.0.guarantee.models.V10: unknown model 'V10'; did you mean 'V100'",
        ),
        (
            ["{name: a, guarantee: {gpus: 1, models: {V100: 2}}}"],
            r"3:24: queues.0.guarantee: 1 GPU, but 2 of single models",
        ),
        (
            ["{name: a, guarantee: {models: {V100: 2}}, limit: {models: {V100: 1}}}"],
            r"3:52: queues.0.limit: at most 1 GPU of model V100, but it is guaranteed 2 GPUs of model V100",
        ),
        (
            ["{name: a, guarantee: {models: {V100: 2}}}", "{name: b, parent: a, guarantee: {models: {V100: 3}}}"],
            r"3:24: queues.0.guarantee: 2 GPUs of model V100, but the queues below a are guaranteed 3 GPUs",
        ),
        (
            ["{name: a, guarantee: {models: {V100: 1}}, limit: 2}", "{name: b, parent: a, guarantee: 2}"],
            r"3:52: queues.0.limit: at most 2 GPUs, but the queues below a are guaranteed 3 GPUs",
        ),
    ],
)
def test_a_guarantee_of_models_that_cannot_hold_is_named_with_its_line(queues: list[str], wrong: str) -> None:
    text = "nodes: [{name: n, devices: 2, model: V100}]\nqueues:\n" + "".join(f"- {queue}\n" for queue in queues)
    with pytest.raises(SpecError, match=wrong):
        read_cluster(text)


def test_the_mail_server_has_a_usual_port_for_each_way(tmp_path: Path) -> None:
    for encryption, port in (("starttls", 587), ("tls", 465), ("none", 25)):
        text = f"notifications: {{mail: {{host: mx, sender: pond@example.org, encryption: {encryption}}}}}"
        mail = read_cluster(text).notifications.mail
        assert mail is not None
        assert (mail.port, mail.encryption) == (port, encryption)
    assert read_cluster("{}").notifications.mail is None


def test_the_password_of_the_mail_server_lies_in_a_file_of_its_own_reader(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text("quiet\n")
    text = f"notifications: {{mail: {{host: mx, sender: a@b, user: pond, password_file: {secret}}}}}"
    mail = read_cluster(text).notifications.mail
    assert mail is not None
    assert mail.password == "quiet"
    assert "quiet" not in repr(mail)
    secret.chmod(0o644)
    with pytest.raises(SpecError, match="other users of this machine can read"):
        read_cluster(text)


@pytest.mark.parametrize(
    ("mail", "said"),
    [
        ("sender: pond@example.org", "host"),
        ("host: mx", "sender"),
        ("host: mx, sender: Pond", "no sender"),
        ("host: mx, sender: 'a@b\\r\\nBcc: c@d'", "no sender"),
        ('host: mx, sender: "a@b\\nBcc: c@d"', "no sender"),
        ("host: 'mx\\n', sender: a@b", "host"),
        ("host: mx, sender: a@b, port: 70000", "port"),
        ("host: mx, sender: a@b, user: pond", "a user and a password"),
        ("host: mx, sender: a@b, password: WORD", "a user and a password"),
        ("host: mx, sender: a@b, user: p, password: WORD, password_file: /x", "both"),
        ("host: mx, sender: a@b, user: p, password: WORD, encryption: none", "unencrypted"),
        ("host: mx, sender: a@b, user: p, password_file: /no/such/file", "cannot be read"),
        ("host: mx, sender: a@b, domains: ['@example.org']", "no domain"),
        ("host: mx, sender: a@b, encryption: maybe", "starttls"),
    ],
)
def test_a_mail_server_that_could_not_be_used_is_refused_with_its_place(mail: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as refused:
        read_cluster(f"notifications: {{mail: {{{mail}}}}}")
    assert refused.value.problems[0].line == 1


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ("https://hooks.slack.com", "https://hooks.slack.com"),
        ("https://Open.Feishu.cn/", "https://open.feishu.cn"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://hooks.slack.com/services", None),
        ("hooks.slack.com", None),
        ("ftp://x", None),
        ("https://me@x", None),
    ],
)
def test_webhooks_of_users_may_lead_to_origins(origin: str, kept: str | None) -> None:
    text = f"notifications: {{chat: ['{origin}']}}"
    if kept is not None:
        assert read_cluster(text).notifications.chat == (kept,)
        return
    with pytest.raises(SpecError, match="no origin"):
        read_cluster(text)


def test_a_relative_certificate_is_refused_without_talk_of_datasets() -> None:
    with pytest.raises(SpecError) as refused:
        read_cluster("listen: {certificate: a.pem, key: /b.pem}\n")
    assert [each.hint for each in refused.value.problems] == ["write an absolute path"]
