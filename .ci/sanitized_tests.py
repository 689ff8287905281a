"""A plugin of pytest for .ci/sanitize: a run that was stopped goes on, and every buffer is memory of its own.

Invariant: a test is left out only if it has passed with the same sources, in a run of the same kind.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PASSED = pytest.StashKey[set[str]]()
LIST = Path(os.environ["SANITIZED_PASSED"])
# They are about the memory that buffers share.
SHARES_MEMORY = ("test_arena.py", "test_runs.py", "test_wrapper.py")


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[PASSED] = set(given["passed"])
    else:
        LIST.touch()
        config.stash[PASSED] = set(LIST.read_text().splitlines())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:  # type: ignore[no-untyped-def]
    """A worker that takes the place of one that crashed has to collect the same tests."""
    node.workerinput["passed"] = sorted(node.config.stash[PASSED])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = config.stash[PASSED]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_logreport(report: pytest.TestReport):  # type: ignore[no-untyped-def]
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" and report.passed or report.skipped:
        with LIST.open("a") as f:
            f.write(report.nodeid + "\n")
    elif report.failed:
        # At once: the end of the run is far away.
        with LIST.with_name("failed").open("a") as f:
            f.write(f"{report.nodeid}\n{report.longreprtext}\n")


@pytest.fixture(autouse=True)
def _no_shared_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """AddressSanitizer knows where an allocation ends, not where a buffer does."""
    # Not at the head: the tests set the environment before anything of dynamo_lite is imported.
    from dynamo_lite.backends.inductor.codegen.wrapper.arena import Arena
    from dynamo_lite.backends.inductor.codegen.wrapper.python import _Writer

    if request.path.name not in SHARES_MEMORY:
        monkeypatch.setattr(_Writer, "_arena", lambda self, calls, end: Arena({}, 0))
