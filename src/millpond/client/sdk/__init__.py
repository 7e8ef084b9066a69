"""Talk to a Millpond server from Python: ``Client().submit({...})``."""

from millpond.client.sdk.client import Client
from millpond.client.sdk.transport.discovery import Address, find_server
from millpond.specs.base_directories import default_state_dir

__all__ = ["Address", "Client", "default_state_dir", "find_server"]
