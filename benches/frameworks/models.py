# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Programs as people write them: a line of JSON for each, with the numbers that it comes to, which must be the same on every way to the
GPU, or the reason why there are none.
"""

import torch
import torch.nn.functional as F
from torch import nn

from isolated import Skip, chosen, run_all

PROGRAMS = {}
STEPS = 6


def program(run):
    PROGRAMS[run.__name__.replace("_", " ")] = run
    return run


def train(model, batch, loss_of, steps=STEPS, rate=1e-3):
    """The losses of a few steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for at in range(steps):
        loss = loss_of(model, batch(at))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program
def resnet_50_amp_channels_last():
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 96, 96).cuda().to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (16,)).cuda()

    def loss_of(model, _):
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(model(images), labels)

    return train(model, lambda at: at, loss_of, rate=1e-4)


def transformer(backend, dtype):
    from torch.nn.attention import sdpa_kernel

    from transformer import Transformer

    model = Transformer(tokens=2048, positions=128, width=256, heads=4, layers=4).cuda()
    tokens = torch.randint(0, 2048, (4, 129)).cuda()

    def loss_of(model, _):
        with sdpa_kernel(backend), torch.autocast("cuda", dtype):
            logits = model(tokens[:, :-1])
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return train(model, lambda at: at, loss_of)


@program
def transformer_math():
    return transformer(torch.nn.attention.SDPBackend.MATH, torch.bfloat16)


@program
def transformer_flash():
    return transformer(torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.bfloat16)


@program
def transformer_memory_efficient():
    return transformer(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16)


@program
def transformer_cudnn():
    return transformer(torch.nn.attention.SDPBackend.CUDNN_ATTENTION, torch.bfloat16)


@program
def lstm():
    model = nn.ModuleList([nn.LSTM(32, 64, 2, batch_first=True), nn.Linear(64, 1)]).cuda()
    x = torch.randn(16, 50, 32).cuda()
    wanted = x.sum(2, keepdim=True).cumsum(1) / 50
    return train(model, lambda at: at, lambda m, _: F.mse_loss(m[1](m[0](x)[0]), wanted))


@program
def fft_convolution():
    signal, kernel = torch.randn(8, 4096).cuda(), torch.randn(8, 129).cuda()
    size = 4096 + 129 - 1
    by_fft = torch.fft.irfft(torch.fft.rfft(signal, size) * torch.fft.rfft(kernel, size), size)
    directly = F.conv1d(
        F.pad(signal, (128, 128))[None], kernel.flip(1)[:, None], groups=8
    )[0]
    return [by_fft.abs().mean().item(), (by_fft - directly).abs().max().item() < 1e-2]


@program
def linear_algebra():
    a = torch.randn(4, 48, 48, dtype=torch.float64)
    a = a.cuda()
    spd = a @ a.mT + 48 * torch.eye(48, dtype=a.dtype, device="cuda")
    u, s, v = torch.linalg.svd(a)
    values, vectors = torch.linalg.eigh(spd)
    q, r = torch.linalg.qr(a)
    solved = torch.linalg.solve(spd, a)
    return [
        s.sum().item(),
        ((u * s[:, None]) @ v - a).abs().max().item() < 1e-9,
        values.sum().item(),
        ((vectors * values[:, None]) @ vectors.mT - spd).abs().max().item() < 1e-9,
        (q @ r - a).abs().max().item() < 1e-9,
        (spd @ solved - a).abs().max().item() < 1e-9,
        torch.linalg.cholesky(spd).diagonal(dim1=1, dim2=2).log().sum().item(),
        torch.linalg.lstsq(a[0], a[1]).solution.abs().mean().item(),
        torch.linalg.eigvals(a).abs().sum().item(),
    ]


