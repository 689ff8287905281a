"""Logs that a user can enable by name, counters, and the time that each phase of a compile takes.

An artifact is one stream of records, of the logger `dynamo_lite.<name>`. Artifacts are enabled by
`DYNAMO_LITE_LOGS="graph_breaks,+bytecode"`, by the same in `TORCH_LOGS` for the names that torch also has, and by
`set_logs`. A bare name enables an artifact, `+` shows more, `-` less (errors only), `all` stands for every artifact.
Warnings are shown unless `-` hides them. Invariants: a record carries the id of the frame that was being compiled as
`record.frame_id`; it is printed here only if no handler of the user's takes it.
"""
import contextlib
import dataclasses
import logging
import os
import sys
import threading
import types
import warnings
from collections.abc import Hashable, Iterator

from .clock import Clock

ROOT = "dynamo_lite"


@dataclasses.dataclass(frozen=True)
class LogArtifact:
    """One stream of records; `more` says what `+name` shows in addition."""

    name: str
    help: str
    more: str = ""

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger(f"{ROOT}.{self.name}")


class UnknownArtifact(ValueError):
    """A name in a log setting that is not the name of an artifact."""


ARTIFACTS: dict[str, LogArtifact] = {}


def register_artifact(name: str, help: str, more: str = "") -> logging.Logger:
    """Registers the artifact `name` and returns its logger."""
    assert name not in ARTIFACTS, f"log artifact {name!r} is registered twice"
    ARTIFACTS[name] = LogArtifact(name, help, more)
    logger = ARTIFACTS[name].logger
    logger.setLevel(logging.WARNING)
    logger.addFilter(_add_frame_id)
    return logger


def artifact(name: str) -> logging.Logger:
    """The logger of a registered artifact."""
    return ARTIFACTS[name].logger


def enabled(name: str, level: int = logging.INFO) -> bool:
    """Whether records of this level are shown. To be asked before making an expensive text."""
    return ARTIFACTS[name].logger.isEnabledFor(level)


# ---------------------------------------------------------------- records
class _State(threading.local):
    """The state of the compile that the thread is in."""

    def __init__(self) -> None:
        self.frame_id = ""
        self.phases: list[_Phase] = []
        self.collectors: list[dict[str, float]] = []


_state = _State()
# Reentrant, because a signal handler or a finalizer may run, and log, while its thread holds the lock.
_lock = threading.RLock()
# A fork may happen while another thread, which does not exist in the child, holds the lock.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_seen: set[tuple[str, Hashable]] = set()
_counters: dict[str, int] = {}
_phase_times: dict[str, float] = {}


@contextlib.contextmanager
def frame(frame_id: str) -> Iterator[None]:
    """A context whose records carry this id: `3/1` is the second compile of the fourth code object."""
    before, _state.frame_id = _state.frame_id, frame_id
    try:
        yield
    finally:
        _state.frame_id = before


def current_frame() -> str:
    """The id of the compile that the thread is in, such as ``3/1``; empty outside a compile."""
    return _state.frame_id


def _add_frame_id(record: logging.LogRecord) -> bool:
    if not hasattr(record, "frame_id"):
        record.frame_id = _state.frame_id
    return True


def first_time(name: str, key: Hashable) -> bool:
    """Whether `key` occurs for the first time in artifact `name` since the last reset; for messages that are shown
    once.

    A code object in the key is represented by its place and hash, so that it is not kept alive.
    """
    said = name, tuple(map(_place, key)) if isinstance(key, tuple) else _place(key)
    with _lock:
        if said in _seen:
            return False
        _seen.add(said)
        return True


def _place(key: Hashable) -> Hashable:
    return (key.co_filename, key.co_firstlineno, hash(key)) if isinstance(key, types.CodeType) else key


