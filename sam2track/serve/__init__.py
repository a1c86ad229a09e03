"""An editor's child process: requests come in as JSON lines, answers go out. docs/serve.md describes it for users."""

from __future__ import annotations

from sam2track.serve.loop import serve
from sam2track.serve.protocol import PROTOCOL, protocol_schema

__all__ = ["PROTOCOL", "protocol_schema", "serve"]
