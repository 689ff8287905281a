"""The fuzzer's command: ``python -m fuzz.run --seconds 3600`` in ``tests/``, or ``make fuzz``.

Programs run in worker processes, one seed after the other; a worker that dies or hangs is a finding as well, and
another one goes on behind the seed. Invariant: what is printed as a finding can be tried again by its seed and its
kind alone: ``--seed N --count 1 --kind programs``. """
from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from .watch import Watch

HANG = 300.0    # seconds of the processor's time for one program, its compiles included, or without any of it
OWN = "import dynamo_lite\n"    # a program's own part begins behind the imports that all have in common
MANY = 20       # seeds; of so many, plain Python runs nine in ten
KINDS = ("programs", "environments", "shapes", "numbers", "values", "networks", "memory")


def plan(kind: str, seed: int) -> tuple[str, Any]:
    """The program of a seed and how it is compiled; a seed decides both."""
    from . import environments, harness, networks, numbers, programs, shapes, values

    # One in four through the compiling backend, where a program takes ten times as long.
    backend = "inductor_lite" if seed % 4 == 3 else "eager"
    grad = seed % 3 == 2
    settings = (("capture_scalar_outputs", True),) if seed % 5 == 4 else ()
    options = harness.Options(backend, grad, settings, in_handler=seed % 7 in (1, 4))
    if kind == "shapes":
        # The others say nothing, and what has changed becomes a symbol.
        options = dataclasses.replace(
            options, grad=False, in_handler=False, dynamic=True if seed % 3 == 0 else None,
            calls=tuple(range(shapes.STEPS)))
        return shapes.program(seed), options
    if kind == "numbers":
        options = harness.Options(("inductor_lite", "aot_eager", "inductor_lite", "eager")[seed % 4], False, settings,
                                  True if seed % 3 == 0 else None, tuple(range(numbers.STEPS)))
        return numbers.program(seed), options
    if kind == "values":
        dynamic = True if seed % 3 == 0 else None
        return values.program(seed), harness.Options(
            "inductor_lite", dynamic=dynamic, calls=tuple(range(values.STEPS)), exact=True)
    if kind == "networks":
        under = ("training", "training", "autocast", "inference_mode", "no_grad")[seed % 5]
        within = 0.1 if under in ("autocast", "inference_mode") else 2e-3
        return networks.program(seed, under), harness.Options(
            "inductor_lite", dynamic=(None, None, True, False)[seed % 4], calls=tuple(range(networks.STEPS)),
            within=within)
    if kind == "memory":
        backend = ("eager", "aot_eager", "inductor_lite", "inductor_lite")[seed % 4]
        options = dataclasses.replace(options, backend=backend, dynamic=True if seed % 10 == 0 else None)
        return programs.program(seed, breaks=seed % 5 == 1, grad=grad, memory=True), options
    if kind == "environments":
        return environments.program(seed), options
    return programs.program(seed, breaks=seed % 2 == 1, grad=grad), options


def try_seed(kind: str, seed: int, smaller: bool) -> tuple[bool, str | None]:
    """Whether plain Python runs the program of a seed, and what it finds, in words."""
    from . import harness
    from .minimize import minimize

    source, options = plan(kind, seed)
    plain = harness.plainly(source, options, options.calls)
    found = plain and harness.compare(source, options, plain=plain)
    if not found:
        return plain is not None, None
    # What all programs share stays as it is, and is not printed.
    head, mark, own = source.partition(OWN)
    head += "\n"
    text = mark + own
    if smaller:
        def differs(text: str) -> bool:
            again = harness.compare(head + text, options)
            return again is not None and again.kind == found.kind

        text = minimize(text, differs, float(os.environ.get("DYNAMO_LITE_FUZZ_MINIMIZE", "60")))
        found = harness.compare(head + text, options) or found
    return True, f"--kind {kind} --seed {seed} --count 1\n{dataclasses.replace(found, source=text)}"


def work(kind: str, smaller: bool) -> None:
    """A worker: reads seeds, answers each with a line of JSON."""
    from . import harness

    gc.collect()
    gc.freeze()  # collections look at what the program has made alone
    harness.end_cycles = True
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(try_seed(kind, int(line), smaller)) + "\n")
        out.flush()


