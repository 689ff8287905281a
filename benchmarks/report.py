"""Results as a table for README.md and as a plot.

    python benchmarks/report.py        prints the table of the last full run, and puts it in README.md again
"""
import json
import math
import pathlib
import statistics
from collections.abc import Callable
from typing import Any

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def duration(seconds: float) -> str:
    """Three digits with the unit that suits."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _digits(value: float) -> str:
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f}" if value > 0 else "0"


def _size(number: float) -> str:
    if number >= 2**20 / 10:
        return f"{number / 2**20:.1f} MB"
    return f"{number / 1024:.1f} KB" if number >= 1024 else f"{number:.0f} B"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _difference(value: float) -> str:
    return f"{value:.0e}" if value else "0"


def _cells(rows: dict[str, dict[str, Any]], systems: list[str], key: str, form: Callable[[float], str]) -> str:
    """The figures of several systems in one cell."""
    values = [rows[s].get(key) for s in systems]
    return " / ".join("failed" if "failed" in rows[s] else form(v) if v is not None else "-"
                      for s, v in zip(systems, values))


def table(results: dict[str, Any]) -> str:
    """A Markdown table: a row per workload, the systems side by side in each cell."""
    systems = results["systems"]
    compilers = [s for s in systems if s != "eager"]
    both, all_three = " / ".join(compilers), " / ".join(systems)
    columns = [("first call", both), ("first call, next process", both), ("a call", all_three),
               ("speed, eager = 1", both), ("memory of a call", all_three),
               ("page faults of a call", all_three), ("largest difference", both)]
    lines = ["| workload | " + " | ".join(f"{title}: {names}" for title, names in columns) + " |",
             "|---" + "|---:" * len(columns) + "|"]
    for workload, rows in results["rows"].items():
        lines.append("| " + " | ".join([
            results["titles"][workload],
            _cells(rows, compilers, "cold", _seconds), _cells(rows, compilers, "warm", _seconds),
            _cells(rows, systems, "call", duration), _cells(rows, compilers, "speed", lambda v: f"{v:.2f}x"),
            _cells(rows, systems, "peak_call", _size), _cells(rows, systems, "faults", lambda v: f"{v:.0f}"),
            _cells(rows, compilers, "error", _difference)]) + " |")
    m = results["machine"]
    lines += ["", (
        f"{m['cpu']}, {m['processors']} processors, {m['threads']} threads; torch {m['torch']}, Python {m['python']}; "
        f"{m['date']}; {results['rounds']} processes for each figure, all settings default, float32, "
        "gradients in the training steps only. First call: empty cache, imports of the compiler included. "
        "Next process: cache kept. Speed: the median of ratios of turns that lie beside each other, a call: of times. "
        "Page faults: the median of calls after the first, the most of any process.")]
    means = geometric_means(results)
    if means:
        lines += ["", means]
    failures = [f"- {results['titles'][w]}, {s}: {row['failed']}" for w, rows in results["rows"].items()
                for s, row in rows.items() if "failed" in row]
    if failures:
        lines += ["", "Failed:", "", *failures]
    return "\n".join(lines)


def geometric_means(results: dict[str, Any]) -> str:
    """dynamo_lite against torch.compile over all rows that both have, and the largest spread; nothing if there is none.

    The speed of one against the other is the quotient of their speeds against eager."""
    both = {results["titles"][name]: (rows["torch.compile"], rows["dynamo_lite"])
            for name, rows in results["rows"].items()
            if all(rows.get(s, {}).get("speed") for s in ("torch.compile", "dynamo_lite"))}
    if not both:
        return ""
    pairs = list(both.values())
    spreads = {title: ours["spread"] for title, (_, ours) in both.items()}
    widest = max(spreads, key=spreads.__getitem__)
    against = [ours["speed"] / theirs["speed"] for theirs, ours in pairs]
    text = (f"Against torch.compile, in geometric mean of {len(pairs)} rows: "
            f"first call 1/{_mean([theirs['cold'] / ours['cold'] for theirs, ours in pairs]):.1f} of its time")
    if all(theirs["warm"] and ours["warm"] for theirs, ours in pairs):
        text += f", next process 1/{_mean([theirs['warm'] / ours['warm'] for theirs, ours in pairs]):.1f}"
    return (f"{text}, a call {_mean(against):.2f} times as fast; at least {min(against):.2f} times on every row, and "
            f"{min(ours['speed'] for _, ours in pairs):.2f} times eager's speed. Processes of dynamo_lite differ by "
            f"{spreads[widest]:.0%} at most against eager's beside them ({widest}), in the middle by "
            f"{statistics.median(spreads.values()):.0%}.")


def _mean(values: list[float]) -> float:
    return math.exp(statistics.mean(map(math.log, values)))


def _bars(results: dict[str, Any], system: str, key: str) -> list[float]:
    return [rows[system].get(key) or math.nan for rows in results["rows"].values()]


def plot(results: dict[str, Any], path: pathlib.Path) -> None:
    """First calls and speed against eager on logarithmic scales, one bar per system."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    titles = [results["titles"][name] for name in results["rows"]]
    compilers = [s for s in results["systems"] if s != "eager"]
    panels = [("first call, empty cache", "cold", "{:g} s"), ("first call, next process", "warm", "{:g} s"),
              ("speed of a call, eager = 1", "speed", "{:g}x")]
    fig, axes = plt.subplots(1, len(panels), figsize=(15, 0.45 * len(titles) + 2), sharey=True, squeeze=False)
    height = 0.8 / max(1, len(compilers))
    for axis, (title, key, form) in zip(axes[0], panels):
        for k, system in enumerate(compilers):
            places = [i + k * height for i in range(len(titles))]
            axis.barh(places, _bars(results, system, key), height, label=system,
                      color={"torch.compile": "#b0b0b0", "dynamo_lite": "#2a6fbb"}.get(system))
        axis.set_title(title, fontsize=10)
        axis.set_xscale("log")
        low, high = axis.get_xlim()
        axis.set_xlim(min(low, 0.1), max(high, 10))
        axis.xaxis.set_major_formatter(lambda value, _, form=form: form.format(value))
        if key == "speed":
            axis.axvline(1, color="black", linewidth=0.8)
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks([i + height / 2 for i in range(len(titles))], titles, fontsize=8)
    axes[0][0].invert_yaxis()
    fig.legend(*axes[0][0].get_legend_handles_labels(), loc="upper left", fontsize=9)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def insert(text: str, readme: pathlib.Path) -> None:
    """Put the table between the markers of README.md."""
    page = readme.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    shown = table(json.loads((here / "results" / "figures.json").read_text()))
    print(shown)
    insert(shown, here.parent / "README.md")
