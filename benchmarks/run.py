"""Workloads x {eager, torch.compile, dynamo_lite}: a table, a JSON file and a plot.

    python benchmarks/run.py [--quick] [--only NAME ...] [--systems NAME ...] [--rounds N] [--seconds S] [--no-readme]
    python benchmarks/run.py --limits [--only NAME ...]

A machine that other programs share is fast in one minute and slow in the next, and two processes of one system may lie
in memory more or less luckily. So in each round each system has a process of its own, first calls are made one after
the other, and then calls are timed in short turns that go round the systems: the speed is a median over ratios of two
turns that lie beside each other. The first round starts with empty caches (cold first call); the later ones keep them
(first call in the next process).
"""
import argparse
import compileall
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any

import report
import torch
from processes import Failed, Measurement
from systems import DEFAULT, SYSTEMS
from workloads import WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent


TURNS = 8
"""In how many turns the calls of a process are timed."""


def one_round(workload: str, systems: list[str], seconds: float, caches: pathlib.Path,
              timeout: float) -> dict[str, dict[str, Any]]:
    """A process of each system: its figures, or under "failed" why it has none; "turns" are those of calls."""
    found: dict[str, dict[str, Any]] = {system: {} for system in systems}
    running: dict[str, Measurement] = {}

    def asked(system: str, question: str, *arguments: Any) -> dict[str, Any] | None:
        try:
            return getattr(running[system], question)(*arguments)
        except Failed as failure:
            found[system] = {"failed": str(failure)}
            running.pop(system).close()
            return None

    try:
        for system in systems:
            running[system] = Measurement(workload, system, caches, timeout)
            first = asked(system, "answer")
            if first is not None:
                found[system] = {**first, "turns": []}
        for turn in range(TURNS):
            # There and back: who comes right after whom changes.
            for system in list(running)[::1 if turn % 2 else -1]:
                times = asked(system, "calls", seconds / TURNS)
                if times is not None:
                    found[system]["turns"].append(times)
        for system in list(running):
            last = asked(system, "last")
            if last is not None:
                found[system].update(last)
    finally:
        for measurement in running.values():
            measurement.close()
    return found


def combine(rounds: list[dict[str, Any]], beside: list[dict[str, Any]]) -> dict[str, Any]:
    """The rounds of one workload and system as one row.

    Args:
        rounds: of the system.
        beside: the same rounds of the system that it is compared with.
    """
    failures = [r["failed"] for r in rounds if "failed" in r]
    if failures:
        return {"failed": failures[0]}
    ratios = [[other["median"] / turn["median"] for turn, other in zip(r["turns"], b["turns"])]
              for r, b in zip(rounds, beside) if "failed" not in b]
    speeds = [statistics.median(of_round) for of_round in ratios]
    return {
        "cold": rounds[0]["first_call"],
        "warm": statistics.median(r["first_call"] for r in rounds[1:]) if rounds[1:] else None,
        "call": statistics.median(turn["median"] for r in rounds for turn in r["turns"]),
        "speed": statistics.median(speed for of_round in ratios for speed in of_round) if ratios else None,
        # By how much the processes differ: 0.1 where the fastest is a tenth faster than the slowest.
        "spread": max(speeds) / min(speeds) - 1 if speeds else None,
        "faults": max(statistics.median(turn["faults"] for turn in r["turns"]) for r in rounds),
        "error": max(r["error"] for r in rounds),
        "peak_call": statistics.median(r["peak_call"] for r in rounds),
        "peak_process": max(r["peak_process"] for r in rounds),
        "report": rounds[0]["report"],
        "report_warm": rounds[-1]["report"] if rounds[1:] else None,
        "rounds": rounds,
    }


def machine() -> dict[str, Any]:
    """What a reader has to know to compare the figures with others."""
    cpu = platform.processor()
    info = pathlib.Path("/proc/cpuinfo")
    if info.exists():
        pairs = (line.partition(":") for line in info.read_text().splitlines())
        told = {key.strip(): value.strip() for key, _, value in pairs}
        cpu = told.get("model name", cpu)
        if "cpu family" in told:
            # A cloud's names, such as "AMD EPYC", do not tell which.
            wide = "AVX-512" if "avx512f" in told["flags"] else "AVX2" if "avx2" in told["flags"] else "no AVX2"
            cpu += f" (family {told['cpu family']}, model {told['model']}, {wide})"
    return {"cpu": cpu, "processors": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__,
            "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"), "load_before": os.getloadavg()[0]}


