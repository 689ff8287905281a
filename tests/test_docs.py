"""The generated pages are as the code has it; every link between pages, and every path of a file of ours that a page or
a docstring names, leads somewhere.
"""
import ast
import pathlib
import re
import subprocess
import sys

import pytest
from test_layering import LAYERS

from dynamo_lite.debug.rules import show

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_generated_pages_are_up_to_date():
    p = subprocess.run([sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True)
    assert p.returncode == 0, p.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


# Programs on the pages that are whole as they stand; other blocks are parts of one.
PROGRAMS = [ROOT / "README.md", ROOT / "docs" / "tour.md"]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda p: p.name)
def test_programs_run_as_pasted(page, tmp_path):
    first = re.search(r"```python\n(.*?)```", page.read_text(), flags=re.S)
    program = tmp_path / "program.py"
    program.write_text(first[1])
    p = subprocess.run([sys.executable, "-W", "error", str(program)], capture_output=True, text=True, timeout=200,
                       cwd=tmp_path)
    assert p.returncode == 0, p.stderr
    assert "dynamo_lite" not in p.stderr, p.stderr


def test_every_python_block_of_the_readme_is_run():
    assert (ROOT / "README.md").read_text().count("```python") == 1


def test_what_the_table_of_calls_says_is_shown_as_it_is():
    text = (ROOT / "docs" / "debugging.md").read_text()
    shown = re.search(r"^\$ python -m dynamo_lite rules (\S+)\n(.*?)^```", text, flags=re.M | re.S)
    # Other rows of the file come and go.
    assert re.sub(r"\d+", "N", shown[2].strip()) == re.sub(r"\d+", "N", show(shown[1]))


# ---------------------------------------------------------------- paths
OUR_FILES = [path for top in ("dynamo_lite", "backends") for path in (ROOT / top).rglob("*") if path.suffix != ".pyc"]
# What a path is relative to: pages name a module as the package does, and a test as tests/ does.
BASES = [ROOT, ROOT / "dynamo_lite", ROOT / "backends", ROOT / "backends" / "inductor", ROOT / "tests"]
IS_PATH = re.compile(r"[A-Za-z_.][\w./-]*(\.(py|pyi|c|h|cpp|md)|/)")
# Programs of the user's, on the page that shows them; a header of CPython's.
NOT_OURS = {"tour.py", "program.py", "Python.h"}


def places(path: str) -> list[pathlib.Path]:
    """The files or folders that a path on a page may mean: one relative to a base, else all that end so."""
    for base in BASES:
        if (base / path).exists():
            return [base / path]
    return [file for file in OUR_FILES if str(file).endswith("/" + path.rstrip("/"))]


def named_paths(text: str) -> set[str]:
    """What looks like a path within single or double backticks."""
    words = [word.split("::")[0] for part in re.findall(r"`+([^`\n]+)`+", text) for word in part.split()]
    return {word for word in words if IS_PATH.fullmatch(word)} - NOT_OURS


def wrong_paths(text: str) -> list[str]:
    return [f"{path} may be {[str(p.relative_to(ROOT)) for p in found] or 'nothing'}"
            for path in sorted(named_paths(text)) if len(found := places(path)) != 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_on_pages_exist(page):
    assert not wrong_paths(re.sub(r"```.*?```", "", page.read_text(), flags=re.S))


def test_paths_in_diffs_exist():
    """The commits that contributing.md shows have the paths of today."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    shown = re.findall(r"^\+\+\+ b/(.*)$", text, flags=re.M)
    assert len(shown) > 6 and all((ROOT / path).is_file() for path in shown), shown


def test_diffs_are_as_the_files_stand():
    """Each line that a diff of contributing.md adds or leaves stands in the file of today."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    wrong = []
    for diff in re.findall(r"```diff\n(.*?)```", text, flags=re.S):
        for part in re.split(r"^\+\+\+ b/", diff, flags=re.M)[1:]:
            path, *lines = part.splitlines()
            have = {"", *(line.strip() for line in (ROOT / path).read_text().splitlines())}
            wrong += [f"{path}: {line}" for line in lines if line[:1] in ("+", " ") and line[1:].strip() not in have]
    assert not wrong


def test_paths_in_docstrings_exist():
    wrong = []
    for path in OUR_FILES:
        if path.suffix == ".py":
            tree = ast.parse(path.read_text())
            nodes = [tree, *(n for n in ast.walk(tree) if isinstance(n, (ast.ClassDef, ast.FunctionDef)))]
            text = "\n".join(ast.get_docstring(node) or "" for node in nodes)
            # A module says which of its neighbours it means by the name alone.
            wrong += [f"{path}: {p}" for p in named_paths(text) if not (path.parent / p).exists() and not places(p)]
    assert not wrong


def test_the_reader_of_paths_itself():
    assert named_paths("`a/b.py` and ``c.h``, `python x.py 1`, `d.e`, `f/`, `t.py::name`") == {
        "a/b.py", "c.h", "x.py", "f/", "t.py"}
    assert wrong_paths("`frame/nothing.py`") and wrong_paths("`mutation.py`") and not wrong_paths("`csrc/threads.c`")


# ---------------------------------------------------------------- layers.md
def rows(text: str, first: str) -> list[list[str]]:
    """The cells of a table, which begins with the cell ``first``."""
    table = text[text.index(f"| {first} |"):].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_rooms_are_the_layers():
    page = (ROOT / "docs" / "design" / "layers.md").read_text()
    listed = [name for row in rows(page, "layer") for name in re.findall(r"`([^`]+)`", row[0])]
    assert [name.removesuffix(".py").removesuffix("/") for name in listed] == LAYERS


def test_where_is_names_files():
    page = (ROOT / "docs" / "design" / "layers.md").read_text()
    for what, where in rows(page, "what"):
        assert named_paths(where), what


def test_every_addition_has_its_steps_and_its_commit():
    """The first six of the table are the sections of contributing.md, each with a diff."""
    page = (ROOT / "docs" / "design" / "layers.md").read_text()
    sections = re.split(r"^## ", (ROOT / "docs" / "contributing.md").read_text(), flags=re.M)[1:]
    by_title = {section.split("\n")[0]: section for section in sections}
    for what, _ in rows(page, "what")[:6]:
        assert "```diff" in by_title[f"Add {what}"]
