"""The controller and the executor that FLARE loads: they pass bytes on, and understand none.

A request crosses as follows, with a key by which both ends know it::

    hub ──ask──> controller ──ask──> executor ──ask──> node
                            <─later─                        while the node works: "ready?"
                            ──wait─>
        <answer─            <answer─          <─answer─

The first message carries the data, later ones only ask whether the reply is there, in slices of a
few seconds. So a site that works for an hour is not taken for a dead one, and a lost message costs
a slice. Large data travels as an array of bytes, which FLARE sends in chunks.

Every few seconds the executor asks its node whether it is there, and tells the controller. When
FLARE's own process is gone, or the hub, the job has no purpose, and ends.

Nothing that an exception says goes over the network: what goes wrong here is a code.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from eigenfed.transport.nvflare.wire import Body, FrameSocket, Header, connect_to

SOCKET = "EIGENFED_SOCKET"
"""Environment variable with the path of the socket of our own process."""

BEAT_S = 2.0
_SLICE_S = 10.0
_MARGIN_S = 10.0
_PING_S = 5.0
_SLOWEST = 250_000  # bytes a second that a connection carries at least
_LARGE = 4 << 20
_ASK, _BEAT = "eigenfed.ask", "eigenfed.beat"
_KEY, _DATA, _SIZE, _STATE = "key", "data", "size", "state"
_LATER, _READY, _UNKNOWN, _FAILED, _GONE = "later", "ready", "unknown", "failed", "gone"


class RelayController(Controller):  # type: ignore[misc]
    """Takes requests from the hub's socket, and has executors answer them."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Connect to the hub."""
        self._engine = fl_ctx.get_engine()
        self._hub = connect_to(Path(os.environ[SOCKET]))
        self._hub.send({"from": "controller"})
        self._parent = os.getppid()
        self._engine.register_aux_message_handler(_BEAT, self._hear)

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Pass requests on, until the hub is gone or the job is ended."""
        watch = threading.Thread(target=_exit_without, args=(self._parent,), daemon=True)
        watch.start()
        stop = threading.Thread(target=self._close_on, args=(abort_signal,), daemon=True)
        stop.start()
        with ThreadPoolExecutor(max_workers=64) as pool:
            try:
                while True:
                    header, data = self._hub.receive()
                    pool.submit(self._pass_on, header, data, abort_signal)
            except ConnectionError:
                abort_signal.trigger(True)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Disconnect from the hub."""
        self._hub.close()

    def process_result_of_unknown_task(
        self,
        client: Any,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Do nothing: there are no tasks."""

    def _close_on(self, abort_signal: Signal) -> None:
        while not abort_signal.triggered:
            time.sleep(0.2)
        self._hub.close()

    def _hear(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        peer = fl_ctx.get_peer_context()
        self._hub.send({"is": "beat", "site": peer.get_identity_name()})
        return make_reply(ReturnCode.OK)

    def _pass_on(self, header: Header, data: Body, abort_signal: Signal) -> None:
        """Ask a site, and report the outcome to the hub: answered, failed or unreached."""
        site, key = header["site"], header["key"]
        outcome = "unreached"
        reply: Body = b""
        try:
            outcome, reply = self._ask(site, key, data, abort_signal)
        except Exception:
            self.logger.exception("A request was not passed on.")
        try:
            self._hub.send({"is": outcome, "site": site, "key": key}, reply)
        except ConnectionError:
            abort_signal.trigger(True)

    def _ask(self, site: str, key: str, data: Body, abort_signal: Signal) -> tuple[str, Body]:
        """Ask until there is a reply, or the site's executor does not respond."""
        size, message = len(data), _message(key, data)
        while not abort_signal.triggered:
            reply = self._send(site, message, _MARGIN_S + _SLICE_S + size / _SLOWEST)
            state = _GONE if reply is None else reply.get(_STATE)
            if reply is None or state == _GONE:
                break
            if _DATA in reply:
                return "answered", _bytes_of(reply)
            if state == _FAILED:
                return "failed", b""
            if state == _UNKNOWN:
                size, message = len(data), _message(key, data)
            else:
                # What is large is announced first: it takes a time that depends on its size.
                size, message = reply[_SIZE], _message(key)
        return "unreached", b""

    def _send(self, site: str, message: Shareable, timeout_s: float) -> Shareable | None:
        with self._engine.new_context() as context:
            replies = self._engine.send_aux_request(
                targets=[site],
                topic=_ASK,
                request=message,
                timeout=timeout_s,
                fl_ctx=context,
                optional=True,
            )
        reply = (replies or {}).get(site)
        good = isinstance(reply, Shareable) and reply.get_return_code() == ReturnCode.OK
        return reply if good else None


class RelayExecutor(Executor):  # type: ignore[misc]
    """Takes requests from the controller, and has the node answer them."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[str, _Asked] = {}
        self._lock = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin to answer and to give signs of life when the job starts."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(_ASK, self._answer)
            threading.Thread(target=_exit_without, args=(os.getppid(),), daemon=True).start()
            threading.Thread(target=self._beat, args=(engine,), daemon=True).start()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Refuse: there are no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _beat(self, engine: Any) -> None:
        """Report to the controller every few seconds, as long as the node is there."""
        node: FrameSocket | None = None
        heard = False
        while True:
            node = _ping(node, heard=heard)
            heard = node is not None and self._send_beat(engine)
            time.sleep(BEAT_S)

    def _send_beat(self, engine: Any) -> bool:
        try:
            with engine.new_context() as context:
                replies = engine.send_aux_request(
                    targets=None,
                    topic=_BEAT,
                    request=Shareable(),
                    timeout=_PING_S,
                    fl_ctx=context,
                    optional=True,
                )
            return any(r.get_return_code() == ReturnCode.OK for r in (replies or {}).values())
        except Exception:
            self.logger.exception("A sign of life was not sent.")
            return False

    def _answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        try:
            return self._respond(request)
        except Exception:
            # What it says must not leave the site.
            self.logger.exception("A request was not answered.")
            return _reply(_FAILED)

    def _respond(self, request: Shareable) -> Shareable:
        key = str(request[_KEY])
        with self._lock:
            asked = self._asked.get(key)
            if asked is None:
                if _DATA not in request:
                    return _reply(_UNKNOWN)
                # An answer is kept until the next request, should its message be lost.
                self._asked = {k: a for k, a in self._asked.items() if not a.done.is_set()}
                asked = self._asked[key] = _Asked(_bytes_of(request))
        waited_before = _DATA not in request
        if not asked.done.wait(_SLICE_S):
            return _reply(_LATER)
        if asked.reply is None:
            with self._lock:
                self._asked.pop(key, None)
            return _reply(asked.problem)
        if len(asked.reply) > _LARGE and not (waited_before and asked.announced):
            asked.announced = True
            return _reply(_READY, size=len(asked.reply))
        return _reply(_READY, data=asked.reply)


class _Asked:
    """A request that the node works on, and its reply."""

    def __init__(self, data: Body) -> None:
        self.done = threading.Event()
        self.reply: Body | None = None
        self.problem = _GONE
        self.announced = False
        threading.Thread(target=self._work, args=(data,), daemon=True).start()

    def _work(self, data: Body) -> None:
        try:
            with closing(connect_to(_path())) as node:
                node.send({"do": "ask"}, data)
                header, reply = node.receive()
            if header.get("is") == "answer":
                self.reply = reply
            else:
                self.problem = _FAILED
        except ConnectionError:
            self.problem = _GONE
        finally:
            self.done.set()


def _ping(node: FrameSocket | None, *, heard: bool) -> FrameSocket | None:
    """Tell the node whether the controller hears of it; return a connection that works, or None."""
    try:
        node = node or connect_to(_path(), _PING_S)
        node.send({"do": "ping", "heard": heard})
        node.receive()
    except ConnectionError:
        if node is not None:
            node.close()
        return None
    return node


def _path() -> Path:
    return Path(os.environ[SOCKET])


def _message(key: str, data: Body | None = None) -> Shareable:
    message = Shareable()
    message[_KEY] = key
    if data is not None:
        _put(message, data)
    return message


def _reply(state: str, *, data: Body | None = None, size: int = 0) -> Shareable:
    reply: Shareable = make_reply(ReturnCode.OK)
    reply[_STATE], reply[_SIZE] = state, size
    if data is not None:
        _put(reply, data)
    return reply


def _put(message: Shareable, data: Body) -> None:
    # FLARE prints the repr of bytes somewhere, and streams arrays.
    large = len(data) > _LARGE
    message[_DATA] = np.frombuffer(data, np.uint8) if large else bytes(data)


def _bytes_of(message: Shareable) -> Body:
    data: Any = message[_DATA]
    return data.data.cast("B") if isinstance(data, np.ndarray) else data


def _exit_without(parent: int, sleep: Callable[[float], None] = time.sleep) -> None:
    """End this process at once when the process that started it is gone."""
    while os.getppid() == parent:
        sleep(1.0)
    os._exit(1)
