"""How many of transformers' models are one graph, and equal eager.

    python benchmarks/coverage.py [--every N] [--only TYPE ...] [--sample] [--systems dynamo_lite torch.compile]
                                  [--backend NAME] [--train] [--json FILE] [--again | --doubtful | --drawn N] [--write]

Every model class of transformers' AutoModel table is built small, with random weights (`coverage_build.py`), and called
in eager. Those that run are tried compiled (`coverage_try.py`): with ``fullgraph=True`` and without, a second time and
with inputs of another length. The report counts and ranks the reasons. Models are tried in worker processes, a few in
each, with limits on time and memory; one that crashes or hangs counts as such. Rows go to the file of --json as they
come, and what stands there already is not tried again, but with --again, with --doubtful: what was not one graph or not
equal, or was compiled twice, and every tenth of the others, and with --drawn: N of those that were well, drawn by lot,
always the same; these rows remember what they were before. --write puts all rows of the file into docs/coverage.md.
"""
import argparse
import collections
import json
import multiprocessing as mp
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

MODELS_PER_PROCESS = 12
MEMORY = 12 * 1024**3
PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
BEGIN = "<!-- survey -->"
# Well-known types of every kind, for what takes longer.
SAMPLE = (
    "bert gpt2 llama t5 vit bart roberta distilbert albert electra mistral qwen2 gemma phi mixtral opt gpt_neox bloom "
    "falcon deberta-v2 convnext swin resnet clip whisper wav2vec2 blip dinov2 mobilenet_v2 segformer"
).split()

Row = dict[str, Any]


def _work(types: list[str], options: argparse.Namespace, system: str, out: Any) -> None:
    import torch
    from coverage_try import try_model

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    for model_type in types:
        out.put(try_model(model_type, system, options))


def run_all(tasks: list[tuple[str, str]], options: argparse.Namespace) -> Iterator[Row]:
    """Rows as they come. A process that dies, or hangs where no signal reaches it, costs the model that it was at."""
    context = mp.get_context("spawn")
    pending = []
    for system in options.systems:
        mine = [t for t, s in tasks if s == system]
        pending += [(system, mine[i : i + MODELS_PER_PROCESS]) for i in range(0, len(mine), MODELS_PER_PROCESS)]
    running: list[dict[str, Any]] = []
    while pending or running:
        while pending and len(running) < options.workers:
            system, types = pending.pop(0)
            queue = context.Queue()
            process = context.Process(target=_work, args=(types, options, system, queue))
            process.start()
            running.append({"process": process, "queue": queue, "left": list(types), "system": system,
                            "at": time.time()})
        for entry in list(running):
            process, queue, left = entry["process"], entry["queue"], entry["left"]
            # The first model of a process waits for the imports, and all for other programs.
            if time.time() - entry["at"] > 5 * options.seconds + 60:
                process.kill()
                process.join()
            alive = process.is_alive()
            while not queue.empty():
                left.pop(0)
                entry["at"] = time.time()
                yield queue.get()
            if not alive and queue.empty():
                running.remove(entry)
                if left:
                    yield {"type": left.pop(0), "system": entry["system"], "backend": options.backend, "built": True,
                           "why_not_run": f"the process ended: {process.exitcode}"}
                if left:
                    pending.insert(0, (entry["system"], left))
        time.sleep(0.1)


def why(row: Row) -> str:
    """Why a model is not one graph, or not equal, in words that are the same for the same cause."""
    if row.get("why_not_run"):
        return str(row["why_not_run"])
    if not row.get("one_graph"):
        return f"{row['reason']} [{row.get('kind', 'torch.compile')}]"
    return "different values" if not row.get("equal") else ""


def ranked(reasons: list[tuple[str, str]]) -> list[str]:
    """Reasons with the types that have them, the most frequent first."""
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for model_type, text in reasons:
        groups[re.sub(r"0x[0-9a-f]+|\d+", "…", text)].append(model_type)
    order = sorted(groups.items(), key=lambda g: (-len(g[1]), g[0]))
    return [f"{len(types)}: {text[:160]} ({', '.join(types[:8])}{', ...' if len(types) > 8 else ''})"
            for text, types in order]


