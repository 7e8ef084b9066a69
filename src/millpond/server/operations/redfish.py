"""Switches a node by the management controller of its machine: the action ``ComputerSystem.Reset`` of Redfish (DMTF
DSP0266). That a controller takes it says only that the machine was told so.
"""

from __future__ import annotations

import json
import ssl
import time
from pathlib import Path
from typing import Any, Final

from millpond.server.http.outgoing import bounded
from millpond.specs.config.files import bounded_text
from millpond.specs.config.power_saving import RedfishReset
from millpond.specs.errors import BadValueError

_ACTION: Final = "/Actions/ComputerSystem.Reset"


_ANSWERS_WITHIN_S: Final = 20.0


_MOST_READ: Final = 65_536
"""Bytes of an answer."""


_LONGEST_MESSAGE: Final = 300


def reset_system(reset: RedfishReset, node: str, within_s: float) -> str:
    """Have a node's machine switched; returns what went wrong, empty if nothing did.

    A machine that is as it should be already has been switched: controllers refuse that, and the next server runs
    again what one before it began.
    """
    import httpx2  # here, as most servers switch no machine

    system, within_s, began_at = reset.system_of(node), min(within_s, _ANSWERS_WITHIN_S), time.monotonic()
    try:
        password = bounded_text(Path(reset.password_file)).strip("\r\n")
    except (OSError, UnicodeDecodeError, BadValueError) as error:
        return f"{reset.password_file} cannot be read ({error})"

    def asked(method: str, url: str, body: Any = None) -> tuple[int, Any]:
        """The status of an answer, and what it holds; None if that is no JSON."""
        with (
            httpx2.Client(timeout=within_s, verify=reset.verify, auth=(reset.user, password)) as client,
            bounded(url, within_s, lambda _host, _reach: True) as extensions,
            client.stream(
                method, url, json=body, extensions=extensions, headers={"Accept-Encoding": "identity"}
            ) as answer,
        ):
            return answer.status_code, _parsed(next(answer.iter_raw(_MOST_READ), b""))

    try:
        code, said = asked("POST", system + _ACTION, {"ResetType": reset.kind})
        if 200 <= code < 300 or _state_in(asked("GET", system)[1]) in reset.leads_to:
            return ""
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        if (distrust := _distrust_in(error)) is not None:
            return f"the certificate of {system} is not trusted ({distrust.verify_message})"
        if time.monotonic() - began_at >= within_s:  # what cuts the connection then may look as if the controller had
            return f"{system} does not answer within {within_s:g} s"
        return f"{system} does not answer ({str(error) or type(error).__name__})"
    message = _message_in(said)
    return f"{system} answered {code}" + (f": {message}" if message else "")


def _distrust_in(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _state_in(system: Any) -> str:
    """The ``PowerState`` of a machine; empty where it says none."""
    return str(system.get("PowerState", "")) if isinstance(system, dict) else ""


def _message_in(answer: Any) -> str:
    """What an error says, from the most exact part of it (DSP0266, error responses); empty where it is none."""
    try:
        error = answer["error"]
        parts = [*error.get("@Message.ExtendedInfo", ()), {"Message": error.get("message", "")}]
        found = next((part["Message"] for part in parts if part.get("Message")), "")
    except (KeyError, TypeError, AttributeError):
        return ""
    return " ".join(str(found).split())[:_LONGEST_MESSAGE]
