# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What calls of PyTorch cost. Prints a JSON object: for each row its figure, or why there is none.

A row's figure is the time in the call unless its name says otherwise: the GPU may still be at work when the call returns. Each row
checks its result once, on the CPU.
"""

import json
import statistics
import sys
import time

STARTED = time.perf_counter()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from transformer import Transformer  # noqa: E402

IMPORTED = time.perf_counter()
QUICK = "--quick" in sys.argv
ROWS = {}


def row(unit):
    """Registers a function that measures the row of its docstring."""

    def register(measure):
        ROWS[measure.__doc__] = (unit, measure)
        return measure

    return register


def close(got, want, tolerance):
    got, want = got.double().cpu(), want.double().cpu()
    error = ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()
    if not error <= tolerance:
        raise ArithmeticError(f"wrong by {error:.1e}")


def call(act, times=2000, rounds=9):
    """Median over rounds of the time that a call takes its caller, in microseconds. The GPU is idle when a round begins."""
    times = max(20, times // 10) if QUICK else times
    for _ in range(20):
        act()
    figures = []
    for _ in range(3 if QUICK else rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times // 10):
            act()
        figures.append((time.perf_counter() - began) / (times // 10) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(figures)


def step(act, times=20):
    """Median time of a step to its end on the GPU, in microseconds."""
    times = 3 if QUICK else times
    for _ in range(3):
        act()
    figures = []
    for _ in range(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        act()
        torch.cuda.synchronize()
        figures.append((time.perf_counter() - began) * 1e6)
    return statistics.median(figures)


@row("us")
def mm():
    """torch.mm, 64 x 64, fp16"""
    a = torch.randn(64, 64, dtype=torch.float16)
    on_gpu = a.cuda()
    out = torch.empty_like(on_gpu)
    figure = call(lambda: torch.mm(on_gpu, on_gpu, out=out))
    close(out, a.double() @ a.double(), 5e-3)
    return figure


@row("us")
def linear():
    """nn.Linear, 768 to 768, fp16, one row"""
    layer = torch.nn.Linear(768, 768)
    x = torch.randn(1, 768)
    want = layer(x)
    layer, on_gpu = layer.cuda().half(), x.cuda().half()
    with torch.no_grad():
        figure = call(lambda: layer(on_gpu))
        close(layer(on_gpu), want, 1e-2)
    return figure


@row("us")
def convolution():
    """nn.Conv2d, 16 channels of 32 x 32"""
    layer = torch.nn.Conv2d(16, 16, 3, padding=1)
    x = torch.randn(1, 16, 32, 32)
    want = layer(x)
    layer, on_gpu = layer.cuda(), x.cuda()
    with torch.no_grad():
        figure = call(lambda: layer(on_gpu))
        close(layer(on_gpu), want, 5e-3)
    return figure


@row("us")
def transform():
    """torch.fft.fft, 64 of 256"""
    x = torch.randn(64, 256, dtype=torch.complex64)
    on_gpu = x.cuda()
    figure = call(lambda: torch.fft.fft(on_gpu))
    close(torch.view_as_real(torch.fft.fft(on_gpu)), torch.view_as_real(torch.fft.fft(x)), 1e-4)
    return figure


@row("us")
def large_product():
    """torch.mm, 8192 x 8192, fp16, done"""
    a = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    out = torch.empty_like(a)
    figure = step(lambda: torch.mm(a, a, out=out))
    close(out[:4], a[:4].double() @ a.double(), 5e-3)
    return figure


@row("us")
def blocks():
    """24 blocks of 8 small operations"""
    x = torch.randn(1, 768)
    on_gpu = x.cuda()

    def run(x):
        for _ in range(24):
            y = x * 1.01
            y = y + 0.5
            y = torch.sigmoid(y)
            y = y * x
            y = y - y.mean()
            y = torch.tanh(y)
            x = x + y
        return x

    figure = call(lambda: run(on_gpu), 500)
    close(run(on_gpu), run(x), 1e-3)
    return figure


def adam(foreach):
    parameters = [torch.nn.Parameter(torch.randn(64, 64, device="cuda")) for _ in range(200)]
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=foreach)
    optimizer.step()
    # The first step of Adam with a gradient of ones is its rate, and a hundredth of it decays.
    close(parameters[0].detach(), before[0] * (1 - 1e-5) - 1e-3, 1e-4)
    return step(optimizer.step, 30)


@row("us")
def adam_loop():
    """AdamW over 200 tensors, loop, done"""
    return adam(False)


@row("us")
def adam_foreach():
    """AdamW over 200 tensors, foreach, done"""
    return adam(True)


@row("us")
def item():
    """.item()"""
    x = torch.full((), 2.5, device="cuda")
    assert x.item() == 2.5
    return call(x.item)


@row("us")
def small_tensor():
    """torch.tensor([1., 2.], device="cuda")"""
    assert torch.tensor([1.0, 2.0], device="cuda").tolist() == [1.0, 2.0]
    return call(lambda: torch.tensor([1.0, 2.0], device="cuda"))


@row("us")
def events():
    """event record and query"""
    event = torch.cuda.Event()

    def act():
        event.record()
        event.query()

    figure = call(act)
    event.synchronize()
    assert event.query()
    return figure


@row("us")
def decode():
    """GPT-2-124M decode, fp16, eager: a token, done"""
    torch.manual_seed(1)
    model = Transformer().cuda().half().eval()
    with torch.no_grad():
        cache = model.new_cache(1, 1024, torch.float16, "cuda")
        prompt = torch.arange(64, device="cuda")[None]
        logits = model(prompt, cache)
        close(logits, model(prompt), 2e-2)
        token = logits[:, -1:].argmax(-1)

        def act():
            nonlocal token
            token = model(token, cache)[:, -1:].argmax(-1)
            token.item()

        return step(act, 60)


@row("us")
def training():
    """GPT-2-124M training step, 8 x 1024 tokens, done"""
    torch.manual_seed(1)
    model = Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 50257, (8, 1025), device="cuda")
    losses = []

    def act():
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    figure = step(act, 10)
    assert losses[-1].item() < losses[0].item()
    return figure


@row("us")
def resnet():
    """ResNet-50 training step, batch of 64, AMP, channels last, done"""
    import torchvision

    torch.manual_seed(1)
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    losses = []

    def act():
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        (loss * 128).backward()
        for parameter in model.parameters():
            parameter.grad /= 128
        optimizer.step()
        losses.append(loss.detach())

    figure = step(act, 10)
    assert losses[-1].item() < losses[0].item()
    return figure


def first():
    """What a program waits for before its first results, from the start of Python on."""
    a = torch.randn(64, 64)
    product = (a.cuda() @ a.cuda()).cpu()
    figures = {"import torch and the first product": (time.perf_counter() - STARTED) * 1e6}
    close(product, a @ a, 1e-3)
    try:
        layer, x = torch.nn.Conv2d(4, 4, 3), torch.randn(1, 4, 16, 16)
        with torch.no_grad():
            got = layer.cuda()(x.cuda()).cpu()
        figures["and the first convolution"] = (time.perf_counter() - STARTED) * 1e6
        close(got, layer.cpu()(x), 5e-3)
    except Exception:
        # The row of convolutions says why.
        pass
    return figures


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    said = {"rows": {}, "errors": {}}
    if not chosen:
        for name, figure in first().items():
            said["rows"][name] = {"unit": "us", "figure": figure}
    for name, (unit, measure) in ROWS.items():
        if chosen and not any(part in name for part in chosen):
            continue
        try:
            said["rows"][name] = {"unit": unit, "figure": measure()}
        except Exception as error:
            said["errors"][name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
    print(json.dumps(said))


if __name__ == "__main__":
    main()
