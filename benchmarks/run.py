"""Workloads x {eager, torch.compile, dynamo_lite}: a table, a JSON file and a plot.

    python benchmarks/run.py [--quick] [--only NAME ...] [--systems NAME ...] [--rounds N] [--seconds S] [--no-readme]
    python benchmarks/run.py --limits [--only NAME ...]

Every measurement is a process of its own. In each round the systems take turns on a workload, and the turn rotates, so
that a slow minute of the machine hits all alike. The first round starts with empty caches (cold first call); the later
ones keep them (first call in the next process). A call's time is the median over rounds of the medians in each.
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
from systems import DEFAULT, SYSTEMS
from workloads import WORKLOADS

HERE = pathlib.Path(__file__).resolve().parent


def child(workload: str, system: str, seconds: float, caches: pathlib.Path, timeout: float) -> dict[str, Any]:
    """One measurement; a process that fails gives its last words instead."""
    env = dict(os.environ)
    for variable in SYSTEMS[system].environment:
        env[variable] = str(caches / workload / variable)
    command = [sys.executable, str(HERE / "measure.py"), workload, system, str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {timeout:.0f} s"}
    if done.returncode:
        words = [line for line in done.stderr.strip().splitlines() if line.strip()]
        # The first line that names an exception says more than the hints that follow it.
        named = [line for line in words if line[:1].isalpha() and ("Error" in line or "Unsupported" in line)]
        return {"failed": (named or words or [f"exit status {done.returncode}"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def combine(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The rounds of one workload and system as one row."""
    failures = [r["failed"] for r in rounds if "failed" in r]
    if failures:
        return {"failed": failures[0]}
    return {
        "cold": rounds[0]["first_call"],
        "warm": statistics.median(r["first_call"] for r in rounds[1:]) if rounds[1:] else None,
        "call": statistics.median(r["call"]["median"] for r in rounds),
        "faults": max(r["call"]["faults"] for r in rounds),
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
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].split(":", 1)[1].strip() if lines else cpu
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
              "figures that are off by factors.", file=sys.stderr)
    taken: dict[str, dict[str, list[dict[str, Any]]]] = {w: {s: [] for s in systems} for w in workloads}
    with tempfile.TemporaryDirectory(prefix="dynamo_lite_bench_") as folder:
        for number in range(rounds):
            for workload in workloads:
                turn = number % len(systems)
                for system in systems[turn:] + systems[:turn]:
                    if any("failed" in r for r in taken[workload][system]):
                        continue
                    result = child(workload, system, seconds, pathlib.Path(folder), timeout)
                    taken[workload][system].append(result)
                    said = result.get("failed") or (
                        f"first call {result['first_call']:.2f} s, then {report.duration(result['call']['median'])}")
                    print(f"round {number + 1}/{rounds}  {workload}  {system}: {said}", file=sys.stderr, flush=True)
    rows = {w: {s: combine(r) for s, r in by_system.items()} for w, by_system in taken.items()}
    return {"machine": described, "rounds": rounds, "seconds": seconds,
            "titles": {w: WORKLOADS[w].title for w in workloads}, "systems": systems, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure dynamo_lite against eager and torch.compile.")
    parser.add_argument("--quick", action="store_true", help="a few workloads, two rounds, short timing")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=sorted(WORKLOADS), help="these workloads")
    parser.add_argument("--systems", nargs="+", metavar="NAME", choices=list(SYSTEMS), default=list(DEFAULT))
    parser.add_argument("--rounds", type=int, help="processes per workload and system; the first has an empty cache")
    parser.add_argument("--seconds", type=float, help="how long calls are timed in each process")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one process may take")
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
