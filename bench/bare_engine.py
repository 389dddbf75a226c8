"""FLARE's own round, without our relay: what a message costs that only the engine carries.

The two classes take the place of the relay's in a job, and answer a request that begins with
"bare" between themselves: no socket, no process of ours, and no slices.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from eigenfed.transport.nvflare.relay import RelayController, RelayExecutor
from eigenfed.transport.nvflare.wire import Body

_TOPIC = "bench.bare"


class BareController(RelayController):
    """Times a round of the engine itself, when it is asked to."""

    def _ask(self, site: str, key: str, data: Body, abort_signal: Signal) -> tuple[str, Body]:
        asked = bytes(data[:20])
        if not asked.startswith(b"bare "):
            return super()._ask(site, key, data, abort_signal)
        size = int(asked.split()[1])
        sites = [client.name for client in self._engine.get_clients()]
        rng = np.random.default_rng(0)
        sent = {name: rng.integers(0, 256, size, np.uint8) for name in sites}
        requests = {name: Shareable() for name in sites}
        for name, request in requests.items():
            request["data"] = sent[name] if size > 1 << 20 else sent[name].tobytes()
        with ThreadPoolExecutor(len(sites)) as pool:
            start = time.perf_counter()
            replies = dict(
                zip(sites, pool.map(self._send_bare, sites, requests.values()), strict=True)
            )
            seconds = time.perf_counter() - start
        good = sum(_is_reversed(replies[name], sent[name]) for name in sites)
        return "answered", f"{seconds} {good}".encode()

    def _send_bare(self, site: str, request: Shareable) -> Any:
        with self._engine.new_context() as context:
            replies = self._engine.send_aux_request(
                targets=[site], topic=_TOPIC, request=request, timeout=300.0, fl_ctx=context
            )
        return replies.get(site)


class BareExecutor(RelayExecutor):
    """Reverses bytes."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when the job starts."""
        super().handle_event(event_type, fl_ctx)
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(_TOPIC, self._reverse)

    def _reverse(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        reply = make_reply(ReturnCode.OK)
        data = request["data"]
        reply["data"] = data[::-1] if isinstance(data, bytes) else np.ascontiguousarray(data[::-1])
        return reply


def _is_reversed(reply: Any, sent: Any) -> bool:
    if reply is None or "data" not in reply:
        return False
    data = reply["data"]
    found = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    return bool(np.array_equal(found[::-1], sent))
