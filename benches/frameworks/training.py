# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Trains a transformer for some steps, together with other processes: training.py STEPS DIRECTORY COUNT.

COUNT processes wait for each other in DIRECTORY before they begin. Prints a JSON object with a digest of the weights in
the end, and with the time of CLOCK_MONOTONIC at which each step was done. Nothing that it computes depends on the order
in which a GPU adds up.
"""

import hashlib
import json
import os
import pathlib
import sys
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from transformer import Transformer  # noqa: E402


def main(steps, directory, count):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    model = Transformer(layers=6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (4, 513), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(5):
        step()
    (directory / str(os.getpid())).touch()
    while len(list(directory.iterdir())) < count:
        time.sleep(0.005)
    done = [time.monotonic()]
    for _ in range(steps):
        step()
        done.append(time.monotonic())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(json.dumps({"weights": digest.hexdigest(), "done": done}))


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]))
