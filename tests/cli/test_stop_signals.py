"""A command that stays up is stopped by signals, at whatever moment they come."""

import signal
import threading

import pytest

from eigenfed.cli.stop_signals import stop_at_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_even_while_the_event_is_locked(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = threading.Event()
    with stop_at_signals(stop):
        with stop._cond:  # type: ignore[attr-defined] # as the main thread does when it waits
            signal.raise_signal(number)
        assert stop.wait(60.0)
    assert signal.getsignal(number) is before


def test_without_a_signal_nothing_is_stopped() -> None:
    stop, threads = threading.Event(), threading.active_count()
    with stop_at_signals(stop):
        assert threading.active_count() == threads + 1
    assert not stop.wait(0.1)
    assert threading.active_count() == threads
