# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""PyTorch's own database of operators: a few samples of each, for some types, with gradients for float32.

Several processes share the operators: `operators.py FILE SECONDS PART PARTS` writes to FILE what each combination of a part came to, and
`operators.py compare NATIVE OURS PARTS` holds the files of two runs against each other. It needs the pure-Python package expecttest beside PyTorch.
"""

import json
import pickle
import sys
import time
import warnings

import torch

TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.complex64]
SAMPLES = 3
DIFFERS = "differs"
# Values of a result that are kept.
KEPT = 256
# Their results are undefined, or depend on more than their arguments.
UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "resize_as_"}


def kept(value):
    """The kept part of a result: its shape, and some of its values."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        value = value.to_dense() if value.layout != torch.strided else value
        flat = value.resolve_conj().resolve_neg().cpu().flatten()
        step = max(1, flat.numel() // KEPT)
        flat = flat[::step]
        if flat.dtype == torch.bfloat16 or flat.dtype == torch.float16:
            flat = flat.float()
        return (tuple(value.shape), str(value.dtype), flat.numpy())
    if isinstance(value, (list, tuple)):
        return [kept(part) for part in value]
    return repr(value) if not isinstance(value, (int, float, bool, complex)) else value


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)


def one(op, dtype):
    """The results of an operator's samples."""
    results = []
    with_gradients = dtype == torch.float32 and op.supports_autograd
    samples = op.sample_inputs("cuda", dtype, requires_grad=with_gradients)
    for _, sample in zip(range(SAMPLES), samples):
        torch.manual_seed(3)
        result = op(sample.input, *sample.args, **sample.kwargs)
        results.append(kept(result))
        if with_gradients:
            ends = [part for part in tensors(result) if part.requires_grad and part.dtype.is_floating_point]
            starts = [part for part in tensors([sample.input, *sample.args]) if part.requires_grad and part.is_leaf]
            if ends and starts:
                total = sum(part.sum() for part in ends)
                results.append(kept(torch.autograd.grad(total, starts, allow_unused=True)))
    return results


def database():
    # Before the database, which forbids it.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    return op_db


def name_of(op, dtype):
    return f"{op.formatted_name} {str(dtype).removeprefix('torch.')}"


def run(path, seconds, part, parts):
    op_db = database()
    began = time.monotonic()
    all_results, left = {}, 0
    for op in op_db[part::parts]:
        if op.name in UNDEFINED:
            continue
        supported = op.supported_dtypes("cuda")
        for dtype in TYPES:
            if dtype not in supported:
                continue
            if time.monotonic() - began > seconds:
                left += 1
                continue
            name = name_of(op, dtype)
            torch.manual_seed(2)
            try:
                all_results[name] = ("done", one(op, dtype))
            except Exception as error:
                text = str(error).strip()
                all_results[name] = ("error", f"{type(error).__name__}: {text.splitlines()[0][:160] if text else ''}")
                if "CUDA error" in text and ("illegal" in text or "unspecified" in text):
                    break
    with open(path, "wb") as file:
        pickle.dump((all_results, left), file)
    print(json.dumps({"combinations": len(all_results), "left out": left}))


def is_same(one, other):
    import numpy

    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        if one[:2] != other[:2]:
            return False
        if one[2].dtype.kind in "fc":
            coarse = "float16" in one[1]
            tolerance = 2e-2 if coarse else 1e-3
            with numpy.errstate(all="ignore"):
                return numpy.allclose(one[2], other[2], rtol=tolerance, atol=tolerance, equal_nan=True)
        return numpy.array_equal(one[2], other[2])
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-3 * max(1, abs(one)) or one != one and other != other
    return one == other


def load(path, parts):
    """Collects all results of the processes that shared the operators, and the number of combinations left out."""
    results, left = {}, 0
    for part in range(parts):
        with open(f"{path}-{part}", "rb") as file:
            more, more_left = pickle.load(file)
        results.update(more)
        left += more_left
    return results, left


def differing_again(native, others):
    """Those of the combinations that differ which come to something else natively, too, when they are run once more."""
    wanted = [name for name, why in others.items() if why == DIFFERS]
    for op in database() if wanted else []:
        for dtype in TYPES:
            name = name_of(op, dtype)
            if name in wanted:
                torch.manual_seed(2)
                if not is_same(native[name], one(op, dtype)):
                    yield name


def compare(native, ours, parts):
    """Prints a JSON object: how many combinations pass natively, how many of these give the same, and why others do not."""
    native, left = load(native, parts)
    ours, our_left = load(ours, parts)
    passed = {name: result for name, (state, result) in native.items() if state == "done"}
    said = {"passed natively": len(passed), "same": 0, "left out": max(left, our_left), "others": {}}
    for name, result in passed.items():
        state, mine = ours.get(name, ("error", "not reached"))
        if state == "done" and is_same(result, mine):
            said["same"] += 1
        else:
            said["others"][name] = DIFFERS if state == "done" else mine
    for name in differing_again(passed, said["others"]):
        said["others"][name] = "differs from one native run to another, too"
    print(json.dumps(said))


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        run(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
