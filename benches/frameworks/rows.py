# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Costs of PyTorch calls: a line of JSON for each row, with its figure in microseconds or the reason why there is none.

A row's figure is the time in the call unless its name says that something is done: the GPU may still be at work when the call returns.
Each row checks its result.
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from isolated import chosen, run_all
from transformer import Transformer

QUICK = "--quick" in sys.argv
ROWS = {}


def row(measure):
    """Registers a function that measures the row of its docstring."""
    ROWS[measure.__doc__] = measure
    return measure


def close(got, want, tolerance):
    got, want = got.double().cpu(), want.double().cpu()
    error = ((got - want).abs().max() / want.abs().max().clamp(min=1e-30)).item()
    if not error <= tolerance:
        raise ArithmeticError(f"wrong by {error:.1e}")


# The shortest measurement of a figure, in seconds: longer than what the start of a process, and that of the worker for
# the next one a second later, may still cost a service and a driver.
LEAST = 0.2 if QUICK else 3.0


def call(act, times=200):
    """Median over rounds of the time that a call takes its caller, in microseconds. The GPU is idle when a round begins."""
    for _ in range(20):
        act()
    figures, start = [], time.perf_counter()
    while time.perf_counter() - start < LEAST:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            act()
        figures.append((time.perf_counter() - began) / times * 1e6)
    torch.cuda.synchronize()
    return statistics.median(figures)


def step(act, times=20, least=LEAST):
    """Median time of a step to its end on the GPU, in microseconds; of so many steps at least, and for so many seconds."""
    times = 3 if QUICK else times
    for _ in range(3):
        act()
    figures, start = [], time.perf_counter()
    while len(figures) < times or time.perf_counter() - start < least:
        torch.cuda.synchronize()
        began = time.perf_counter()
        act()
        torch.cuda.synchronize()
        figures.append((time.perf_counter() - began) * 1e6)
    return statistics.median(figures)


@row
def mm():
    """torch.mm, 64 x 64, fp16"""
    a = torch.randn(64, 64, dtype=torch.float16)
    on_gpu = a.cuda()
    out = torch.empty_like(on_gpu)
    figure = call(lambda: torch.mm(on_gpu, on_gpu, out=out))
    close(out, a.double() @ a.double(), 5e-3)
    return figure


@row
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


@row
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


@row
def transform():
    """torch.fft.fft, 64 of 256"""
    x = torch.randn(64, 256, dtype=torch.complex64)
    on_gpu = x.cuda()
    figure = call(lambda: torch.fft.fft(on_gpu))
    close(torch.view_as_real(torch.fft.fft(on_gpu)), torch.view_as_real(torch.fft.fft(x)), 1e-4)
    return figure


@row
def large_product():
    """torch.mm, 8192 x 8192, fp16, done"""
    a = torch.randn(8192, 8192, dtype=torch.float16, device="cuda")
    out = torch.empty_like(a)
    figure = step(lambda: torch.mm(a, a, out=out))
    close(out[:4], a[:4].double() @ a.double(), 5e-3)
    return figure


@row
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

    figure = call(lambda: run(on_gpu), 50)
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


@row
def adam_loop():
    """AdamW over 200 tensors, loop, done"""
    return adam(False)


@row
def adam_foreach():
    """AdamW over 200 tensors, foreach, done"""
    return adam(True)


@row
def item():
    """.item()"""
    x = torch.full((), 2.5, device="cuda")
    assert x.item() == 2.5
    return call(x.item)


@row
def small_tensor():
    """torch.tensor([1., 2.], device="cuda")"""
    assert torch.tensor([1.0, 2.0], device="cuda").tolist() == [1.0, 2.0]
    return call(lambda: torch.tensor([1.0, 2.0], device="cuda"))


@row
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


def tokens(attention, count):
    """Median time of a token after the one before, of so many: each has to look at one more."""
    torch.manual_seed(1)
    model = Transformer().cuda().half().eval()
    with torch.no_grad(), attention:
        cache = model.new_cache(1, 1024, torch.float16, "cuda")
        prompt = torch.arange(64, device="cuda")[None]
        logits = model(prompt, cache)
        close(logits, model(prompt), 2e-2)
        token = logits[:, -1:].argmax(-1)

        def act():
            nonlocal token
            token = model(token, cache)[:, -1:].argmax(-1)
            token.item()

        return step(act, count, least=0)


@row
def decode():
    """GPT-2-124M decode, fp16, eager: a token, done"""
    return tokens(contextlib.nullcontext(), 60)


@row
def flash_decode():
    """GPT-2-124M decode, the same with flash attention"""
    return tokens(sdpa_kernel(SDPBackend.FLASH_ATTENTION), 600)


@row
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


@row
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


def first(name):
    """A row of a program that has only just started."""
    script = pathlib.Path(__file__).with_name("first.py")
    said = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])[name]


for name in ["import torch and the first product", "and the first convolution"]:
    ROWS[name] = lambda name=name: first(name)


if __name__ == "__main__":
    torch.backends.cuda.matmul.allow_tf32 = False
    run_all(chosen(ROWS))
