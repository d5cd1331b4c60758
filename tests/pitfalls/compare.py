#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Compares what pitfall programs printed with what they print on NVIDIA's driver.

    compare.py [--backend NAME] [--expected FILE] [--known FILE] RUN...

RUN are files with the programs' output. Compared are the OBSERVED lines, without those whose key begins with "hw.", and the
rows of the differential tables. Differences that are known and wanted stand in expected/known-differences.txt; each other
difference is printed, and so is a known one that is none any more. The exit status is 1 if there is one.

    compare.py --record HEAD RUN...     prints a file of expectations made of RUN, which ran on NVIDIA's driver
"""

import argparse
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
ROW = re.compile(r"(.*\)) -> (.*)")
VERDICT = re.compile(r"PASS (\w+)")


def read(lines):
    """The facts in a run's output, key to value, and the tests that passed (a failed one may have stopped early)."""
    facts, tests, seen = {}, set(), collections.Counter()
    for line in lines:
        line = line.rstrip("\n")
        if line.startswith("OBSERVED "):
            key, _, value = line[len("OBSERVED "):].partition("=")
            if key.split(" ", 1)[1].startswith("hw."):
                continue
            facts[key] = value.rstrip()
        elif verdict := VERDICT.match(line):
            tests.add(verdict[1])
        elif row := ROW.fullmatch(line):
            # The same call stands more than once in a table: its how-manieth row is part of the key.
            seen[row[1]] += 1
            key = row[1] if seen[row[1]] == 1 else f"{row[1]} #{seen[row[1]]}"
            facts[key] = row[2]
            tests.add(group(key))
    return facts, tests


def group(key):
    """The test or table that a fact belongs to."""
    if key.startswith("pitfall_"):
        return key.split(" ", 1)[0]
    return "the driver's table" if re.match(r"(before|without|with) \w+: ", key) else "the runtime's table"


def show(key, value):
    return f"OBSERVED {key}={value}" if key.startswith("pitfall_") else f"{key.split(' #')[0]} -> {value}"


def read_known(path, backend):
    """Known differences: lines "key => value" in the sections [all] and [backend]; "a | b" allows two values."""
    known, section = {}, "all"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        key, arrow, value = line.partition(" => ")
        if not arrow:
            sys.exit(f"{path}:{number}: no \" => \"")
        if section in ("all", backend):
            known[key] = [v.strip() for v in value.split(" | ")]
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="native", help="native, software, socket or vm")
    parser.add_argument("--expected", type=pathlib.Path, default=HERE / "expected" / "h200-driver580.txt")
    parser.add_argument("--known", type=pathlib.Path, default=HERE / "expected" / "known-differences.txt")
    parser.add_argument("--record", metavar="HEAD", help="print expectations, with HEAD as their first comment")
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    lines = [line for run in arguments.runs for line in run.read_text(errors="replace").splitlines()]
    got, ran = read(lines)
    if arguments.record is not None:
        print("# " + arguments.record)
        for key, value in got.items():
            print(show(key, value))
        return 0
    expected, _ = read(arguments.expected.read_text().splitlines())
    known = {} if arguments.backend == "native" else read_known(arguments.known, arguments.backend)
    differences = 0
    for key in dict.fromkeys([*expected, *got]):
        if group(key) not in ran:
            continue
        native, ours = expected.get(key, "(nothing)"), got.get(key, "(nothing)")
        allowed = known.get(key)
        if allowed is not None and native == ours and ours not in allowed:
            print(f"{key}: {ours}, as on NVIDIA's driver: no known difference any more")
        elif allowed is None and native != ours or allowed is not None and ours not in allowed:
            print(f"{key}: {ours}, on NVIDIA's driver {native}")
        else:
            continue
        differences += 1
    print(f"{len(got)} facts, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