def report(rows: list[Row]) -> list[str]:
    """The counts of one group and the ranked reasons of the rest."""
    built = [r for r in rows if r["built"]]
    whole = [r for r in built if r.get("one_graph")]
    equal = [r for r in built if r.get("equal")]
    lines = [f"built and run in eager: {len(built)} of {len(rows)}",
             f"captured in one graph: {len(whole)} of {len(built)}", f"equal to eager: {len(equal)} of {len(built)}"]
    told = [r["type"] for r in equal if r.get("told")]
    if told:
        lines.append(f"compared with what eager gives where torch.compiler.is_compiling() is true, which these ask: "
                     f"{len(told)} ({', '.join(told)})")
    trained = [r for r in built if "gradient_difference" in r]
    if trained:
        lines.append(f"gradients compared too: {len(trained)}")
    timed = [r["seconds"] for r in built if r.get("seconds")]
    if timed:
        lines.append(f"seconds of the first compiled call: median {statistics.median(timed):.1f}, "
                     f"largest {max(timed):.0f}")
    again = [r["type"] for r in built if r.get("second_graphs")]
    if again:
        lines.append(f"compiled again for the same inputs: {len(again)} ({', '.join(again)})")
    reasons = [(r["type"], why(r)) for r in built if why(r)]
    return [*lines, *(["the rest:"] if reasons else []), *(f"  {line}" for line in ranked(reasons))]


def _is_doubtful(row: Row) -> bool:
    return bool(row["built"] and (why(row) or row.get("second_graphs"))) or "more than" in row.get("why_not_built", "")


def doubtful(rows: list[Row]) -> list[str]:
    """The types to try again after a change: what went wrong, and every tenth of the rest."""
    wrong = [r["type"] for r in rows if _is_doubtful(r)]
    rest = [r["type"] for r in rows if r["built"] and not _is_doubtful(r)]
    return wrong + rest[::10]


def drawn(rows: list[Row], n: int) -> list[str]:
    """Types to see that nothing has become worse by: of those that were well, by lot."""
    well = sorted(r["type"] for r in rows if r["built"] and not _is_doubtful(r))
    return random.Random(0).sample(well, min(n, len(well)))


def history(group: list[Row]) -> list[str]:
    """Of which commits the rows are; where some were tried again, what the run was before."""
    again = [r for r in group if "before" in r]
    first = [r.get("before", r) for r in group]

    def commits(of: list[Row]) -> str:
        at = collections.Counter(r.get("commit", "an earlier one") for r in of)
        return ", ".join(f"{c} ({n} types)" for c, n in at.most_common())

    lines = [f"Of commit {commits(first)}."]
    if again:
        built = [r for r in first if r["built"]]
        whole, equal = (sum(bool(r.get(k)) for r in built) for k in ("one_graph", "equal"))
        worse = [r["type"] for r in again if any(r["before"].get(k) and not r.get(k) for k in ("one_graph", "equal"))]
        by_lot = [r for r in again if r.get("drawn")]
        lines += ["", f"That run gave {whole} in one graph and {equal} equal of {len(built)} built. What was not one "
                  f"graph or not equal, and a tenth of the others or more, was tried again at commit "
                  f"{commits([r for r in again if not r.get('drawn')])}: these rows stand in the table in place of "
                  f"the first."]
        if by_lot:
            lines += ["", f"Of those that were right, {len(by_lot)} were drawn at random (`--drawn`, seed 0) and tried "
                      f"again at commit {commits(by_lot)}, to see that nothing has become worse."]
        lines += ["", f"Worse than before: {', '.join(worse) or 'none'}."]
    return lines


def unbuilt(rows: list[Row]) -> list[str]:
    """Types that no small config and inputs were found for, by the first thing that failed."""
    missing = {r["type"]: r["why_not_built"].strip().splitlines()[0] for r in rows if not r["built"]}
    return ["not built:", *(f"  {line}" for line in ranked(list(missing.items())))] if missing else []


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what they were captured with, in the order of their first rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(f"{row['system']}, backend {row['backend']}", []).append(row)
    return found


