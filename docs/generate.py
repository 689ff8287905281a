"""Writes the pages that are made from tables in the code: graph_breaks.md, and the lists in debugging.md.

    python docs/generate.py [--check]

With --check nothing is written; the exit status says whether the pages are as the code has it. A test runs this check.
"""
import pathlib
import sys

from dynamo_lite import config, log
from dynamo_lite.break_kinds import BREAK_KINDS

HERE = pathlib.Path(__file__).resolve().parent


def graph_breaks() -> str:
    lines = [
        "# Graph breaks",
        "",
        "Written by `python docs/generate.py` from `dynamo_lite/break_kinds.py`.",
        "",
        "Where a construct can't be captured, the graph ends before it, the construct runs in plain Python, and the",
        "rest of the function is captured again. `DYNAMO_LITE_LOGS=graph_breaks` says where; with `fullgraph=True` it",
        "is the error `dynamo_lite.exc.Unsupported`, whose `kind` is one of these identifiers.",
    ]
    for kind in BREAK_KINDS.values():
        lines += ["", f"## `{kind.id}`", "", f"{_sentence(kind.what)} {_sentence(kind.why)}", "",
                  f"What helps: {kind.hint}."]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """A sentence of a row's words; names of the program's (``str()``, ``requires_grad``) stay as they are written."""
    is_name = any(mark in text.split()[0] for mark in "()._")
    return (text if is_name else text[0].upper() + text[1:]) + "."


def artifacts() -> str:
    rows = [f"| `{a.name}` | {a.help} | {a.more} |" for a in log.ARTIFACTS.values()]
    return "\n".join(["| name | shows | `+name` adds |", "|---|---|---|", *rows])


def settings() -> str:
    rows = []
    for option in config.OPTIONS.values():
        default = "" if option.name == "cache_dir" else f"`{option.default!r}`"
        rows.append(f"| `{option.name}` | {default} | {option.help}{_choices(option)} |")
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _choices(option: config.Option) -> str:
    return f" ({', '.join(option.choices)})" if option.choices else ""


def between(text: str, name: str, content: str) -> str:
    """`text` with what stands between the markers of `name` exchanged."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def pages() -> dict[pathlib.Path, str]:
    debugging = HERE / "debugging.md"
    text = between(debugging.read_text(), "artifacts", artifacts())
    return {HERE / "graph_breaks.md": graph_breaks(), debugging: between(text, "settings", settings())}


def main() -> None:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"not as the code has it, run `make docs`: {', '.join(p.name for p in stale)}" if stale else 0)
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
