"""What ``ssh`` needs to reach jobs: a file of entries, a key of this user's own, known host keys.

All of it lies in ``ssh`` below the user's settings (``credentials.config_dir``), for its owner alone. The file holds
entries of several servers and jobs; writing one again leaves the others as they are.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from millpond.client.sdk.transport.credentials import config_dir, write_private
from millpond.model.errors import UnavailableError
from millpond.specs.api.accounts.ssh import SshInfo

HOST_PREFIX = "millpond-"
_BLOCK = re.compile(r"^Host (\S+)\n(?:[ \t]+.*\n)*", re.MULTILINE)
_HEAD = "# Written by pond dev ssh-config; it is written anew, so changes are lost.\n"


@dataclass(frozen=True, slots=True)
class SshHostEntry:
    """How one job is reached.

    Attributes:
        host, port: of the gateway, as seen from here.
    """

    job: str
    host: str
    port: int
    gateway: SshInfo

    @property
    def name(self) -> str:
        """What is typed behind ``ssh``."""
        return HOST_PREFIX + self.job

    def vscode_link(self, folder: str) -> str:
        """What opens a folder of the job in VS Code, by its extension Remote - SSH, where ssh knows the entry.

        Source: Visual Studio Code, "Command Line Interface (CLI)", opening VS Code with URLs.
        """
        return f"vscode://vscode-remote/ssh-remote+{quote(self.name)}{quote(folder or '/')}"

    def text(self) -> str:
        """The entry as ssh_config(5) has it."""
        folder = ssh_dir()
        lines = (
            f"Host {self.name}",
            f"    HostName {self.host}",
            f"    Port {self.port}",
            f"    User {self.job}",
            f'    IdentityFile "{folder / "id_ed25519"}"',
            "    IdentitiesOnly yes",
            f"    HostKeyAlias {self.gateway.name}",
            f'    UserKnownHostsFile "{folder / "known_hosts"}"',
            "    StrictHostKeyChecking yes",
            "    ForwardAgent no",
        )
        return "\n".join(lines) + "\n"

    def is_written(self) -> bool:
        """Whether the file has an entry of this name."""
        return any(found[1] == self.name for found in _BLOCK.finditer(_read(config_file())))


def ssh_dir() -> Path:
    """Where the file, the key and the known hosts lie."""
    return config_dir() / "ssh"


def config_file() -> Path:
    """The file with the entries."""
    return ssh_dir() / "config"


def write_entries(gateway: SshInfo, entries: list[SshHostEntry], only: bool) -> Path:
    """Add entries, or replace those of the same names; returns the file.

    Args:
        only: entries of other jobs at this gateway are dropped.

    Raises:
        UnavailableError: the files cannot be written.
    """
    path = config_file()
    try:
        blocks = {found[1]: found[0] for found in _BLOCK.finditer(_read(path))}
        if only:
            blocks = {name: text for name, text in blocks.items() if f"HostKeyAlias {gateway.name}\n" not in text}
        blocks |= {entry.name: entry.text() for entry in entries}
        _write(path, _HEAD + "".join(f"\n{blocks[name]}" for name in sorted(blocks)))
        hosts = path.with_name("known_hosts")
        others = [line for line in _read(hosts).splitlines() if line.partition(" ")[0] != gateway.name]
        _write(hosts, "".join(f"{line}\n" for line in (*others, f"{gateway.name} {gateway.host_key}")))
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written ({error.strerror})", "set XDG_CONFIG_HOME") from error
    return path


def own_key() -> str:
    """The public half of the key that is used for jobs only; made when there is none.

    Raises:
        UnavailableError: there is no ``ssh-keygen``, or the key cannot be written.
    """
    key = ssh_dir() / "id_ed25519"
    public = key.with_name("id_ed25519.pub")
    try:
        key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (key.exists() and public.exists()):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pond dev ssh-config", "-f", str(key)]
            # Half a key is replaced: ssh-keygen asks before it does so.
            subprocess.run(command, input=b"y\n", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
        return public.read_text()
    except FileNotFoundError as error:
        raise UnavailableError("ssh-keygen is not installed", "install OpenSSH (Debian: openssh-client)") from error
    except subprocess.CalledProcessError as error:
        output = error.stderr.decode(errors="replace").strip()
        raise UnavailableError(f"no key can be made ({output})", f"look into {key.parent}") from error
    except OSError as error:
        raise UnavailableError(f"{key} cannot be used ({error.strerror})", "set XDG_CONFIG_HOME") from error


def is_included() -> bool:
    """Whether this user's own settings of ssh include the file."""
    return _include_line() in _read(_users_config()).splitlines()


def include() -> Path:
    """Have this user's own settings of ssh include the file; returns theirs.

    Raises:
        UnavailableError: they cannot be written.
    """
    path = _users_config()
    try:
        if not is_included():
            # In front: behind a Host line it would hold for that host only.
            _write(path, f"{_include_line()}\n\n{_read(path)}".rstrip("\n") + "\n")
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written ({error.strerror})", "add the line by hand") from error
    return path


def _users_config() -> Path:
    return Path.home() / ".ssh" / "config"


def _include_line() -> str:
    return f'Include "{config_file()}"'


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _write(path: Path, text: str) -> None:
    write_private(path.resolve(), text)  # people link their settings to elsewhere