@program
def sparse_products():
    a = torch.randn(200, 150) * (torch.rand(200, 150) > 0.9)
    b = torch.randn(150, 40)
    on_gpu = a.cuda()
    by_rows, by_places = on_gpu.to_sparse_csr(), on_gpu.to_sparse()
    figures = [
        (by_rows @ b.cuda()).double().cpu() - a.double() @ b.double(),
        (by_places @ b.cuda()).double().cpu() - a.double() @ b.double(),
        (by_rows @ by_rows.to_dense().mT.to_sparse_csr()).to_dense().double().cpu()
        - a.double() @ a.double().mT,
        (by_rows @ b.cuda()[:, 0]).double().cpu() - a.double() @ b[:, 0].double(),
    ]
    return [figure.abs().max().item() < 1e-4 for figure in figures]


@program
def triton_kernel():
    import triton
    import triton.language as tl

    @triton.jit
    def scale(x, y, n, BLOCK: tl.constexpr):
        places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = places < n
        tl.store(y + places, tl.load(x + places, mask=inside) * 3 + 1, mask=inside)

    x = torch.randn(10_000).cuda()
    y = torch.empty_like(x)
    scale[(triton.cdiv(10_000, 256),)](x, y, 10_000, BLOCK=256)
    return [torch.equal(y.cpu(), x.cpu() * 3 + 1) or (y - (x * 3 + 1)).abs().max().item() < 1e-6]


@program
def compiled_model():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 1)).cuda()
    compiled = torch.compile(model)
    x = torch.randn(32, 64).cuda()
    wanted = x.square().mean(1, keepdim=True)
    return train(compiled, lambda at: at, lambda m, _: F.mse_loss(m(x), wanted))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        generator = torch.Generator().manual_seed(at)
        return torch.randn(128, generator=generator), torch.tensor(float(at))


@program
def data_loader_with_workers_and_pinned_memory():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    sums = []
    for x, y in loader:
        on_gpu = x.cuda(non_blocking=True)
        sums.append(((on_gpu * on_gpu).sum() + y.cuda(non_blocking=True).sum()).item())
    return sums


@program
def convolutions_in_benchmark_mode():
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 3, 3, stride=2)
    ).cuda()
    x = torch.randn(4, 3, 33, 33).cuda()
    losses = train(model, lambda at: at, lambda m, _: F.mse_loss(m(x), x))
    torch.backends.cudnn.benchmark = False
    return losses


@program
def memory_segments_that_expand():
    """PyTorch's allocator on virtual memory: segments grow in place."""
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    torch.cuda.empty_cache()
    blocks = [torch.full((size << 20,), size, dtype=torch.uint8, device="cuda") for size in range(1, 60, 3)]
    sums = [block[-1].item() + block[0].item() for block in blocks]
    expandable = any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    del blocks[::2]
    torch.cuda.empty_cache()
    whole = torch.ones(200 << 20, dtype=torch.uint8, device="cuda")
    sums += [expandable, whole.sum().item(), sum(block.float().sum().item() for block in blocks)]
    del blocks, whole
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    torch.cuda.empty_cache()
    return sums


@program
def graph_of_a_training_step():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x = torch.zeros(32, 64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for at in range(20):
        x.copy_(torch.full((32, 64), at / 20))
        graph.replay()
        losses.append(loss.item())
    return losses


@program
def compiled_model_as_graphs():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 8)).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    sums = []
    with torch.no_grad():
        for at in range(6):
            x = torch.randn(16, 64, generator=torch.Generator().manual_seed(at)).cuda()
            sums.append(compiled(x).sum().item())
    return sums


def two_gpus():
    if torch.cuda.device_count() < 2:
        raise Skip


@program
def all_reduce_over_two_gpus():
    """By NCCL, in one process."""
    two_gpus()
    parts = [torch.full((1 << 20,), 1.5 + gpu, device=f"cuda:{gpu}") for gpu in range(2)]
    torch.cuda.nccl.all_reduce(parts)
    for gpu in range(2):
        torch.cuda.synchronize(gpu)
    return [part.sum().item() for part in parts]


def one_of_two(rank, port, results):
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=2)
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(nn.Linear(64, 8).cuda(), device_ids=[rank])
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(rank)).cuda()
    losses = train(model, lambda at: at, lambda m, _: m(x).square().mean())
    results.put((rank, losses, sum(part.sum().item() for part in model.parameters())))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@program
