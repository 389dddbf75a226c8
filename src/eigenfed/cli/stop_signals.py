"""Commands that stay up, and end in order at Ctrl-C or when a service manager stops them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_at_signals(stop: threading.Event) -> Iterator[None]:
    """Set an event at Ctrl-C and SIGTERM; the handlers from before are restored at the end.

    The event is set by a thread of its own. A handler interrupts the main thread anywhere, also
    while that thread holds the lock of the event that it waits for: setting the event there would
    wait for the lock forever. Putting something into a `SimpleQueue` is safe in a handler.

    Parameters
    ----------
    stop : threading.Event
    """
    received: SimpleQueue[bool] = SimpleQueue()

    def wait_for_signal() -> None:
        if received.get():
            stop.set()

    before = {number: signal.signal(number, lambda *_: received.put(True)) for number in _SIGNALS}
    threading.Thread(target=wait_for_signal, daemon=True).start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        received.put(False)
