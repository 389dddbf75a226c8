"""BLAS runs on one thread inside the context and as before outside, whoever holds it."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import scipy.linalg  # noqa: F401  # its BLAS counts in these tests
from threadpoolctl import OpenBLASController, threadpool_info, threadpool_limits

from eigenfed.linalg.threads import _BlasPin, limit_threads, map_in_order, one_blas_thread

PATIENCE_S = 20


def blas_threads() -> set[int]:
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


def in_a_thread(task: Callable[[], object]) -> None:
    thread = threading.Thread(target=task)
    thread.start()
    thread.join(PATIENCE_S)


def set_blas_threads(count: int) -> None:
    """Set the count for the process, and leave no thread in charge of it.

    threadpoolctl 3.8 obeys only the thread that set a limit first.
    """
    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    release(force=True)
    threadpool_limits(limits=count, user_api="blas")
    release(force=True)


@pytest.fixture(params=[1, 2], ids=["one before", "two before"])
def before(request: pytest.FixtureRequest) -> Iterator[int]:
    """Count of BLAS threads that the test starts with, and that it must leave."""
    count: int = request.param
    natural = max(blas_threads())
    set_blas_threads(count)
    assert blas_threads() == {count}
    yield count
    set_blas_threads(natural)


def test_limit_holds_inside_and_is_lifted_outside(before: int) -> None:
    with one_blas_thread:
        assert blas_threads() == {1}
    assert blas_threads() == {before}


def test_a_fresh_pin_finds_every_blas_library(before: int) -> None:
    pin = _BlasPin()
    for _ in range(2):
        with pin:
            assert blas_threads() == {1}
        assert blas_threads() == {before}


def test_nested_contexts_hold_the_limit_until_the_outermost_ends(before: int) -> None:
    with one_blas_thread:
        with one_blas_thread:
            with one_blas_thread:
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {before}


def test_count_that_changed_between_two_uses_is_the_one_restored(before: int) -> None:
    with one_blas_thread:
        pass
    with threadpool_limits(limits=3 - before, user_api="blas"):
        with one_blas_thread:
            assert blas_threads() == {1}
        assert blas_threads() == {3 - before}


def test_exception_passes_through_and_lifts_the_limit(before: int) -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread:
        _ = 1 // 0
    assert blas_threads() == {before}
    with one_blas_thread:
        assert blas_threads() == {1}
    assert blas_threads() == {before}


def test_exception_inside_a_nested_context_leaves_the_outer_limit(before: int) -> None:
    with one_blas_thread:
        with pytest.raises(ZeroDivisionError), one_blas_thread:
            _ = 1 // 0
        assert blas_threads() == {1}
    assert blas_threads() == {before}


def test_limit_holds_in_a_second_thread_after_the_first_one_is_done(before: int) -> None:
    with one_blas_thread:
        pass
    seen: list[set[int]] = []

    def worker() -> None:
        with one_blas_thread:
            seen.append(blas_threads())
        seen.append(blas_threads())

    in_a_thread(worker)
    assert seen == [{1}, {before}]


@pytest.mark.parametrize("before", [2], indirect=True)
def test_use_leaves_other_threads_free_to_set_limits_of_their_own(before: int) -> None:
    with one_blas_thread:
        pass
    seen: list[set[int]] = []

    def worker() -> None:
        with threadpool_limits(limits=1, user_api="blas"):
            seen.append(blas_threads())

    in_a_thread(worker)
    assert seen == [{1}]


@pytest.mark.parametrize("before", [2], indirect=True)
def test_overlapping_holders_leave_the_count_that_the_first_one_found(before: int) -> None:
    first_is_in, second_is_in, first_is_out, second_is_out = (threading.Event() for _ in range(4))
    seen: list[set[int]] = []

    def first() -> None:
        with one_blas_thread:
            first_is_in.set()
            second_is_in.wait(PATIENCE_S)
        first_is_out.set()
        # A thread that goes on living, as those of a pool do.
        second_is_out.wait(PATIENCE_S)

    def second() -> None:
        first_is_in.wait(PATIENCE_S)
        with one_blas_thread:
            second_is_in.set()
            first_is_out.wait(PATIENCE_S)
            seen.append(blas_threads())
        seen.append(blas_threads())
        second_is_out.set()

    holders = [threading.Thread(target=task) for task in (first, second)]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join(PATIENCE_S)
    assert seen == [{1}, {before}]
    assert blas_threads() == {before}


def test_a_threadpoolctl_without_control_by_one_thread_will_do(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.delattr(OpenBLASController, "clear_controlling_thread", raising=False)
        with one_blas_thread:
            assert blas_threads() == {1}
        assert blas_threads() == {before}


@pytest.mark.parametrize(("flops", "inside"), [(0.0, 1), (9.9e7, 1), (1e8, 2), (1e12, 2)])
@pytest.mark.parametrize("before", [2], indirect=True)
def test_only_small_jobs_run_on_one_thread(before: int, flops: float, inside: int) -> None:
    with limit_threads(flops):
        assert blas_threads() == {inside}
    assert blas_threads() == {before}


@pytest.mark.parametrize("flops", [0.0, 1e9], ids=["small", "large"])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_come_in_the_order_of_the_items(before: int, flops: float, count: int) -> None:
    assert list(map_in_order(lambda i: i * i, range(count), flops=flops)) == [
        i * i for i in range(count)
    ]
    assert blas_threads() == {before}


@pytest.mark.parametrize("flops", [5e7, 1e9])
@pytest.mark.parametrize("before", [2], indirect=True)
def test_a_large_job_has_as_many_threads_as_blas_had_and_blas_one_in_each(
    before: int, flops: float
) -> None:
    both = threading.Barrier(before, timeout=PATIENCE_S)
    seen: list[set[int]] = []

    def task(item: int) -> str:
        both.wait()
        seen.append(blas_threads())
        return threading.current_thread().name

    assert len(set(map_in_order(task, range(2), flops=flops))) == before
    assert seen == [{1}, {1}]
    assert blas_threads() == {before}


@pytest.mark.parametrize(("before", "flops"), [(1, 1e9), (2, 4.9e7)], indirect=["before"])
def test_a_small_job_or_a_single_thread_stays_where_it_is(before: int, flops: float) -> None:
    here = threading.current_thread().name
    names = map_in_order(lambda _: threading.current_thread().name, range(3), flops=flops)
    assert list(names) == [here] * 3


@pytest.mark.parametrize("before", [2], indirect=True)
def test_few_results_are_held_at_a_time(before: int) -> None:
    started: list[int] = []
    results = map_in_order(started.append, range(50), flops=1e9)
    next(results)
    assert len(started) <= before + 1
    assert len(list(results)) == 49


def test_an_error_in_a_task_is_that_of_the_job_and_lifts_the_limit(before: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda i: 1 // i, [2, 1, 0, 1], flops=1e9))
    assert blas_threads() == {before}


def test_a_blas_that_is_loaded_later_is_limited_too(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = _BlasPin()
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "scipy.linalg")
        with limit:
            pass
    limit._libraries = []  # what a look before scipy was imported had found, on some machines
    with limit:
        assert blas_threads() == {1}
    assert blas_threads() == {before}
