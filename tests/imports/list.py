# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Prints the names that the modules of a framework want of the driver and of NVIDIA's libraries, as `tests/imports.rs`
reads them.

    python3 tests/imports/list.py --header cuda.h NAME FILE_OR_DIRECTORY…

The names are imports of the modules, and strings in them that are names of the driver's or NVML's functions: those a
module looks up while it runs. Names that this project does not serve are left out: NCCL, NVRTC and nvJitLink run in the
guest as they are. readelf is needed.
"""

import argparse
import pathlib
import re
import subprocess
import textwrap

SERVED = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusolverMg|cusparse|cusparseLt|cupti|cufile"
    r"|nvjpeg|nvshmem_host|nvidia-ml)\.so\.\d+"
)
# Libraries whose names have no version.
PLAIN = [
    (re.compile(r"cusparseLt[A-Z]"), "libcusparseLt.so.0"),
    (re.compile(r"cuFile[A-Z]"), "libcufile.so.0"),
    (re.compile(r"nvml[A-Z]"), "libnvidia-ml.so.1"),
    (re.compile(r"cu[A-Z]"), "libcuda.so.1"),
]


def imports(module):
    """Pairs of a library, with the version that is asked for, and a name."""
    command = ["readelf", "--wide", "--dyn-syms", "--version-info", module]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    versions, library = {}, None
    for line in lines:
        if of := re.search(r"Version: \d+\s+File: (\S+)", line):
            library = of[1]
        elif (of := re.search(r"Name: (\S+)\s+Flags: .*Version: (\d+)", line)) and library:
            versions[int(of[2])] = (library, of[1])
    for line in lines:
        fields = line.split()
        if len(fields) < 8 or fields[4] != "GLOBAL" or fields[6] != "UND":
            continue
        name = fields[7].split("@")[0]
        if len(fields) > 8:
            library, version = versions[int(fields[8].strip("()"))]
            if SERVED.fullmatch(library):
                yield f"{library} {version}", name
        elif library := plain(name):
            yield library, name


def plain(name):
    return next((library for start, library in PLAIN if start.match(name)), None)


def looked_up(module, functions):
    strings = re.findall(rb"(?<=\0)(?:cu|nvml)[A-Z]\w+(?=\0)", module.read_bytes())
    for name in {string.decode() for string in strings}:
        if name.startswith("nvml") or name in functions:
            yield plain(name), name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--header", type=pathlib.Path, required=True, help="cuda.h of the newest CUDA")
    parser.add_argument("name", help="the framework and its version")
    parser.add_argument("paths", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    functions = set(re.findall(r"\bcu[A-Z]\w+", arguments.header.read_text()))

    wanted = {}
    for path in arguments.paths:
        modules = path.rglob("*.so*") if path.is_dir() else [path]
        for module in modules:
            # The rest of NVIDIA's packages is for those alone.
            if "nvidia" in module.parts or not module.read_bytes().startswith(b"\x7fELF"):
                continue
            for library, name in [*imports(module), *looked_up(module, functions)]:
                wanted.setdefault(library, set()).add(name)

    print("# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause")
    print(f"# {arguments.name}: made by list.py")
    for library, names in sorted(wanted.items()):
        print(f"\n[{library}]")
        print(textwrap.fill(" ".join(sorted(names)), 110, break_on_hyphens=False))


if __name__ == "__main__":
    main()
