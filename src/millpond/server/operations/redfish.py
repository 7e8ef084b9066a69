"""Switches a node by the management controller of its machine: the action ``ComputerSystem.Reset`` of Redfish (DMTF
DSP0266). That a controller takes it says only that the machine was told so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from millpond.server.http.outgoing import bounded
from millpond.specs.config.files import bounded_text
from millpond.specs.config.power_saving import RedfishReset
from millpond.specs.errors import BadValueError

_ACTION: Final = "/Actions/ComputerSystem.Reset"
_ANSWERS_WITHIN_S: Final = 20.0
"""A server that ends waits for requests that are under way."""
_MOST_READ: Final = 65_536
"""Bytes of an answer."""
_LONGEST_MESSAGE: Final = 300


def reset_system(reset: RedfishReset, node: str, within_s: float) -> str:
    """Have a node's machine switched; returns what went wrong, empty if nothing did."""
    import httpx2  # here, as most servers switch no machine

    system = reset.system_of(node)
    try:
        password = bounded_text(Path(reset.password_file)).strip("\r\n")
    except (OSError, UnicodeDecodeError, BadValueError) as error:
        return f"{reset.password_file} cannot be read ({error})"
    url, within_s = system + _ACTION, min(within_s, _ANSWERS_WITHIN_S)
    client = httpx2.Client(timeout=within_s, verify=reset.verify, auth=(reset.user, password))
    try:
        with (
            client,
            bounded(url, within_s, lambda _host, _reach: True) as extensions,
            client.stream("POST", url, json={"ResetType": reset.kind}, extensions=extensions) as answer,
        ):
            if answer.is_success:
                return ""
            said = _message_in(next(answer.iter_raw(_MOST_READ), b""))
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return f"{system} does not answer ({str(error) or type(error).__name__})"
    return f"{system} answered {answer.status_code}" + (f": {said}" if said else "")


def _message_in(body: bytes) -> str:
    """What an error says, from the most exact part of it (DSP0266, error responses); empty where it is none."""
    try:
        error = json.loads(body)["error"]
        parts = [*error.get("@Message.ExtendedInfo", ()), {"Message": error.get("message", "")}]
        found = next((part["Message"] for part in parts if part.get("Message")), "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return " ".join(str(found).split())[:_LONGEST_MESSAGE]
