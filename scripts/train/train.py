"""Train the refiner of masks, for a number of seconds, on one GPU.

::

    python scripts/train/train.py --data packed --encoder efficientnet-lite0-57934424.pth \
        --output run --seconds 530

``--output`` receives a checkpoint in three files: ``weights.pt`` (the average over the last steps,
which ``export.py`` takes), ``model.pt`` and ``optimizer.pt``. With ``--resume FOLDER`` training
continues from one; ``--progress`` says how much of the schedule a run covers, as in ``0 0.5`` and
then ``0.5 1``. The same seed gives the same pictures; sums on GPUs differ from run to run.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from coarse import CoarseNetwork
from network import SIDE, Refiner
from torch import Tensor
from torch.nn import functional
from views import Batch, Views, read_photos

ROOT = Path(__file__).resolve().parents[2]
COARSE = ROOT / "bgsoft/models/data/selfie_general.onnx"
_RATE, _ENCODER_RATE = 2e-3, 0.05
"""Largest learning rate, and the encoder's share of it."""
_WARM_UP = 0.03
_DECAY = 0.02
_AVERAGE = 0.999
"""Share of the averaged weights that a step leaves."""
_VALIDATED = 16
"""Of each this number of photographs, one is for validation."""
_EDGE_WEIGHT = 4.0
_STEADY_WEIGHT = 2.0


def losses(logits: Tensor, rough: Tensor, batch: Batch, twins: int) -> dict[str, Tensor]:
    """Losses, by name."""
    truth = batch.targets
    spread = functional.max_pool2d(truth, 9, 1, 4) + functional.max_pool2d(-truth, 9, 1, 4)
    weight = 1 + _EDGE_WEIGHT * functional.avg_pool2d(spread, 3, 1, 1)
    each = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    mask = logits.sigmoid()
    both, either = (mask * truth).sum((1, 2, 3)), (mask + truth - mask * truth).sum((1, 2, 3))
    small = functional.interpolate(truth, rough.shape[2:], mode="area")
    result = {
        "pixels": (each * weight).sum() / weight.sum(),
        "overlap": 0.5 * (1 - (both + 20) / (either + 20)).mean(),
        "rough": 0.2 * functional.binary_cross_entropy_with_logits(rough, small),
    }
    if twins:
        change = (mask[:twins] - mask[-twins:]).abs()
        result["steady"] = _STEADY_WEIGHT * change.mean()
    return result


