"""What jobs may ask for where they run as pods of a Kubernetes cluster: it is said when they are submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from millpond.model.errors import InvalidInputError
from millpond.model.hardware.nodes import ANY_CLUSTER
from millpond.model.sharing import GIVEN_VARIABLES, GPU_SLICES, VISIBLE_TO_RUNTIME
from millpond.server.auth.roles import Caller
from millpond.server.storage.files.service import FileService
from millpond.server.storage.files.volumes import VolumePlace, VolumeRules
from millpond.server.storage.provisioning.admission import Settled
from millpond.server.storage.provisioning.image_sources import ImageSources
from millpond.specs.errors import suggest
from millpond.specs.job.dataset_refs import dataset_ref
from millpond.specs.job.images import Pinned
from millpond.specs.job.job_file import JobFile, RoleFile
from millpond.specs.job.job_spec import JobSpec, check_job

NO_WAY: Final = "pods do not know the way to this server, from which files are carried into them and back"
WAY: Final = "have an admin set kubernetes.server_url, with the server listening where pods reach it (pond up --host)"
ONE_MACHINE: Final = "run it on a server of one machine, or leave that out"


@dataclass(frozen=True, slots=True)
class PodJobs:
    """Admits jobs that will be pods.

    Attributes:
        sources: knows which images a queue and a pool may have.
        volumes: knows which folders of the cluster they may have.
        files: checks what they refer to.
        default_image: of jobs that name none; empty: there is none.
        server_url: how pods reach this server; empty: they do not.
        extras: names of extended resources in the cluster, by what jobs call them.
        cluster_images: as ``default_image``, of those of several clusters that have their own.
    """

    sources: ImageSources
    volumes: VolumeRules
    files: FileService
    default_image: Callable[[], str]
    server_url: Callable[[], str]
    extras: Mapping[str, str]
    cluster_images: Mapping[str, str] = field(default_factory=dict)

    async def admit(self, file: JobFile, document: dict[str, Any], caller: Caller) -> Settled:
        """A job as it is stored.

        Raises:
            InvalidInputError: it asks for what pods are not given, for an image that it may not have, for a folder in
                no volume, for an extra resource that is none of the cluster's, for a file that was not sent, or for
                files that pods cannot fetch.
        """
        missing = _not_in_pods(file)
        if missing:
            raise InvalidInputError(f"jobs on Kubernetes have no {missing} yet", ONE_MACHINE)
        for role in file.all_roles():
            self.extended_resources(role)
        self.image_of(file, by_admin=caller.admin)
        if brought_in(file) and not self.server_url():
            raise InvalidInputError(NO_WAY, WAY)
        document = _taking_slices(file, await self.files.admit(file, document, caller, None))
        return Settled(document, _warnings(file, self.working_folder(file)))

    def extended_resources(self, role: RoleFile) -> dict[str, int]:
        """What tasks of a role have of the cluster's extended resources besides cards.

        Raises:
            InvalidInputError: one of its extra resources stands for none.
        """
        asked = {name: amount for name, amount in (role.extras or {}).items() if name != GPU_SLICES}
        for name in sorted(asked.keys() - self.extras.keys()):
            known = ", ".join(sorted(self.extras))
            remedy = f"name one of {known}" if known else "have an admin give one that name in kubernetes.extras"
            raise InvalidInputError(f"no resource of the cluster is called {name}", remedy)
        return {self.extras[name]: amount for name, amount in asked.items()}

    def working_folder(self, file: JobFile) -> tuple[VolumePlace, bool] | None:
        """The volume that a job which runs in place finds its folder in, and whether it may write there; None: it is
        in none that its queue's jobs may have, and the programs start where the image says.
        """
        place = None if file.ship or file.workdir is None else self.volumes.place(file.workdir)
        if file.workdir is None or place is None:
            return None
        with suppress(InvalidInputError):
            self.volumes.writable(file.queue, file.workdir)
            return place, True
        with suppress(InvalidInputError):
            self.volumes.readable(file.queue, file.workdir)
            return place, False
        return None

    def image_of(self, file: JobFile, *, by_admin: bool = False) -> str:
        """The reference of the image that its pods run.

        Args:
            by_admin: who may have registries within asked.

        Raises:
            InvalidInputError: it has none, or may not have it.
        """
        name = file.image.name if file.image is not None else self.default_image()
        if not name:
            raise InvalidInputError(
                "a job on Kubernetes runs in an image, and names none",
                "name one (--image), or have an admin set kubernetes.image",
            )
        if file.image is None:
            return name  # the admin's own choice
        return self.sources.check_reference(file.queue, name, file.pool, by_admin=by_admin)

    def with_image(self, spec: JobSpec) -> JobSpec:
        """As if its file said which image its pods have if it names none: so it is known which nodes hold that.

        Not of one that may run in any of several clusters, if these differ in it.
        """
        file = spec.file
        names = {self.cluster_images.get(str(file.cluster), self.default_image())}
        if file.cluster == ANY_CLUSTER:
            names |= {*self.cluster_images.values()}
        is_known = file.image is None and len(names) == 1 and "" not in names
        return spec.with_pinned(Pinned(default_image=names.pop()) if is_known else None)


def brought_in(file: JobFile) -> bool:
    """Whether its pods have anything to fetch from this server before its programs start."""
    return bool(file.ship or file.payload or any(dataset_ref(source) for source in file.data.values()))


def _warnings(file: JobFile, folder: tuple[VolumePlace, bool] | None) -> tuple[str, ...]:
    if file.workdir is None or file.ship or folder is not None:
        return ()
    return (f"its working directory is the image's own: {file.workdir} lies in no volume that it may have",)


def _not_in_pods(file: JobFile) -> str:
    """What it asks for that pods are not given, in words; empty when there is nothing."""
    has_parts = any(map(_is_part, file.all_roles()))
    given = sorted((GIVEN_VARIABLES if has_parts else {VISIBLE_TO_RUNTIME}) & {*file.env, *file.secrets})
    listens = "port" if file.serve is None else file.serve.listen
    asked = {
        "programs that listen on Unix sockets (serve.listen: socket)": listens == "socket",
        "network of the machine (network: host)": file.network == "host",
        "places that are kept after a failure (keep)": file.keep is not None,
        f"variable {given[0]} of their own{' beside a part of a card' * has_parts}" if given else "": bool(given),
    }
    return next((words for words, is_asked in asked.items() if is_asked), "")


def taking_slices(spec: JobSpec) -> JobSpec:
    """As if its file said that tasks with parts of cards are for nodes whose agent gives out parts."""
    document = _taking_slices(spec.file, spec.document)
    return spec if document is spec.document else replace(check_job(document), warnings=spec.warnings)


def in_a_cluster(spec: JobSpec, clusters: Sequence[str]) -> JobSpec:
    """As if its file said that it runs in any one of several clusters, if it says nothing else.

    Args:
        clusters: their names; none where there is one.

    Raises:
        InvalidInputError: it names another.
    """
    named = spec.file.cluster
    if named is None and clusters:
        return replace(check_job({**spec.document, "cluster": ANY_CLUSTER}), warnings=spec.warnings)
    if named not in (None, ANY_CLUSTER, *clusters):
        there = suggest(str(named), clusters) if clusters else "leave it out: this server drives one cluster"
        raise InvalidInputError(f"there is no cluster {named}", there)
    return spec


def _taking_slices(file: JobFile, document: dict[str, Any]) -> dict[str, Any]:
    parts = [_is_part(role) for role in file.all_roles()]
    if not any(parts):
        return document
    taken = {"extras": {GPU_SLICES: 1}}
    if file.roles is None:
        return {**document, **taken}
    roles = zip(document["roles"], parts, strict=True)
    return {**document, "roles": [{**role, **taken} if is_part else role for role, is_part in roles]}


def _is_part(role: RoleFile) -> bool:
    return role.gpus is not None and not role.gpus.whole
