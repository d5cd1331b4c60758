# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Runs functions one after the other, each in a process of its own: what fails, hangs or spoils its context takes no other with it."""

import json
import multiprocessing
import sys


class Skip(Exception):
    """This machine does not have what the function needs."""


def answer(pipe, run):
    try:
        pipe.send(("done", run()))
    except Skip:
        pipe.send(("skipped", None))
    except BaseException as error:
        text = str(error).strip()
        pipe.send(("error", f"{type(error).__name__}: {text.splitlines()[0][:200] if text else ''}"))
    pipe.close()


def limit(seconds):
    """How many seconds a function may take: as the command line says with `--seconds=N`."""
    said = [int(word.split("=")[1]) for word in sys.argv if word.startswith("--seconds=")]
    return said[-1] if said else seconds


def run_all(functions, seconds=90):
    """Prints a line of JSON for each function as soon as it is over: its name, and its result or its error.

    The processes are forked, so what is imported already is there. Nothing may have used CUDA before.
    """
    seconds = limit(seconds)
    context = multiprocessing.get_context("fork")
    for name, run in functions.items():
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=answer, args=(theirs, run))
        process.start()
        theirs.close()
        said = {"name": name}
        try:
            state, result = ours.recv() if ours.poll(seconds) else ("error", f"not over after {seconds} s")
        except EOFError:
            process.join()
            state, result = "error", f"the process ended with {process.exitcode}"
        if process.is_alive():
            process.join(10)
            process.kill()
        process.join()
        if state == "skipped":
            continue
        said["result" if state == "done" else "error"] = result
        try:
            line = json.dumps(said, allow_nan=False)
        except ValueError:
            line = json.dumps({"name": name, "error": "what it comes to is not finite"})
        print(line, flush=True)


def chosen(functions):
    """Those whose names have one of the command line's words; all without any."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    return {name: run for name, run in functions.items() if not words or any(word in name for word in words)}
