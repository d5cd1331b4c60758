# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""PyTorch as its wheel has it, on any GPU, the software GPU too.

The wheel has no PTX, which is all that the software GPU runs. So there are no kernels of PyTorch's own here, but its
allocator, copies, streams, events, and the products and transforms of NVIDIA's libraries; in this process and in one
that it starts. Each result must be the CPU's.
"""

import torch
import torch.multiprocessing as processes


def is_like(ours, right, tolerance=1e-3):
    if not torch.allclose(ours.cpu(), right, rtol=tolerance, atol=tolerance):
        raise SystemExit(f"the results differ by up to {(ours.cpu() - right).abs().max()}")


def compute(seed):
    torch.manual_seed(seed)
    a, b = torch.randn(96, 64), torch.randn(64, 80)
    x, y = a.cuda(), b.pin_memory().cuda(non_blocking=True)
    if not (torch.equal(x.cpu(), a) and torch.equal(y.cpu(), b)):
        raise SystemExit("the copies differ")
    if x[3, 5].item() != a[3, 5].item():
        raise SystemExit("an element differs")

    is_like(x @ y, a @ b)
    is_like(x.cpu().half().cuda() @ y.cpu().half().cuda(), (a.half() @ b.half()), 1e-1)
    weights, bias = torch.randn(32, 64), torch.randn(32)
    linear = torch.nn.functional.linear
    is_like(linear(x, weights.cuda(), bias.cuda()), linear(a, weights, bias))
    is_like(torch.fft.rfft(x), torch.fft.rfft(a))

    stream, done = torch.cuda.Stream(), torch.cuda.Event()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        product = x @ y
        done.record()
    done.synchronize()
    is_like(product, a @ b)


def main():
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU")
    compute(1)
    child = processes.get_context("spawn").Process(target=compute, args=(2,))
    child.start()
    child.join()
    if child.exitcode != 0:
        raise SystemExit("the second process failed")
    free, total = torch.cuda.mem_get_info()
    if not 0 < free < total:
        raise SystemExit(f"{free} bytes of {total} are free")
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}: right")


if __name__ == "__main__":
    main()
