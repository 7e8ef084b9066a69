"""An example for each field of job and configuration files, by the name of its model; each of them is read by a test.

An example is a whole file but for the command of a job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TARGET: Final = "requests_per_s: 20"
_SERVICE: Final = "kind: service\ntasks: {min: 1, max: 4}\n"


def _served(field: str) -> str:
    return f"kind: service\nserve: {{{field}}}"


def _scaled(field: str) -> str:
    return f"{_SERVICE}serve: {{scale: {{{field}}}}}"


def _swept(fields: str) -> str:
    return f"sweep: {{parameters: {{lr: [0.1, 0.2]}}, {fields}}}\ncommand: python train.py {{lr}}"


def _pool(field: str) -> str:
    return f"pools: [{{name: gold, {field}}}]"


def _queue(field: str) -> str:
    return f"queues: [{{name: vision, {field}}}]"


def _node(field: str) -> str:
    return f"nodes: [{{name: a, {field}}}]"


def _oidc(field: str) -> str:
    return (
        "listen: {public_url: 'https://pond.example.org'}\n"
        f"oidc: {{issuer: 'https://login.example.org', client_id: pond, {field}}}"
    )


def _layouts(more: str) -> str:
    return f"pools: [{{name: gold, mig: {{layouts: [[7g.141gb], [3g.71gb, 3g.71gb]]{more}}}}}]"


def _saving(rule: str, on: str = "on: 'bmc-power on $NODE'") -> str:
    saving = f"{{off: 'ssh $NODE poweroff', {on}, {rule}}}"
    return f"kubernetes: {{namespace: millpond}}\npools: [{{name: gold, save_energy: {saving}}}]"


def _redfish(field: str) -> str:
    system = "https://$NODE-bmc.example.org/redfish/v1/Systems/1"
    saving = f"{{redfish: {{system: '{system}', user: pond, password_file: /etc/pond/bmc, {field}}}}}"
    return f"kubernetes: {{namespace: millpond}}\npools: [{{name: gold, save_energy: {saving}}}]"


def _hook(field: str) -> str:
    return f"webhooks: [{{name: chat, url: 'https://hooks.example.org/1', {field}}}]"


def _mail(field: str) -> str:
    return f"notifications: {{mail: {{host: mail.example.org, sender: pond@example.org, {field}}}}}"


def _kubernetes(field: str) -> str:
    return f"kubernetes: {{{field}}}"


EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "JobFile": {
        "kind": "kind: dev",
        "name": "name: resnet50",
        "queue": "queue: vision",
        "pool": "pool: gold",
        "cluster": "cluster: east",
        "priority": "priority: high",
        "gpus": "gpus: 0.25",
        "gpu_models": "gpu_models: [A100, H100]",
        "cpus": "cpus: 8",
        "memory": "memory: 32GiB",
        "tasks": "tasks: {min: 2, max: 8}",
        "roles": "roles:\n  - {name: worker, tasks: 4, gpus: 1}\n  - {name: ps, tasks: 2}",
        "topology": "topology: same-rack",
        "command": "command: torchrun train.py",
        "workdir": "workdir: /home/ada/train",
        "env": "env: {NCCL_DEBUG: INFO}",
        "secrets": "secrets: [WANDB_API_KEY]",
        "retries": "retries: 3",
        "retry_on": "retries: 3\nretry_on: [75, SIGKILL, out-of-memory]",
        "fail_on": "retries: 3\nfail_on: [2, start-failed]",
        "retry_delay": "retries: 3\nretry_delay: 30s",
        "on_task_lost": "tasks: 4\non_task_lost: restart-task",
        "time_limit": "time_limit: 12h",
        "reservation": "reservation: vision-1",
        "deadline": "deadline: 2100-12-01 18:00 Europe/Berlin",
        "flexible": "flexible: 24h",
        "max_slowdown": "name: nightly-bert\nmax_slowdown: 5%",
        "keep": "keep: 30m",
        "checkpoint": "checkpoint: {signal: SIGUSR1, grace: 60s}",
        "min_run_time": "min_run_time: 10m",
        "preemptible": "preemptible: false",
        "window": 'window: "20:00-08:00"',
        "suspend": "suspend: freeze",
        "share_class": "share_class: backfill",
        "extras": "extras: {rdma: 1}",
        "ship": "ship: true",
        "data": "data: {images: dataset/imagenet@3, scratch: /data/scratch}",
        "output": "output: /results/resnet50",
        "after": "after: {ok: [prepare], any: [warm-up]}",
        "idempotency_key": "idempotency_key: nightly-2026-11-22",
        "network": "network: private",
        "serve": "kind: service\nserve: {path: whole, ready: /healthz}",
        "array": "array: 0-99%8",
        "sweep": "sweep: {parameters: {lr: [0.1, 0.01]}}\ncommand: python train.py {lr}",
        "image": "image: torch:2.4",
        "stdin": "stdin: true",
    },
    "Gpus": {
        "cards": "gpus: {cards: 2}",
        "compute": "gpus: {compute: 25%}",
        "memory": "gpus: {compute: 25%, memory: 4GiB}",
        "limit": "gpus: {compute: 25%, limit: 50%}",
    },
    "Tasks": {
        "desired": "tasks: {desired: 4, min: 2, max: 8}",
        "min": "tasks: {min: 2, max: 8}",
        "max": "tasks: {min: 2, max: 8}",
    },
    "RoleFile": {
        "name": "roles: [{name: worker}]",
        "tasks": "roles: [{name: worker, tasks: 4}]",
        "gpus": "roles: [{name: worker, gpus: 1}]",
        "gpu_models": "roles: [{name: worker, gpus: 1, gpu_models: [A100]}]",
        "cpus": "roles: [{name: worker, cpus: 8}]",
        "memory": "roles: [{name: worker, memory: 16GiB}]",
        "extras": "roles: [{name: worker, extras: {rdma: 1}}]",
        "command": "roles: [{name: worker, command: python train.py}]",
        "retry_on": "retries: 3\nroles: [{name: worker, retry_on: [75]}]",
        "fail_on": "roles: [{name: worker, fail_on: [2]}]",
        "daemon": "roles: [{name: worker, tasks: 4}, {name: ps, tasks: 2, daemon: true}]",
    },
    "RetryDelayFile": {
        "first": "retries: 3\nretry_delay: {first: 30s}",
        "factor": "retries: 3\nretry_delay: {first: 30s, factor: 3}",
        "longest": "retries: 3\nretry_delay: {first: 30s, longest: 10m}",
    },
    "Topology": {"prefer": "topology: {prefer: rack}", "require": "topology: {require: node}"},
    "CheckpointFile": {
        "mode": "checkpoint: {mode: transparent}",
        "signal": "checkpoint: {signal: SIGUSR1}",
        "grace": "checkpoint: {signal: SIGUSR1, grace: 2m}",
    },
    "WindowFile": {
        "hours": 'window: {hours: "20:00-08:00"}',
        "days": 'window: {hours: "00:00-24:00", days: Sat-Sun}',
        "time_zone": 'window: {hours: "20:00-08:00", time_zone: Europe/Berlin}',
    },
    "After": {
        "ok": "after: {ok: [prepare]}",
        "any": "after: {any: [prepare]}",
        "failed": "after: {failed: [train]}",
    },
    "Serve": {
        "path": _served("path: whole"),
        "listen": _served("listen: socket"),
        "scale": _scaled(_TARGET),
        "hold": _served("hold: {requests: 50}"),
        "drain": _served("drain: 1m"),
        "rollout": _served("rollout: {max_surge: 2}"),
        "ready": _served("ready: /healthz"),
    },
    "Scale": {
        "requests_per_s": _scaled(_TARGET),
        "open_requests": _scaled("open_requests: 4"),
        "latency": _scaled("latency: 500ms"),
        "device_use": _scaled("device_use: 60%"),
        "down_after": _scaled(f"{_TARGET}, down_after: 10m"),
        "ahead": _scaled(f"{_TARGET}, ahead: 10m"),
        "idle_after": "kind: service\ntasks: {min: 0, max: 4}\nserve: {scale: {idle_after: 10m}}",
        "rest": "kind: service\ntasks: {min: 0, max: 4}\nserve: {scale: {idle_after: 10m, rest: swap}}",
        "hours": _scaled(f'{_TARGET}, hours: [{{window: "08:00-20:00", min: 2}}]'),
    },
    "ReplicaHours": {
        "window": _scaled('hours: [{window: "08:00-20:00", min: 2}]'),
        "min": _scaled('hours: [{window: "08:00-20:00", min: 2}]'),
        "max": _scaled('hours: [{window: "20:00-08:00", max: 2}]'),
    },
    "RequestHold": {"requests": _served("hold: {requests: 50}"), "longest": _served("hold: {longest: 5m}")},
    "Rollout": {
        "max_surge": _served("rollout: {max_surge: 2}"),
        "max_unavailable": _served("rollout: {max_unavailable: 1}"),
        "deadline": _served("rollout: {deadline: 15m}"),
        "canary": _served("rollout: {canary: 10}"),
    },
    "ArrayFile": {
        "count": "array: {count: 100}",
        "indices": 'array: {indices: "1,5,7-9"}',
        "parallel": "array: {count: 100, parallel: 8}",
    },
    "SweepFile": {
        "parameters": _swept("method: grid"),
        "method": _swept("method: random, samples: 10"),
        "samples": _swept("method: random, samples: 10"),
        "seed": _swept("method: random, samples: 10, seed: 7"),
        "parallel": _swept("parallel: 4"),
        "metric": _swept("metric: loss"),
        "halving": _swept("metric: loss, halving: {factor: 2}"),
        "only": _swept("only: '1'"),
    },
    "Space": {
        "values": "sweep: {parameters: {lr: {values: [0.1, 0.2]}}}\ncommand: python train.py {lr}",
        "range": "sweep: {parameters: {layers: {range: [1, 9, 2]}}}\ncommand: python train.py {layers}",
        "uniform": "sweep: {parameters: {lr: {uniform: [0, 1]}}, method: random, samples: 9}\ncommand: train {lr}",
        "log_uniform": "sweep: {parameters: {lr: {log_uniform: [0.001, 1]}}, method: random, samples: 9}\n"
        "command: train {lr}",
    },
    "SweepMetric": {
        "name": _swept("metric: {name: loss}"),
        "goal": _swept("metric: {name: accuracy, goal: maximize}"),
        "printed": _swept("metric: {name: loss, printed: 'loss={value}'}"),
        "printed_step": _swept("metric: {name: loss, printed: 'loss={value}', printed_step: 'step={step}'}"),
    },
    "Halving": {
        "factor": _swept("metric: loss, halving: {factor: 2}"),
        "first_step": _swept("metric: loss, halving: {first_step: 5}"),
        "rungs": _swept("metric: loss, halving: {rungs: [5, 20, 80]}"),
    },
    "ImageRequest": {"name": "image: {name: 'torch:2.4'}", "optional": "image: {name: 'torch:2.4', optional: true}"},
    "NamedCluster": {
        "kubeconfig": _kubernetes("clusters: {east: {kubeconfig: /etc/pond/east}, west: {kubeconfig: /etc/pond/west}}"),
        "context": _kubernetes("clusters: {east: {context: east}, west: {context: west}}"),
        "namespace": _kubernetes("clusters: {east: {context: east}, west: {context: west, namespace: ml}}"),
        "service_account": _kubernetes("clusters: {east: {context: east}, west: {context: west, service_account: ml}}"),
        "pull_secrets": _kubernetes("clusters: {east: {context: east}, west: {context: west, pull_secrets: [mirror]}}"),
        "server_url": _kubernetes(
            "clusters: {east: {context: east}, west: {context: west, server_url: 'https://pond.west.example.org'}}"
        ),
        "claims": _kubernetes(
            "volumes: {words: {claim: words, path: /datasets/words}}, "
            "clusters: {east: {context: east}, west: {context: west, claims: {words: words-west}}}"
        ),
        "extras": _kubernetes(
            "extras: {rdma: rdma/hca}, "
            "clusters: {east: {context: east}, west: {context: west, extras: {rdma: nvidia.com/roce}}}"
        ),
        "nodes": _kubernetes("clusters: {east: {context: east}, west: {context: west, nodes: all}}"),
        "tolerate": _kubernetes("clusters: {east: {context: east}, west: {context: west, tolerate: [dedicated]}}"),
        "node_timeout": _kubernetes("clusters: {east: {context: east}, west: {context: west, node_timeout: 2m}}"),
        "image": _kubernetes(
            "image: 'python:3.12', "
            "clusters: {east: {context: east}, west: {context: west, image: 'mirror.west/python:3.12'}}"
        ),
        "helper_image": _kubernetes(
            "clusters: {east: {context: east}, west: {context: west, helper_image: 'mirror.west/python:3.12-slim'}}"
        ),
    },
    "KubernetesFile": {
        "clusters": _kubernetes("clusters: {east: {kubeconfig: /etc/pond/east}, west: {kubeconfig: /etc/pond/west}}"),
        "machine": _kubernetes("clusters: {east: {kubeconfig: /etc/pond/east}}, machine: here"),
        "kubeconfig": _kubernetes("kubeconfig: /etc/pond/kubeconfig"),
        "context": _kubernetes("context: gpu-cluster"),
        "namespace": _kubernetes("namespace: millpond"),
        "nodes": _kubernetes("nodes: all"),
        "image": _kubernetes("image: 'python:3.12'"),
        "service_account": _kubernetes("service_account: jobs"),
        "pull_secrets": _kubernetes("pull_secrets: [registry]"),
        "server_url": _kubernetes("server_url: 'http://millpond.millpond.svc:7433'"),
        "helper_image": _kubernetes("helper_image: 'python:3.12-slim'"),
        "volumes": _kubernetes("volumes: {imagenet: {claim: imagenet, path: /datasets/imagenet, read_only: true}}"),
        "extras": _kubernetes("extras: {rdma: rdma/hca_shared_devices_a}"),
        "tolerate": _kubernetes("tolerate: [dedicated]"),
        "adopt": _kubernetes("adopt: {namespaces: {team-a: vision}}"),
        "node_timeout": _kubernetes("node_timeout: 2m"),
    },
    "VolumeFile": {
        "path": _kubernetes("volumes: {fast: {host_path: /mnt/nvme0, path: /scratch}}"),
        "claim": _kubernetes("volumes: {results: {claim: results-s3, path: /results}}"),
        "host_path": _kubernetes("volumes: {scratch: {host_path: /scratch}}"),
        "read_only": _kubernetes("volumes: {words: {claim: words, path: /datasets/words, read_only: true}}"),
    },
    "AdoptFile": {
        "namespaces": _kubernetes("adopt: {namespaces: {team-a: [vision, urgent], '*': default}}"),
        "priorities": _kubernetes("adopt: {namespaces: {team-a: vision}, priorities: {training: high}}"),
        "gated": _kubernetes("adopt: {namespaces: {team-a: vision}, gated: true}"),
    },
    "AdoptedNamespace": {
        "queues": _kubernetes("adopt: {namespaces: {team-a: {queues: [vision, urgent]}}}"),
        "user": _kubernetes("adopt: {namespaces: {team-a: {queues: [vision], user: alice}}}"),
    },
    "ClusterFile": {
        "kubernetes": "kubernetes: {namespace: millpond}",
        "dev": "dev: {idle_after: 2h}",
        "listen": "listen: {public_url: 'https://pond.example.org'}",
        "ssh": "ssh: {port: 2222}",
        "pools": "pools: [{name: gold, sharing: exclusive}]",
        "queues": "queues: [{name: vision, guarantee: 6}]",
        "usage_half_life": "usage_half_life: 1d",
        "nodes": "nodes: [{name: a, devices: 8, model: A100}]",
        "oidc": _oidc("create_users: false"),
        "prices": "prices: {gpu_hour: {A100: 1.8, default: 1.0}}",
        "adapt": "adapt: {hour: 3}",
        "energy": "energy: {price: 0.31, carbon_file: /etc/pond/carbon.csv}",
        "webhooks": "webhooks: [{name: chat, url: 'https://hooks.example.org/1', format: slack}]",
        "notifications": "notifications: {mail: {host: mail.example.org, sender: pond@example.org}}",
        "run_as": "run_as: {users: unix}",
        "tasks": "tasks: {cpu: bound}",
        "secrets": "secrets: {cipher: sm4-gcm}",
        "containers": "containers: {runtime: podman}",
        "sources": "sources: [{name: nfs, path: /mnt/nfs, cache: 500GiB}]",
        "cache": "cache: /local/cache",
        "swap_memory": "swap_memory: 128GiB",
        "mig": "mig: {instances: [3g.71gb, 3g.71gb]}",
    },
    "DevFile": {
        "idle_after": "dev: {idle_after: 2h}",
        "warn_before": "dev: {idle_after: 2h, warn_before: 15m}",
        "on_idle": "dev: {idle_after: 2h, on_idle: stop}",
        "open_pages": "dev: {idle_after: 2h, open_pages: ignore}",
        "longest": "dev: {longest: 3d}",
    },
    "ListenFile": {
        "certificate": "listen: {certificate: /etc/pond/server.pem, key: /etc/pond/server.key}",
        "key": "listen: {certificate: /etc/pond/server.pem, key: /etc/pond/server.key}",
        "trusted_proxies": "listen: {trusted_proxies: [10.0.0.0/8]}",
        "public_url": "listen: {public_url: 'https://pond.example.org'}",
        "jobs_domain": "listen: {public_url: 'https://pond.example.org', jobs_domain: jobs.example.org}",
    },
    "SshFile": {"port": "ssh: {port: 2222}", "host": "ssh: {port: 2222, host: 0.0.0.0}"},
    "PoolFile": {
        "name": "pools: [{name: gold}]",
        "sharing": _pool("sharing: overcommitted"),
        "limit_factor": _pool("sharing: overcommitted, limit_factor: 2"),
        "mig": _layouts(""),
        "save_energy": _saving("idle: 30m"),
        "suspends": _pool("suspends: true"),
        "cpu_overcommit": _pool("cpu_overcommit: 1.5"),
        "slices": _pool("slices: {escapes: kill}"),
        "power": _pool("power: {cap_w: 250}"),
        "turn": _pool("suspends: true, turn: 2m"),
        "memory_overcommit": _pool("suspends: true, memory_overcommit: 2"),
        "longest_suspended": _pool("suspends: true, longest_suspended: 4h"),
        "lending_hours": _pool('lending_hours: "20:00-08:00"'),
        "measured_growth": _pool("measured_growth: true"),
        "consolidates": _pool("consolidates: true"),
        "balances": _pool("balances: true"),
        "packs": _pool("packs: true"),
        "images": _pool("images: [registry.example.org]"),
    },
    "SlicesFile": {
        "escapes": _pool("slices: {escapes: suspend}"),
        "enforce": _pool("slices: {enforce: preferred}"),
        "hold": _pool("slices: {hold: mps}"),
        "floor": _pool("slices: {floor: 0.005}"),
    },
    "PowerFile": {
        "cap_w": _pool("power: {cap_w: 250}"),
        "clock_mhz": _pool("power: {clock_mhz: 1200}"),
        "classes": _pool("power: {cap_w: 300, classes: {backfill: {cap_w: 200}}}"),
    },
    "PowerSettingFile": {
        "cap_w": _pool("power: {classes: {backfill: {cap_w: 200}}}"),
        "clock_mhz": _pool("power: {classes: {backfill: {clock_mhz: 1000}}}"),
    },
    "QueueFile": {
        "name": "queues: [{name: vision}]",
        "parent": "queues: [{name: research}, {name: vision, parent: research}]",
        "guarantee": _queue("guarantee: 6"),
        "limit": _queue("limit: {gpus: 12, cpus: 96}"),
        "weight": _queue("weight: 2"),
        "borrows": _queue("borrows: false"),
        "may_exceed_cluster": _queue("guarantee: 64, may_exceed_cluster: true"),
        "cells": _queue("guarantee: 20, cells: {node: 2, 4 cards: 1}"),
        "pinned": _queue("guarantee: 16, pinned: [node-1, node-2]"),
        "ordering": _queue("ordering: edf"),
        "placement": _queue("placement: service=spread"),
        "priorities": _queue("priorities: [low, normal]"),
        "max_running_jobs": _queue("max_running_jobs: 20"),
        "max_dev_hours": _queue("max_dev_hours: 8"),
        "min_run": _queue("min_run: 30m"),
        "data": _queue("data: [/data/vision]"),
        "output": _queue("output: [/results/vision]"),
        "images": _queue("images: [registry.example.org/vision]"),
    },
    "GuaranteeFile": {
        "gpus": _queue("guarantee: {gpus: 6}"),
        "cpus": _queue("guarantee: {gpus: 6, cpus: 40}"),
        "memory": _queue("guarantee: {gpus: 6, memory: 512GiB}"),
        "card_memory": _queue("guarantee: {card_memory: 64GiB}"),
        "models": _queue("guarantee: {models: {A100: 8, V100: 16}}"),
    },
    "LimitFile": {
        "gpus": _queue("limit: {gpus: 12}"),
        "cpus": _queue("limit: {cpus: 96}"),
        "memory": _queue("limit: {memory: 512GiB}"),
        "card_memory": _queue("limit: {gpus: 4, card_memory: 160GiB}"),
        "models": _queue("limit: {gpus: 12, models: {H100: 4}}"),
    },
    "NodeFile": {
        "name": "nodes: [{name: a}]",
        "devices": _node("devices: 8"),
        "model": _node("devices: 8, model: A100"),
        "device_memory": _node("devices: 8, device_memory: 80GiB"),
        "cpus": _node("cpus: 96"),
        "memory": _node("memory: 768GiB"),
        "pool": "pools: [{name: gold}]\nnodes: [{name: a, pool: gold}]",
        "rack": _node("rack: r1"),
        "zone": _node("rack: r1, zone: z1"),
        "link_map": _node("devices: 8, link_map: v100-cube-mesh"),
        "swap_memory": _node("swap_memory: 128GiB"),
        "remaps": _node("devices: 8, remaps: true"),
        "extras": _node("extras: {rdma: 4}"),
    },
    "OidcFile": {
        "issuer": _oidc("create_users: true"),
        "client_id": _oidc("create_users: true"),
        "client_secret_file": _oidc("client_secret_file: /etc/pond/client-secret"),
        "scopes": _oidc("scopes: [profile, groups]"),
        "user_claim": _oidc("user_claim: email"),
        "groups_claim": _oidc("groups_claim: roles"),
        "groups": _oidc("groups: {vision-team: {group: vision, role: lead}}"),
        "create_users": _oidc("create_users: false"),
        "admins": _oidc("admins: [pond-admins]"),
        "allowed": _oidc("allowed: [engineering]"),
    },
    "OidcGroupFile": {
        "group": _oidc("groups: {vision-team: {group: vision}}"),
        "role": _oidc("groups: {vision-team: {group: vision, role: lead}}"),
    },
    "PriceList": {
        "currency": "prices: {currency: USD, gpu_hour: {default: 1.0}}",
        "gpu_hour": "prices: {gpu_hour: {A100: 1.8, default: 1.0}}",
    },
    "PowerSavingFile": {
        "off": _saving("idle: 30m"),
        "on": _saving("idle: 30m"),
        "wake_on_lan": _saving("broadcast: 10.0.0.255", on="wake_on_lan: {n1: '52:54:00:12:34:56'}"),
        "redfish": _redfish("verify: false"),
        "broadcast": _saving("broadcast: 10.0.0.255", on="wake_on_lan: {n1: '52:54:00:12:34:56'}"),
        "within": _saving("within: 1m"),
        "idle": _saving("idle: 1h"),
        "spare": _saving("spare: 2"),
        "cover": _saving("spare: 2, cover: 0.98"),
        "least_on": _saving("least_on: 2h"),
        "least_off": _saving("least_off: 30m"),
        "boot": _saving("boot: 4m"),
        "longest_boot": _saving("longest_boot: 20m"),
    },
    "RedfishFile": {
        "system": _redfish("verify: true"),
        "user": _redfish("verify: true"),
        "password_file": _redfish("verify: true"),
        "verify": _redfish("verify: false"),
    },
    "AdaptFile": {
        "hour": "adapt: {hour: 3}",
        "days": "adapt: {days: 14}",
        "margin": "adapt: {margin: 0.1}",
        "candidates": "adapt: {candidates: [{ordering: sjf}, {ordering: fair, placement: best-fit}]}",
    },
    "CandidateFile": {
        "ordering": "adapt: {candidates: [{ordering: 'sjf,dev=fifo'}]}",
        "placement": "adapt: {candidates: [{placement: best-fit}]}",
        "preempt": "adapt: {candidates: [{ordering: default, preempt: true}]}",
        "reserve": "adapt: {candidates: [{ordering: sjf, reserve: false}]}",
    },
    "EnergyFile": {
        "price": "energy: {price: 0.31}",
        "price_file": "energy: {price_file: /etc/pond/prices.csv}",
        "carbon": "energy: {carbon: 380}",
        "carbon_file": "energy: {carbon_file: /etc/pond/carbon.csv}",
        "cards": "energy: {cards: {Ascend910B: {idle_w: 90, busy_w: 310}}}",
        "flexible_by": "energy: {price: 0.31, carbon_file: /etc/pond/carbon.csv, flexible_by: carbon}",
    },
    "RateFile": {
        "value": "energy: {price: {value: 0.31}}",
        "hours": 'energy: {price: {value: 0.31, hours: [{window: "22:00-06:00", value: 0.19}]}}',
    },
    "RateHoursFile": {
        "window": 'energy: {price: {value: 0.31, hours: [{window: "Sat-Sun 00:00-24:00", value: 0.19}]}}',
        "value": 'energy: {price: {value: 0.31, hours: [{window: "22:00-06:00", value: 0.19}]}}',
    },
    "DeclaredPowerFile": {
        "idle_w": "energy: {cards: {Ascend910B: {idle_w: 90, busy_w: 310}}}",
        "busy_w": "energy: {cards: {Ascend910B: {idle_w: 90, busy_w: 310}}}",
    },
    "WebhookFile": {
        "name": _hook("format: millpond"),
        "url": _hook("format: millpond"),
        "on": _hook("on: [job.failed]"),
        "queues": _hook("queues: [vision]"),
        "format": _hook("format: feishu"),
        "secret": _hook("secret: CHAT_KEY"),
        "secret_file": _hook("secret_file: /etc/pond/chat-key"),
    },
    "NotificationsFile": {
        "mail": _mail("user: pond, password: MAIL_PASSWORD"),
        "chat": "notifications: {chat: ['https://hooks.slack.com', 'https://open.feishu.cn']}",
    },
    "MailFile": {
        "host": _mail("encryption: tls"),
        "port": _mail("port: 2525"),
        "encryption": _mail("encryption: tls"),
        "user": _mail("user: pond, password: MAIL_PASSWORD"),
        "password": _mail("user: pond, password: MAIL_PASSWORD"),
        "password_file": _mail("user: pond, password_file: /etc/pond/mail-password"),
        "sender": "notifications: {mail: {host: mail.example.org, sender: Millpond <pond@example.org>}}",
        "domains": _mail("domains: [example.org]"),
    },
    "RunAsFile": {"users": "run_as: {users: unix}", "range": "run_as: {users: range, range: 300000-365535}"},
    "TasksFile": {
        "cpu": "tasks: {cpu: bound}",
        "processes": "tasks: {processes: 8192}",
        "network": "tasks: {network: private}",
        "cards": "tasks: {cards: own}",
    },
    "SecretsFile": {"cipher": "secrets: {cipher: sm4-gcm}"},
    "ContainersFile": {"runtime": "containers: {runtime: apptainer}"},
    "SourceFile": {
        "name": "sources: [{name: nfs, path: /mnt/nfs, cache: 500GiB}]",
        "path": "sources: [{name: nfs, path: /mnt/nfs, cache: 500GiB}]",
        "cache": "sources: [{name: nfs, path: /mnt/nfs, cache: 500GiB}]",
    },
    "LayoutsFile": {
        "layouts": _layouts(""),
        "cards": _layouts(", cards: [0, 1]"),
        "stay": _layouts(", stay: 30m"),
    },
    "MigFile": {
        "instances": "mig: {instances: [3g.71gb, 3g.71gb]}",
        "create": "mig: {instances: [3g.71gb, 3g.71gb], create: true}",
    },
}
"""Examples by model and field."""
