"""Vision transformers: ViT-S/16 and ViT-B/16 (Dosovitskiy et al., ICLR 2021), and DINOv2's ViT-S/14 and ViT-B/14.

Modules have the names of timm and of DINOv2's repository, so that their weights load as they are. The features are the
class token after the last normalisation. The only map is that of the patch tokens.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.errors import UserError
from phasezero.nets.resnet import Backbone, Features, at_least_float32, register_network

HEAD_SIZE = 64  # of every published ViT from S to L
_norm = partial(nn.LayerNorm, eps=1e-6)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed: Tensor = self.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return mixed


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """Multiply each channel by a learned factor, initially small (CaiT; DINOv2 starts from 1e-5)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), 1e-5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Block(nn.Module):
    def __init__(self, width: int, heads: int, scaled: bool) -> None:
        super().__init__()
        self.norm1 = _norm(width)
        self.attn = Attention(width, heads)
        self.ls1: nn.Module = LayerScale(width) if scaled else nn.Identity()
        self.norm2 = _norm(width)
        self.mlp = Mlp(width)
        self.ls2: nn.Module = LayerScale(width) if scaled else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.ls1(self.attn(self.norm1(x)))
        out: Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return out


class PatchEmbedding(nn.Module):
    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, patch)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)
        return patches


class VisionTransformer(Backbone):
    """A class token and patches, with learned positions for a grid of `grid` x `grid` patches.

    The positions are interpolated for images of another size (bicubic, as in DINOv2). `scaled` adds DINOv2's layer
    scale. `last_relu` adds a ReLU after the features.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        patch: int,
        grid: int,
        scaled: bool = False,
        *,
        channels: int = 3,
        last_relu: bool = False,
    ) -> None:
        super().__init__()
        self.patch, self.grid, self.feature_size = patch, grid, width
        self.patch_embed = PatchEmbedding(channels, width, patch)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + grid * grid, width))
        self.blocks = nn.ModuleList(Block(width, width // HEAD_SIZE, scaled) for _ in range(depth))
        self.norm = _norm(width)
        self.last_relu: nn.Module = nn.ReLU() if last_relu else nn.Identity()

        # Truncated normal of deviation 0.02, as in timm and DINOv2. Biases are zero.
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for tokens in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(tokens, std=0.02)

    def forward(self, images: Tensor) -> Features:
        height, width = images.shape[2:]
        if height % self.patch or width % self.patch:
            raise UserError(f"images of {width} x {height} pixels do not divide into patches of {self.patch}; resize")
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        rows, columns = height // self.patch, width // self.patch
        tokens = torch.cat([self.cls_token.expand(images.shape[0], -1, -1), patches], 1) + self.positions(rows, columns)
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.norm(at_least_float32(tokens))
        maps = tokens[:, 1:].transpose(1, 2).unflatten(2, (rows, columns))
        return Features(self.last_relu(tokens[:, 0]), (maps,))

    def positions(self, rows: int, columns: int) -> Tensor:
        """Return the class token's position and those of a grid of patches: [1, 1 + rows * columns, d].

        DINOv2's own code adds 0.1 to the size when it interpolates, against rounding errors of old torch versions.
        Like transformers, this code does not.
        """
        if rows == columns == self.grid:
            return self.pos_embed
        grid = self.pos_embed[:, 1:].unflatten(1, (self.grid, self.grid)).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, (rows, columns), mode="bicubic", align_corners=False)
        return torch.cat([self.pos_embed[:, :1], grid.flatten(2).transpose(1, 2)], 1)


SMALL, BASE = (384, 12), (768, 12)  # width and depth
DINOV2_GRID = 518 // 14  # the positions of DINOv2's last training images

register_network("vit-s16", "ViT-S/16 for 224 x 224 images")(partial(VisionTransformer, *SMALL, 16, 14))
register_network("vit-b16", "a variant of vit-s16: twice as wide")(partial(VisionTransformer, *BASE, 16, 14))
register_network("dinov2-s14", "DINOv2's ViT-S/14, with layer scale")(
    partial(VisionTransformer, *SMALL, 14, DINOV2_GRID, scaled=True)
)
register_network("dinov2-b14", "a variant of dinov2-s14: twice as wide")(
    partial(VisionTransformer, *BASE, 14, DINOV2_GRID, scaled=True)
)