def commit() -> str:
    """What the working tree was made from."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=PAGE.parent, capture_output=True, text=True)
    return done.stdout.strip()


def merge(path: pathlib.Path | None) -> list[Row]:
    return json.loads(path.read_text()) if path and path.exists() else []


def page(rows: list[Row]) -> list[str]:
    """The section of the survey: for each group its counts, the reasons, and what could not be built."""
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    lines = ["## Every model type of transformers", "",
             f"Written by `make coverage` with transformers {transformers.__version__}, torch {torch.__version__}: "
             "`benchmarks/coverage.py` builds each class of the AutoModel table from a small config with random "
             "weights, calls it in eager, and captures it with `fullgraph=True`, and without where that is refused; "
             "it is called a second time, and with texts of another length. \"Equal\" covers every value of the "
             "results, caches included; with `inductor_lite` the gradients of all parameters too. A model that asks "
             "`torch.compiler.is_compiling()` and computes something else then is told so here, as by torch.compile, "
             "and equal to eager that is told the same; the table names those for which that makes a difference.", ""]
    surveyed = {r["type"] for r in rows if r["system"] == "dynamo_lite"}
    if len(surveyed) < len(MODEL_MAPPING_NAMES):
        lines += [f"The run behind these figures has reached {len(surveyed)} of {len(MODEL_MAPPING_NAMES)} types.", ""]
    for name, group in groups(rows).items():
        lines += [f"### {name}", "", *history(group), "", "```", *report(group), "```", ""]
    return [*lines, "### Types that no small model was built of", "", "```", *unbuilt(rows), "```", ""]


def write(rows: list[Row]) -> None:
    """The section, in its place at the end of the page."""
    before = PAGE.read_text().partition(BEGIN)[0]
    PAGE.write_text("\n".join([before.rstrip(), "", BEGIN, *page(rows)]))


def main() -> None:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every N-th model type")
    parser.add_argument("--offset", type=int, default=0, help="start at this one")
    parser.add_argument("--only", nargs="*", help="these model types")
    parser.add_argument("--systems", nargs="*", default=["dynamo_lite"], choices=["dynamo_lite", "torch.compile"])
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--train", action="store_true", help="compare gradients too")
    parser.add_argument("--both", action="store_true", help="without fullgraph too where it was captured with it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=120, help="the limit for one model, of processor time")
    parser.add_argument("--json", type=pathlib.Path, help="where rows accumulate")
    parser.add_argument("--sample", action="store_true", help="the sample of well-known types")
    parser.add_argument("--write", action="store_true", help="put all rows of the file into docs/coverage.md")
    parser.add_argument("--again", action="store_true", help="try those again that stand in the file")
    parser.add_argument("--drawn", type=int, default=0, help="try so many again of what was well, drawn by lot")
    parser.add_argument("--doubtful", action="store_true", help="try again what was not well, and a tenth of the rest")
    options = parser.parse_args()
    types = options.only or (SAMPLE if options.sample else list(MODEL_MAPPING_NAMES)[options.offset :: options.every])
    rows = merge(options.json)
    stand = [r for r in rows if r["backend"] == options.backend and r["system"] in options.systems]
    if options.doubtful:
        types = doubtful(stand)
    elif options.drawn:
        types = drawn(stand, options.drawn)
    tasks = [(t, s) for s in options.systems for t in types]
    before: dict[tuple[str, str], Row] = {}
    if options.again or options.doubtful or options.drawn:
        chosen = {id(r) for r in rows if r["backend"] == options.backend and (r["type"], r["system"]) in set(tasks)}
        before = {(r["type"], r["system"]): r.get("before", r) for r in rows if id(r) in chosen}
        rows = [r for r in rows if id(r) not in chosen]
    done = {(r["type"], r["system"]) for r in rows if r["backend"] == options.backend}
    now = commit()
    for row in run_all([t for t in tasks if t not in done], options):
        row["commit"] = now
        if (was := before.get((row["type"], row["system"]))) is not None:
            row["before"] = {k: was.get(k) for k in ("commit", "built", "one_graph", "equal")}
            row["drawn"] = bool(options.drawn)
        rows.append(row)
        if row["built"] and why(row):
            print(f"{row['type']}: {why(row)}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1))
    for name, group in groups(rows).items():
        print("\n".join([f"{name}:", *report(group)]))
    print("\n".join(unbuilt(rows)))
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
