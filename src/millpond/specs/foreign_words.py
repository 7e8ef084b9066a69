"""Fields of other tools (Slurm, Kubernetes, Kueue, docker), each with the field of Millpond's files that says the same.

The command line names its options after the same fields.
"""

from __future__ import annotations

from typing import Final

FOREIGN_FIELDS: Final = {
    "queue": "partition account queue_name local_queue cluster_queue",
    "time_limit": "time timeout walltime runtime duration max_time active_deadline_seconds max_exec_time_seconds",
    "memory": "mem ram",
    "gpus": "gpu gres gpus_per_task gpus_per_node num_gpus ngpus gpu_memory",
    "gpu_models": "constraint gpu_type gpu_types accelerator accelerators node_selector",
    "tasks": (
        "ntasks nodes replicas count parallelism completions workers num_workers instances min_count min_available"
        " min_replicas max_replicas"
    ),
    "roles": "pod_sets task_roles",
    "cpus": "cpu cpus_per_task num_cpus ncpus cores",
    "name": "job_name metadata title",
    "workdir": "chdir cwd working_dir directory",
    "env": "export environment env_vars variables",
    "after": "dependency dependencies depends_on needs",
    "priority": "qos nice priority_class priority_class_name",
    "retries": "retry restart restarts requeue restart_policy backoff_limit max_retries",
    "command": "cmd args script run entrypoint wrap",
    "image": "container containers docker_image container_image",
    "data": "volumes volume_mounts mounts datasets inputs",
    "kind": "type",
    "guarantee": "quota nominal_quota",
    "limit": "borrowing_limit",
    "parent": "cohort",
}


def _bare(word: str) -> str:
    """A word as all ways to write it have it: ``jobName``, ``job-name`` and ``example.org/job_name``."""
    return word.rpartition("/")[2].replace("-", "").replace("_", "").lower()


_OWN: Final = {_bare(word): field for field, words in FOREIGN_FIELDS.items() for word in words.split()}


def own_field(word: str) -> str:
    """The field that says what a field of another tool does there; empty: none is known."""
    return _OWN.get(_bare(word), "")