class Trainer:
    """The network, its optimizer and the average of its weights."""

    def __init__(self, encoder: Path | None, device: str) -> None:
        self.device = device
        model = Refiner()
        if encoder is not None:
            model.encoder.load(torch.load(encoder, map_location="cpu", weights_only=True))
        self.model = model.to(device, memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.model).eval()
        model.encoder.requires_grad_(False)
        encoder_part = [each.requires_grad_() for each in model.encoder.trained()]
        known = {id(each) for each in model.encoder.parameters()}
        rest = [each for each in model.parameters() if id(each) not in known]
        groups = [
            {"params": [p for p in part if (p.ndim > 1) is decayed], "share": share,
             "weight_decay": _DECAY if decayed else 0.0}
            for part, share in ((encoder_part, _ENCODER_RATE), (rest, 1.0))
            for decayed in (True, False)
        ]  # fmt: skip
        self.optimizer = torch.optim.AdamW(groups, lr=_RATE)
        self.steps = 0

    def step(self, batch: Batch, twins: int, progress: float) -> dict[str, Tensor]:
        """One step; returns the losses."""
        rate = _RATE * min(1.0, progress / _WARM_UP + 0.02)
        rate *= 0.5 + 0.5 * math.cos(math.pi * min(1.0, progress))
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"] + 1e-6
        self.model.train()
        inputs = batch.inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device, torch.bfloat16):
            logits, rough = self.model(inputs[:, :3], inputs[:, 3:])
        found = losses(logits.float(), rough.float(), batch, twins)
        total: Tensor = torch.stack([*found.values()]).sum()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        self._take_into_average()
        return {name: value.detach() for name, value in found.items()}

    @torch.no_grad()
    def _take_into_average(self) -> None:
        kept = min(_AVERAGE, (1 + self.steps) / (20 + self.steps))
        pairs = zip(
            self.average.state_dict().values(), self.model.state_dict().values(), strict=True
        )
        numbers = [pair for pair in pairs if pair[0].is_floating_point()]
        torch._foreach_lerp_([a for a, _ in numbers], [b for _, b in numbers], 1 - kept)

    def save(self, folder: Path) -> None:
        torch.save(self.average.state_dict(), folder / "weights.pt")
        torch.save({"model": self.model.state_dict(), "steps": self.steps}, folder / "model.pt")
        state = self.optimizer.state_dict()
        # Half the bytes; the moments need no more.
        state["state"] = {
            index: {k: v.bfloat16() if v.ndim else v for k, v in each.items()}
            for index, each in state["state"].items()
        }
        torch.save(state, folder / "optimizer.pt")

    def resume(self, folder: Path) -> None:
        def read(name: str) -> dict:
            return torch.load(folder / name, map_location=self.device, weights_only=True)

        self.average.load_state_dict(read("weights.pt"))
        model = read("model.pt")
        self.model.load_state_dict(model["model"])
        self.steps = model["steps"]
        self.optimizer.load_state_dict(read("optimizer.pt"))

    @torch.no_grad()
    def score(self, batches: list[Batch]) -> tuple[float, float]:
        """Mean IoU of the masks, and of the coarse masks, with the truth."""
        scores: list[Tensor] = []
        for inputs, truth in batches:
            masks = [self.average(inputs[:, :3], inputs[:, 3:])[0] > 0, inputs[:, 3:] > 0.5]
            person = truth > 0.5
            some = person.sum((1, 2, 3)) > 0
            ious = [
                (mask & person).sum((1, 2, 3)) / (mask | person).sum((1, 2, 3)).clamp(min=1)
                for mask in masks
            ]
            scores.append(torch.stack(ious)[:, some])
        found, coarse = torch.cat(scores, 1).mean(1).tolist()
        return found, coarse


def batches(views: Views, count: int, twins: int) -> Iterator[Batch]:
    """Without end."""
    while True:
        yield views.batch(count, twins)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train the refiner.")
    parser.add_argument("--data", type=Path, required=True, help="folder that pack.py wrote")
    parser.add_argument("--encoder", type=Path, help="published weights of EfficientNet-Lite0")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--resume", type=Path, metavar="FOLDER")
    parser.add_argument("--progress", type=float, nargs=2, default=(0.0, 1.0))
    parser.add_argument("--seconds", type=float, default=530.0, help="of steps; start excluded")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--twins", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    photos = read_photos(sorted(options.data.glob("people*.zip")))
    coarse = CoarseNetwork(COARSE).to(options.device)
    parts = photos[1::_VALIDATED], [p for at, p in enumerate(photos) if at % _VALIDATED != 1]
    validation, training = (Views(part, SIDE, coarse, options.device) for part in parts)
    held = [validation.batch(32, 0) for _ in range(6)]
    trainer = Trainer(options.encoder, options.device)
    if options.resume:
        trainer.resume(options.resume)
    first, last = options.progress
    print(f"{len(parts[1])} photographs, {len(parts[0])} for validation", flush=True)
    begun = reported = time.monotonic()
    sums: dict[str, Tensor] = {}
    count = 0
    for batch in batches(training, options.batch, options.twins):
        share = (time.monotonic() - begun) / options.seconds
        if share >= 1:
            break
        found = trainer.step(batch, options.twins, first + (last - first) * share)
        for name, value in found.items():
            sums[name] = sums.get(name, 0) + value
        count += 1
        if time.monotonic() - reported > 60:
            means = ", ".join(f"{name} {value.item() / count:.4f}" for name, value in sums.items())
            iou, of_coarse = trainer.score(held)
            print(
                f"{share:.2f} step {trainer.steps}: {means}; IoU {iou:.4f} ({of_coarse:.4f})",
                flush=True,
            )
            trainer.save(options.output)
            sums, count, reported = {}, 0, time.monotonic()
    trainer.save(options.output)
    iou, of_coarse = trainer.score(held)
    print(f"{trainer.steps} steps; validation IoU {iou:.4f}, of the coarse masks {of_coarse:.4f}")


if __name__ == "__main__":
    main()
