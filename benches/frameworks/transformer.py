# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A transformer of the shape of GPT-2 with 124 million parameters, for measuring: its weights are random."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, cache=None, position=0):
        batch, length, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).split(width, dim=2)
        queries, keys, values = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        if cache is not None:
            end = position + length
            cache[0][:, :, position:end], cache[1][:, :, position:end] = keys, values
            keys, values = cache[0][:, :, :end], cache[1][:, :, :end]
        mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.before_mlp(x)), approximate="tanh"))


class Cache:
    """Keys and values of the tokens so far, of each layer."""

    def __init__(self, layers):
        self.layers = layers
        self.length = 0


class Transformer(nn.Module):
    def __init__(self, tokens=50257, positions=1024, width=768, heads=12, layers=12):
        super().__init__()
        self.width, self.heads = width, heads
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def new_cache(self, batch, length, dtype, device):
        shape = (batch, self.heads, length, self.width // self.heads)
        new = lambda: torch.zeros(shape, dtype=dtype, device=device)  # noqa: E731
        return Cache([(new(), new()) for _ in self.blocks])

    def forward(self, tokens, cache=None):
        position = cache.length if cache else 0
        length = tokens.shape[1]
        places = torch.arange(position, position + length, device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for at, block in enumerate(self.blocks):
            x = block(x, cache.layers[at] if cache else None, position)
        if cache:
            cache.length += length
        # The embedding is the last layer's weight, too.
        return F.linear(self.last(x), self.tokens.weight)
