# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Prints a line for each section."""

import sys
import traceback

from . import SECTIONS, Lacks, Place


def main():
    words = sys.argv[1:]
    place = Place()
    failed = 0
    for name, run in SECTIONS.items():
        if words and not any(word in name for word in words):
            continue
        try:
            print(f"{name}: {[float(number) for number in run(place)]}", flush=True)
        except Lacks as lack:
            print(f"{name}: left out, there is no {lack}", flush=True)
        except Exception:
            failed += 1
            print(f"{name}: wrong", flush=True)
            traceback.print_exc()
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