def run(workloads: list[str], systems: list[str], rounds: int, seconds: float, timeout: float) -> dict[str, Any]:
    for folder in (HERE.parent / "dynamo_lite", HERE.parent / "backends", sysconfig.get_path("purelib")):
        # As the installation of a wheel does, for torch and all that it imports, too: the first process of a system,
        # and where Python writes no bytecode each one, would else read the sources. Some are templates, no Python.
        compileall.compile_dir(folder, quiet=2, workers=0)
    described = machine()
    if described["load_before"] > 0.5:
        # Two threads that wait for each other lose a whole time slice to any third process: figures are then worthless.
        print(f"Other processes are running (load {described['load_before']:.1f}): wait for their end, or expect "
              "figures that are off by factors, ratios too.", file=sys.stderr)
    taken: dict[str, dict[str, list[dict[str, Any]]]] = {w: {s: [] for s in systems} for w in workloads}
    with tempfile.TemporaryDirectory(prefix="dynamo_lite_bench_") as folder:
        for number in range(rounds):
            for workload in workloads:
                able = [s for s in systems if not any("failed" in r for r in taken[workload][s])]
                turn = number % max(1, len(able))
                results = one_round(workload, able[turn:] + able[:turn], seconds, pathlib.Path(folder), timeout)
                for system, result in results.items():
                    taken[workload][system].append(result)
                    said = result.get("failed") or (
                        f"first call {result['first_call']:.2f} s, then "
                        f"{report.duration(statistics.median(t['median'] for t in result['turns']))}")
                    print(f"round {number + 1}/{rounds}  {workload}  {system}: {said}", file=sys.stderr, flush=True)
    rows = {w: {s: combine(r, by_system.get("eager", [])) for s, r in by_system.items()}
            for w, by_system in taken.items()}
    return {"machine": described, "rounds": rounds, "seconds": seconds,
            "titles": {w: WORKLOADS[w].title for w in workloads}, "systems": systems, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure dynamo_lite against eager and torch.compile.")
    parser.add_argument("--quick", action="store_true", help="a few workloads, two rounds, short timing")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(WORKLOADS), help="these workloads")
    parser.add_argument("--systems", nargs="+", metavar="NAME", choices=list(SYSTEMS), default=list(DEFAULT))
    parser.add_argument("--rounds", type=int, help="processes per workload and system; the first has an empty cache")
    parser.add_argument("--seconds", type=float, help="how long calls are timed in each process, in all turns")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that a first call may take")
    parser.add_argument("--limits", action="store_true", help="the share of the machine's limits that the kernels over "
                        "5%% of the time reach, and nothing else")
    parser.add_argument("--no-readme", action="store_true", help="leave README.md as it is")
    options = parser.parse_args()
    names = options.only or [w.name for w in WORKLOADS.values() if (w.quick if options.quick else w.default)]
    if options.limits:
        print(f"{machine()['cpu']}, {os.cpu_count()} processors")
        for name in names:
            subprocess.run([sys.executable, str(HERE / "limits.py"), name], check=False)
        return
    results = run(names, options.systems, options.rounds or (2 if options.quick else 3),
                  options.seconds or (0.5 if options.quick else 2.0), options.timeout)
    whole = not (options.quick or options.only or options.systems != list(DEFAULT))
    stem = HERE / "results" / ("figures" if whole else "partial")
    stem.parent.mkdir(exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(results, indent=1))
    table = report.table(results)
    print(table)
    report.plot(results, stem.with_suffix(".png"))
    print(f"\nWritten: {stem}.json, {stem}.png", file=sys.stderr)
    if whole and not options.no_readme:
        report.insert(table, HERE.parent / "README.md")


if __name__ == "__main__":
    main()