def warn_once(text: str, level: int = 3) -> None:
    """Issues a warning, once until the next reset.

    Args:
        level: stack level of the line that is blamed; 3 is the caller of the function that calls this.
    """
    if first_time("warnings", text):
        warnings.warn(text, stacklevel=level)


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stream = record.name.removeprefix(ROOT + ".")
        frame_id = getattr(record, "frame_id", "")
        level = "" if record.levelno < logging.WARNING else f" {record.levelname.lower()}"
        return f"[{ROOT} {stream}{' ' + frame_id if frame_id else ''}{level}] {super().format(record)}"


class _LastResort(logging.Handler):
    """Prints records on standard error that no handler of the user's takes."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(h is not self and record.levelno >= h.level for h in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        try:
            # sys.stderr is read each time, as it may have been redirected.
            sys.stderr.write(self.format(record) + "\n")
        except RecursionError:
            raise
        except Exception:  # any exception of a user's stream; this is the protocol of logging.Handler.emit
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        # It writes to standard error, too. Where that is what fails there is nobody left to tell, and a message that is
        # not shown is no reason for the program's call to fail.
        with contextlib.suppress(Exception):
            super().handleError(record)


def _install_handler() -> None:
    root = logging.getLogger(ROOT)
    handler = _LastResort()
    handler.setFormatter(_Formatter())
    root.addHandler(handler)


# ---------------------------------------------------------------- settings
_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}


def parse_settings(text: str) -> tuple[dict[str, int], list[str]]:
    """Parses `"graph_breaks,+bytecode,-guards"`: the levels by artifact (the last entry wins), and the unknown
    names."""
    levels: dict[str, int] = {}
    unknown = []
    for entry in text.split(","):
        entry = entry.strip()
        if not entry:
            continue
        sign = entry[0] if entry[0] in "+-" else ""
        name = entry[len(sign):].strip()
        if name == "all":
            levels.update(dict.fromkeys(ARTIFACTS, _LEVELS[sign]))
        elif name in ARTIFACTS:
            levels[name] = _LEVELS[sign]
        else:
            unknown.append(name)
    return levels, unknown


def _unknown_message(names: list[str], setting: str) -> str:
    known = ", ".join(["all", *sorted(ARTIFACTS)])
    return f"{setting}: unknown log name {', '.join(map(repr, names))}; the known ones are {known}"


def set_logs(settings: str | None = None, /, **levels: bool | int | str) -> None:
    """Chooses the artifacts that are logged from now on; the others show warnings only.

    `set_logs("graph_breaks,+bytecode")`, `set_logs(graph_breaks=True, bytecode=logging.DEBUG)`, `set_logs()` for none.

    Args:
        settings: names separated by commas, as in DYNAMO_LITE_LOGS; "+name" shows more of an artifact.
        levels: for each name True or False, a level of the logging module, or the name of a level.

    Raises:
        UnknownArtifact: there is no artifact of such a name.
    """
    wanted, unknown = parse_settings(settings or "")
    unknown += [name for name in levels if name not in ARTIFACTS and name != "all"]
    if unknown:
        raise UnknownArtifact(_unknown_message(unknown, "set_logs"))
    for name, value in levels.items():
        for target in ARTIFACTS if name == "all" else (name,):
            wanted[target] = _level(value)
    for name in ARTIFACTS:
        artifact(name).setLevel(wanted.get(name, logging.WARNING))


def _level(value: bool | int | str) -> int:
    if isinstance(value, str):
        return _LEVELS[value] if value in _LEVELS else logging.getLevelNamesMapping()[value.upper()]
    if isinstance(value, bool):
        return logging.INFO if value else logging.WARNING
    return value


def _apply_environment() -> None:
    # torch has names of its own in TORCH_LOGS and reports unknown ones, so they are not reported here.
    levels, _ = parse_settings(os.environ.get("TORCH_LOGS", ""))
    own, unknown = parse_settings(os.environ.get("DYNAMO_LITE_LOGS", ""))
    if unknown:
        # Only printed: an exception would stop the program because of a log setting.
        print(f"[{ROOT}] " + _unknown_message(unknown, "DYNAMO_LITE_LOGS"), file=sys.stderr)
    for name, level in {**levels, **own}.items():
        artifact(name).setLevel(level)


# ---------------------------------------------------------------- counters
def count(name: str, n: int = 1) -> None:
    """Adds to a counter, such as "kernels", "graphs", "skipped_frames"."""
    with _lock:
        _counters[name] = _counters.get(name, 0) + n


def counters() -> dict[str, int]:
    """All counters since the last reset."""
    with _lock:
        return dict(_counters)


def reset_counters() -> None:
    """Clears all counters."""
    with _lock:
        _counters.clear()


# ---------------------------------------------------------------- phases
class _Phase:
    """A phase in progress: its name, its start, and the seconds spent in phases nested inside."""

    __slots__ = ("inner", "name", "start")

    def __init__(self, name: str) -> None:
        self.name = name
        self.start = Clock.now()
        self.inner = 0.0


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """A context whose time counts for phase `name`, except for the time of phases nested inside."""
    mine = _Phase(name)
    _state.phases.append(mine)
    try:
        yield
    finally:
        spent = Clock.now() - mine.start
        _state.phases.remove(mine)
        if _state.phases:
            _state.phases[-1].inner += spent
        own = spent - mine.inner
        with _lock:
            for table in (_phase_times, *_state.collectors):
                table[name] = table.get(name, 0.0) + own


def phase_times() -> dict[str, float]:
    """Seconds by phase, over all threads, since the last reset; phases do not overlap, so the times can be added."""
    with _lock:
        return dict(_phase_times)


def reset_phase_times() -> None:
    """Clears the times of all phases."""
    with _lock:
        _phase_times.clear()


@contextlib.contextmanager
def collect_phases() -> Iterator[dict[str, float]]:
    """Collects the seconds by phase that this thread spends in the context, for the report of one compile."""
    mine: dict[str, float] = {}
    _state.collectors.append(mine)
    try:
        yield mine
    finally:
        _state.collectors = [c for c in _state.collectors if c is not mine]


def reset() -> None:
    """Clears counters, phase times and the record of messages shown once; settings stay."""
    with _lock:
        _seen.clear()
        _counters.clear()
        _phase_times.clear()


# ---------------------------------------------------------------- the artifacts
register_artifact("graph_breaks", "each place where a graph ends early: the user's line, the reason, what to do",
                  "repeats, and where a break had to be made earlier than at its cause")
register_artifact("recompiles", "each second compile of a code object: the guard that failed, the old and new value",
                  "why each of the other entries does not fit")
register_artifact("guards", "the conditions under which a compiled frame is used again, as a tree", "the guard program")
register_artifact("graph_code", "each captured graph as Python code", "each node's layout, and whether it has effects")
register_artifact("bytecode", "the bytecode before and after, side by side", "operands in full")
register_artifact("aot_graphs", "the functionalized, decomposed graph that the backend gets")
register_artifact("output_code", "the generated kernels and the code that calls them", "the vector header in full")
register_artifact("perf", "the seconds that each compile takes, by phase")
register_artifact("skipped_frames", "each frame that is left to plain Python, and why", "frames skipped by rule too")
register_artifact("fallbacks", "what a backend hands to plain torch calls, and why")
register_artifact("ir", "the loop nests, library calls and writes of each graph, before any are fused")
register_artifact("schedule", "which loops are fused, which are not and why")
register_artifact("targets", "the description of the processor that decisions rest on, and what of it was measured",
                  "what each product's share of threads was decided by")
register_artifact("tuning", "which form of each kernel was measured to be the fastest on a GPU, and whether a matrix "
                  "product on a CPU is the library's, and how long each took")
register_artifact("cache", "the cache folder: hits, misses, files that had to be rebuilt")

_install_handler()
_apply_environment()