def training_on_two_gpus_with_ddp():
    """Two processes with a GPU each, which average their gradients: both end with the same weights."""
    two_gpus()
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = torch.multiprocessing.spawn(one_of_two, (port, results), nprocs=2, join=False)
    while not processes.join():
        pass
    both = sorted(results.get() for _ in range(2))
    return [*both[0][1], *both[1][1], both[0][2], both[0][2] == both[1][2]]


@program
def programs_of_cupy():
    import cupy

    cupy.random.seed(7)
    x = cupy.arange(1000, dtype=cupy.float32)
    square = cupy.RawKernel(
        'extern "C" __global__ void square(const float* x, float* y, int n) {'
        " int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) y[i] = x[i] * x[i]; }",
        "square",
    )
    y = cupy.empty_like(x)
    square((4,), (256,), (x, y, 1000))
    a = cupy.random.rand(40, 40)
    spectrum = cupy.fft.fft(x)
    return [
        float(y.sum()),
        float(cupy.sort(-x)[0]),
        bool(abs(cupy.fft.ifft(spectrum).real - x).max() < 1e-2),
        bool(abs(cupy.linalg.solve(a, a @ a) - a).max() < 1e-6),
        bool(0 < float(a.mean()) < 1),
    ]


@program
def programs_of_cuda_core():
    import cuda_core

    return cuda_core.numbers()


@program
def functions_of_jax():
    import os

    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    # The autotuner chooses algorithms by their time: other runs, other last digits.
    os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    import jax
    import jax.numpy as jnp

    key = jax.random.key(0)
    a = jax.random.normal(key, (256, 256))
    w = jax.random.normal(key, (256, 64)) * 0.05

    @jax.jit
    def step(w):
        loss, slope = jax.value_and_grad(lambda w: ((jax.nn.gelu(a @ w) @ w.T - a) ** 2).mean())(w)
        return w - 0.5 * slope, loss

    for _ in range(50):
        w, loss = step(w)
    image, kernel = a.reshape(1, 4, 128, 128), jax.random.normal(key, (8, 4, 3, 3))
    heads = a.reshape(2, 128, 4, 64).astype(jnp.bfloat16)
    # XLA makes the plan from a text that it has got from cuDNN.
    attended = jax.nn.dot_product_attention(heads, heads, heads, is_causal=True, implementation="cudnn")
    found = [
        loss,
        jax.grad(lambda x: jnp.tanh(x @ x).sum())(a).std(),
        jax.vmap(jnp.cumsum)(a)[:, -1].std(),
        jnp.abs(jnp.linalg.qr(a)[1]).sum(),
        jnp.linalg.eigvalsh(a + a.T)[-1],
        jnp.abs(jnp.linalg.solve(a + 20 * jnp.eye(256), a)).sum(),
        jnp.linalg.svd(a)[1].sum(),
        jnp.linalg.slogdet(a)[1],
        jnp.abs(jnp.fft.rfft(a)).sum(),
        jnp.sort(a, 0)[:3].sum(),
        jnp.argsort(a.ravel())[77],
        jax.lax.top_k(a, 5)[0].sum(),
        jnp.abs(jax.lax.conv(image, kernel, (1, 1), "SAME")).sum(),
        jax.lax.while_loop(lambda c: c < 1000, lambda c: c + 3, 0),
        jax.lax.scan(lambda carry, x: (carry * 0.9 + x.sum(), carry), 0.0, a)[0],
        jnp.einsum("ij,jk,kl->il", a, a, a).std(),
        a.at[jnp.array([1, 2])].add(3.0).sum(),
        jax.random.uniform(key, (1000,)).sum(),
        attended.astype(jnp.float32).std(),
        jax.devices()[0].platform == "gpu",
    ]
    return [float(number) for number in found]


def numbers_of(run):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(5)
    return [float(number) for number in run()]


if __name__ == "__main__":
    run_all({name: lambda run=run: numbers_of(run) for name, run in chosen(PROGRAMS).items()})
