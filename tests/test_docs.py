"""The generated pages are as the code has it, and every link between pages leads somewhere."""
import pathlib
import re
import subprocess
import sys

import pytest

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
