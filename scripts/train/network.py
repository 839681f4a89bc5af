"""The refiner: where a person's edge runs, given a picture and a coarse mask.

The encoder is the front of EfficientNet-Lite0 and sees the picture alone, so that its ImageNet
features stay what they are. The coarse mask enters the decoder at every scale: the mask says who is
meant, the picture where the edge is. The largest plane that is computed has half the side of the
picture; each of its pixels gives four of the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

SIDE = 320
"""Of the square that the network sees in training, in pixels."""

# Repeats, channels, kernel and stride of each stage of EfficientNet-Lite0 (Tan and Le, 2019). The
# last stage of the original and a block of the one before are left out: they name objects.
_STAGES = (
    (1, 16, 3, 1),
    (2, 24, 3, 2),
    (2, 40, 5, 2),
    (3, 80, 3, 2),
    (3, 112, 5, 1),
    (3, 192, 5, 2),
)
_TAPS = (0, 1, 2, 4, 5)
"""Stages whose output the decoder takes: at 1/2, 1/4, 1/8, 1/16 and 1/32 of the side."""
_FROZEN = 2
"""Stages that are not trained."""
_WIDTHS = (24, 40, 56, 80, 144)
"""Channels of the decoder at the same scales."""


class _SameConv(nn.Conv2d):
    """A convolution padded as TensorFlow pads, with which the encoder was trained."""

    def forward(self, input: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        before, after = (kernel - stride) // 2, (kernel - stride + 1) // 2
        if before == after:
            return functional.conv2d(input, self.weight, None, stride, before, 1, self.groups)
        padded = functional.pad(input, (before, after, before, after))
        return functional.conv2d(padded, self.weight, None, stride, 0, 1, self.groups)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, momentum=0.01, eps=1e-3)


class _Block(nn.Module):
    """An inverted residual of the encoder; names are those of the published weights."""

    def __init__(self, inputs: int, ratio: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * ratio
        self._expand_conv = nn.Conv2d(inputs, inner, 1, bias=False) if ratio > 1 else None
        self._bn0 = _norm(inner) if ratio > 1 else None
        self._depthwise_conv = _SameConv(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = _norm(inner)
        self._project_conv = nn.Conv2d(inner, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)
        self._adds = stride == 1 and inputs == outputs

    def forward(self, input: Tensor) -> Tensor:
        x = input
        if self._expand_conv is not None and self._bn0 is not None:
            x = functional.relu6(self._bn0(self._expand_conv(x)))
        x = functional.relu6(self._bn1(self._depthwise_conv(x)))
        x = self._bn2(self._project_conv(x))
        return x + input if self._adds else x


class Encoder(nn.Module):
    """The front of EfficientNet-Lite0."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _SameConv(3, 32, 3, 2, bias=False)
        self._bn0 = _norm(32)
        blocks: list[nn.Module] = []
        self._ends: list[int] = []
        inputs = 32
        for repeats, outputs, kernel, stride in _STAGES:
            for index in range(repeats):
                ratio = 1 if not blocks else 6
                blocks.append(_Block(inputs, ratio, outputs, kernel, stride if index == 0 else 1))
                inputs = outputs
            self._ends.append(len(blocks))
        self._blocks = nn.ModuleList(blocks)

    def load(self, published: Mapping[str, Tensor]) -> None:
        """Take the published weights, of which there are more."""
        own = self.state_dict()
        self.load_state_dict({name: published[name] for name in own})

    def trained(self) -> Iterator[nn.Parameter]:
        """The parameters that training changes."""
        for block in self._blocks[self._ends[_FROZEN - 1] :]:
            yield from block.parameters()

    def forward(self, picture: Tensor) -> list[Tensor]:
        x = functional.relu6(self._bn0(self._conv_stem(picture)))
        found = []
        for index, block in enumerate(self._blocks, 1):
            x = block(x)
            if index in (self._ends[tap] for tap in _TAPS):
                found.append(x)
        return found


class _Separable(nn.Sequential):
    """A depthwise convolution and one across channels."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, inputs, kernel, 1, kernel // 2, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class _Across(nn.Sequential):
    """A convolution across channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )


def _doubled(x: Tensor) -> Tensor:
    return functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


class Refiner(nn.Module):
    """Makes a sharp mask from a picture and a coarse one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        taken = [_STAGES[tap][1] for tap in _TAPS]
        deepest = _WIDTHS[-1]
        self._details = nn.Conv2d(4, 16, 2, 2)
        self._bottom = _Across(taken[-1] + 1, deepest)
        self._context = _Separable(deepest, deepest, 5)
        self._gate = nn.Conv2d(deepest, deepest, 1)
        scales = range(len(taken) - 1)
        self._lateral = nn.ModuleList(
            _Across(taken[at] if at else taken[0] + 16, _WIDTHS[at]) for at in scales
        )
        self._joined = nn.ModuleList(
            nn.Sequential(
                _Across(_WIDTHS[at + 1] + _WIDTHS[at] + 1, _WIDTHS[at]),
                _Separable(_WIDTHS[at], _WIDTHS[at], 5 if at > 1 else 3),
                *([_Separable(_WIDTHS[at], _WIDTHS[at], 5)] if at > 1 else []),
            )
            for at in scales
        )
        self._out = nn.Conv2d(_WIDTHS[0], 4, 3, 1, 1)
        self._rough = nn.Conv2d(_WIDTHS[-2], 1, 1)

    def train(self, mode: bool = True) -> Refiner:
        """The encoder's statistics stay those of ImageNet."""
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, image: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor]:
        """Find the edge.

        Args:
            image: (N, 3, S, S), R'G'B' in 0 to 1.
            coarse: (N, 1, S, S), a mask in 0 to 1.

        Returns:
            Logits (N, 1, S, S), and (N, 1, S/16, S/16) of a rough mask on the way, which training
            scores as well.
        """
        picture, mask = image * (255 / 128) - 127 / 128, coarse * 2 - 1
        masks = [functional.avg_pool2d(mask, 2)]
        for _ in range(4):
            masks.append(functional.avg_pool2d(masks[-1], 2))
        features = self.encoder(picture)
        details = self._details(torch.cat([picture, mask], 1))
        features[0] = torch.cat([features[0], details], 1)
        x = self._bottom(torch.cat([features[-1], masks[4]], 1))
        x = self._context(x) + x
        x = x * self._gate(x.mean((2, 3), keepdim=True)).sigmoid()
        rough = x
        for at in reversed(range(4)):
            sides = self._lateral[at](features[at])
            x = self._joined[at](torch.cat([_doubled(x), sides, masks[at]], 1))
            if at == 3:
                rough = self._rough(x)
        return functional.pixel_shuffle(self._out(x), 2), rough
