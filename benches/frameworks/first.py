# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Times of a program before its first results, from the start of Python on. Prints a JSON object of microseconds."""

import json
import time

STARTED = time.perf_counter()

import torch  # noqa: E402


def check(got, want, tolerance):
    if not (got - want).abs().max().item() <= tolerance * want.abs().max().item():
        raise ArithmeticError("the first result is wrong")


def main():
    a = torch.randn(64, 64)
    product = (a.cuda() @ a.cuda()).cpu()
    figures = {"import torch and the first product": (time.perf_counter() - STARTED) * 1e6}
    check(product, a @ a, 1e-2)
    layer, x = torch.nn.Conv2d(4, 4, 3), torch.randn(1, 4, 16, 16)
    with torch.no_grad():
        want = layer(x)
        try:
            got = layer.cuda()(x.cuda()).cpu()
            figures["and the first convolution"] = (time.perf_counter() - STARTED) * 1e6
            check(got, want, 1e-2)
        except RuntimeError:
            # The row of convolutions says why.
            pass
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
