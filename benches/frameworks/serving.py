# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Serves a language model of random weights with vLLM, in rounds: serving.py DIRECTORY.

Prints a line of JSON when all is warm, and for each line that it reads another one: the figures of a round in microseconds, and the tokens that it
came to. DIRECTORY gets the model and the compiled kernels.
"""

import importlib.util
import json
import os
import pathlib
import sys
import time

# The shape of Llama 3.2 1B.
LAYERS, WIDTH, INNER, HEADS, SHARED_HEADS, VOCABULARY = 16, 2048, 8192, 32, 8, 128256
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": SHARED_HEADS,
    "head_dim": WIDTH // HEADS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}


def write_model(directory):
    """A checkpoint of fixed random weights, as large as usual ones, so that the tokens depend on all of it."""
    import torch
    from safetensors.torch import save_file

    chance = torch.Generator().manual_seed(7)
    tensors = {}

    def random(name, *shape):
        tensors[f"model.{name}.weight"] = (torch.randn(*shape, generator=chance) * 0.05).bfloat16()

    def ones(name):
        tensors[f"model.{name}.weight"] = torch.ones(WIDTH).bfloat16()

    random("embed_tokens", VOCABULARY, WIDTH)
    shared = SHARED_HEADS * (WIDTH // HEADS)
    for layer in (f"layers.{at}" for at in range(LAYERS)):
        for name, rows in [("q_proj", WIDTH), ("k_proj", shared), ("v_proj", shared), ("o_proj", WIDTH)]:
            random(f"{layer}.self_attn.{name}", rows, WIDTH)
        for name in ["gate_proj", "up_proj"]:
            random(f"{layer}.mlp.{name}", INNER, WIDTH)
        random(f"{layer}.mlp.down_proj", WIDTH, INNER)
        ones(f"{layer}.input_layernorm")
        ones(f"{layer}.post_attention_layernorm")
    ones("norm")
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    save_file(tensors, str(directory / "model.safetensors"), metadata={"format": "pt"})


class Server:
    def __init__(self, model):
        from vllm import LLM

        self.llm = LLM(
            str(model),
            skip_tokenizer_init=True,
            gpu_memory_utilization=0.1,
            # Fixed, as it would otherwise depend on the memory that others have.
            kv_cache_memory_bytes=4 << 30,
            enable_prefix_caching=False,
            max_model_len=2048,
            max_num_seqs=64,
        )

    def generate(self, requests, length, count):
        """How long it takes to add `count` tokens to each of so many prompts, in microseconds, and the tokens."""
        from vllm import SamplingParams

        said = [[(7 + 31 * request + 17 * at * at) % VOCABULARY for at in range(length)] for request in range(requests)]
        prompts = [{"prompt_token_ids": prompt} for prompt in said]
        greedy = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True, detokenize=False)
        began = time.perf_counter()
        found = self.llm.generate(prompts, greedy, use_tqdm=False)
        took = (time.perf_counter() - began) * 1e6
        tokens = [list(one.outputs[0].token_ids) for one in found]
        if [len(one) for one in tokens] != [count] * requests:
            raise ArithmeticError("tokens are missing")
        return took, tokens

    def round(self):
        alone, tokens = self.generate(1, 32, 256)
        # When each of these joins the others depends on the time, and with that the last digits, natively too.
        together, _ = self.generate(64, 128, 256)
        prompts, first = min(self.generate(32, 1024, 1) for _ in range(3))
        figures = [
            ("vLLM: a token of one request, done", alone / 256),
            ("vLLM: a token of each of 64 requests, done", together / 256),
            ("vLLM: 32 prompts of 1024 tokens, done", prompts),
        ]
        return {"figures": figures, "tokens": sum(tokens + first, [])}


def main(directory):
    if importlib.util.find_spec("vllm") is None:
        sys.exit("vLLM is not installed")
    settings = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    os.environ.update({name: str(directory / place) for name, place in settings.items()})
    # The output is for the answers.
    os.environ.update({"VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"})
    write_model(directory / "model")
    server = Server(directory / "model")
    server.round()
    print(json.dumps({"figures": [], "tokens": []}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(server.round()), flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
