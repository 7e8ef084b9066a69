"""The body of a delivery: our own JSON, signed; or what a chat service takes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from millpond.specs.config.webhooks import Webhook

SIGNATURE_HEADER = "Millpond-Signature"
"""``t=SECONDS,v1=HEX``: HMAC-SHA256 with the secret over ``SECONDS.BODY``. A receiver refuses what is too old."""


def request_of(hook: Webhook, notice: dict[str, Any], sentence: str, now: int) -> tuple[bytes, dict[str, str]]:
    """Body and headers of one delivery.

    Args:
        now: seconds since 1970, part of what is signed.
    """
    headers = {"Content-Type": "application/json"}
    match hook.format:
        case "slack":
            return _json({"text": sentence}), headers
        case "feishu":
            body: dict[str, Any] = {"msg_type": "text", "content": {"text": sentence}}
            if hook.secret:
                body |= {"timestamp": str(now), "sign": _feishu_sign(hook.secret, now)}
            return _json(body), headers
        case _:
            content = _json({**notice, "text": sentence})
            if hook.secret:
                digest = hmac.new(hook.secret.encode(), f"{now}.".encode() + content, hashlib.sha256).hexdigest()
                headers[SIGNATURE_HEADER] = f"t={now},v1={digest}"
            return content, headers


def _feishu_sign(secret: str, now: int) -> str:
    """Source: Feishu open platform, custom bots, signature verification: HMAC-SHA256 of nothing under this key."""
    key = f"{now}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
