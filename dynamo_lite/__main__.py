"""``python -m dynamo_lite rules [NAME]``: prints what becomes of a call that is captured, or the whole table of calls.

Invariant: the table is only read; nothing is compiled.
"""
import argparse
import sys

from dynamo_lite.debug import rules


def main(arguments: list[str]) -> int:
    """Runs a command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m dynamo_lite", description="Questions to dynamo_lite.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("rules", help="what becomes of a call where it is captured, and why")
    command.add_argument("name", nargs="?", help="a callable or module, such as torch.save; none: every row")
    name = parser.parse_args(arguments).name
    try:
        print(rules.show(name) if name is not None else rules.show_all())
    except rules.UnknownName as error:
        print(f"dynamo_lite rules: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