class Worker:
    """A process that tries seeds; another one is started when it has died or hangs, and after some hundred programs,
    as Python keeps what programs define."""

    def __init__(self, kind: str, smaller: bool, log: IO[str]) -> None:
        self.kind, self.smaller, self.log = kind, smaller, log
        self.process: subprocess.Popen[str] | None = None
        self.seed, self.done = -1, 0

    def start(self, seed: int) -> None:
        if self.process is None or self.done >= 500:
            self.stop()
            command = [sys.executable, "-m", "fuzz.run", "--work", "--kind", self.kind] + ["--small"] * self.smaller
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                cwd=Path(__file__).parents[1])
            self.done = 0
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        self.seed = seed
        self.watch = Watch(self.process.pid, HANG * (3 if self.smaller else 1))

    def answer(self) -> tuple[bool, str | None]:
        """Whether the program of the seed at hand has run, and its finding, once it is there; a death is one."""
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        self.done += 1
        if line:
            ran, text = json.loads(line)
            return ran, text
        code = self.process.wait()
        self.process = None
        return self.unless_plain(f"the process died: {code}")

    def unless_plain(self, finding: str) -> tuple[bool, str | None]:
        """A death or a hang, with its seed; no program if plain Python dies or hangs, too: a fault of torch's, or a
        recursion that catches its own error and begins again, which takes exponential time."""
        seed = f"--kind {self.kind} --seed {self.seed}"
        plain = subprocess.Popen(
            [sys.executable, "-m", "fuzz.run", "--plain", *seed.split()], stdout=subprocess.DEVNULL, stderr=self.log,
            cwd=Path(__file__).parents[1])
        watch = Watch(plain.pid, HANG / 4)
        while plain.poll() is None:
            if watch.hangs():
                plain.kill()
                plain.wait()
                print(f"{seed}: no end in plain Python, either", file=self.log, flush=True)
                return False, None
            time.sleep(0.5)
        if plain.returncode < 0:
            print(f"{seed}: plain Python dies, too", file=self.log, flush=True)
            return False, None
        return True, f"{seed} --count 1\n{finding}\n"

    def end_hang(self) -> tuple[bool, str | None]:
        """Ends the process of a hanging program; as `answer`."""
        self.stop()
        return self.unless_plain(f"no end after {HANG:.0f} seconds")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def fuzz(kind: str, first: int, count: int | None, seconds: float, jobs: int,
         smaller: bool) -> tuple[int, int, list[str]]:
    """The number of seeds tried, of programs that have run, and what was found."""
    end = time.monotonic() + seconds
    found: list[str] = []
    tried, compared, seed = 0, 0, first

    def more() -> bool:
        return seed - first < count if count is not None else time.monotonic() < end

    with open(os.environ.get("DYNAMO_LITE_FUZZ_LOG", os.devnull), "a") as log:
        workers = [Worker(kind, smaller, log) for _ in range(jobs)]
        busy: list[Worker] = []
        while busy or more():
            while len(busy) < jobs and more():
                worker = next(w for w in workers if w not in busy)
                worker.start(seed)
                busy.append(worker)
                seed += 1
            files = {w.process.stdout: w for w in busy if w.process is not None}
            ready, _, _ = select.select(list(files), [], [], 1.0)
            ended = [(files[file], files[file].answer()) for file in ready]
            ended += [(w, w.end_hang()) for w in busy if all(w is not e for e, _ in ended) and w.watch.hangs()]
            for worker, (ran, text) in ended:
                busy.remove(worker)
                tried += 1
                compared += ran
                if text:
                    found.append(text)
                    print(text, flush=True)
        for worker in workers:
            worker.stop()
    return tried, compared, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="how many seeds; by default as many as fit in the time")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all kinds together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--small", action="store_true", help="minimize what is found")
    parser.add_argument("--show", action="store_true", help="print the program of --seed and stop")
    parser.add_argument("--plain", action="store_true", help="run the program of --seed in plain Python and stop")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = KINDS if options.kind == "all" else (options.kind,)
    if options.work:
        work(options.kind, options.small)
        return 0
    if options.plain:
        from . import harness

        source, how = plan(kinds[0], options.seed)
        harness.plainly(source, how, how.calls)
        return 0
    if options.show:
        print(*plan(kinds[0], options.seed), sep="\n")
        return 0
    total = 0
    for kind in kinds:
        begin = time.monotonic()
        share = options.seconds / len(kinds)
        tried, compared, found = fuzz(kind, options.seed, options.count, share, options.jobs, options.small)
        total += len(found)
        took = time.monotonic() - begin
        print(f"{kind}: {tried} seeds in {took:.0f} s, {compared} programs, {len(found)} differ", flush=True)
        if tried > MANY and compared < tried / 2:
            print(f"{kind}: plain Python does not run most of these programs", flush=True)
            total += 1
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
