# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""NVIDIA's cuda-core and cuda-bindings on any GPU, the software GPU too.

Each section uses one part of the packages, checks what it gets, and returns numbers that must be the same on every way
to the GPU. A section that needs what the installed release or the GPU does not have is left out. Alone, the program
prints a line for each section: python -m cuda_core [WORD…] runs those whose names have one of the words.
"""

# The sections register themselves, in this order.
from . import programs, memory, graphs, images, runtime  # noqa: F401, I001
from .common import SECTIONS, Lacks, Place


def numbers():
    """What all sections come to, in one process: those that are left out have none."""
    found = []
    place = Place()
    for name, run in SECTIONS.items():
        try:
            found.extend(float(number) for number in run(place))
        except Lacks:
            pass
        except Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
    return found
