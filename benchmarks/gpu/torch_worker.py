"""A child that works with PyTorch, as users' programs do."""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.working import Kind, Work, main

_MIB = 1024 * 1024
_GEMM = 8192
_SMALL_COUNT = 20
_LONG_COUNT = 20
_BATCH = 32
_BLOCKS = 8
_CHANNELS = 64
_PIXELS = 56


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(_CHANNELS),
            nn.ReLU(),
            nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(_CHANNELS),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(images + self.body(images))


class Mean(nn.Module):
    """Of each channel. PyTorch's own pooling has no deterministic way back on a card."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(2, 3))


def residual_net() -> nn.Module:
    """A small relative of ResNet, so that nothing but PyTorch has to be installed."""
    return nn.Sequential(
        nn.Conv2d(3, _CHANNELS, 7, stride=4, padding=3),
        *(Residual() for _ in range(_BLOCKS)),
        Mean(),
        nn.Linear(_CHANNELS, 10),
    )


class TorchWork(Work):
    """The orders, with PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self._device = torch.device("cuda")
        self._training: Callable[[], torch.Tensor] | None = None
        self._kept: list[torch.Tensor] = []

    def start(self) -> dict[str, Any]:
        """See ``Work``."""
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.zeros(1, device=self._device)
        return {"workload": f"torch {torch.__version__}"}

    def make(self, kind: Kind) -> Callable[[], None]:
        """See ``Work``."""
        if kind is Kind.STEP:
            return _dropping(self._step())
        if kind is Kind.REQUEST:
            return self._request()
        if kind in (Kind.LARGE, Kind.LONG):
            left = torch.randn(_GEMM, _GEMM, device=self._device, dtype=torch.bfloat16)
            result = torch.empty_like(left)
            product = _dropping(lambda: torch.mm(left, left, out=result))
            return product if kind is Kind.LARGE else self._captured(lambda: [product() for _ in range(_LONG_COUNT)])
        values = torch.zeros(1, device=self._device)
        tiny = _dropping(lambda: values.add_(1))
        if kind is Kind.TINY:
            return tiny
        several = torch.zeros(1024, 1024, device=self._device)

        def small() -> None:
            for _ in range(_SMALL_COUNT):
                several.mul_(0.5)

        return self._captured(small) if kind is Kind.GRAPH else small

    def wait(self) -> None:
        """See ``Work``."""
        torch.cuda.synchronize()

    def mark(self) -> Callable[[], None]:
        """See ``Work``."""
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    def allocate_until_refused(self, most_mib: int, way: str = "plain", keep: bool = False) -> dict[str, Any]:
        """See ``Work``; the way is the allocator's own."""
        taken: list[torch.Tensor] = []
        given, step, refusal = 0, 256, ""
        while step and given < most_mib:
            try:
                taken.append(torch.empty(step * _MIB, dtype=torch.uint8, device=self._device))
                given += step
            except torch.OutOfMemoryError as error:
                # Blocks of 20 MiB or less come in larger segments; below it the allocator rounds, not the card.
                refusal, step = type(error).__name__, step // 2 if step > 32 else 0
        self._kept = taken if keep else []
        del taken
        if not keep:
            torch.cuda.empty_cache()
        return {"mib": given, "refusal": refusal}

    def train(self, steps: int) -> str:
        """So many steps from where the last call left off; a digest of the losses, bit by bit."""
        if self._training is None:
            self._training = self._step()
        losses = [float(self._training()) for _ in range(steps)]
        return hashlib.sha256(struct.pack(f"{steps}d", *losses)).hexdigest()

    def compile(self) -> float:
        """A compiled function, made at the first call; what it makes of the same numbers each time."""
        if not hasattr(self, "_compiled"):
            self._compiled = torch.compile(lambda values: (values.sin() * 2 + values.cos()).sum())
        return float(self._compiled(torch.linspace(0, 1, 1_000_000, device=self._device)))

    def _step(self) -> Callable[[], torch.Tensor]:
        torch.manual_seed(1)
        net = residual_net().to(self._device)
        images = torch.randn(_BATCH, 3, 4 * _PIXELS, 4 * _PIXELS, device=self._device)
        labels = torch.randint(10, (_BATCH,), device=self._device)
        descent = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step() -> torch.Tensor:
            descent.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            descent.step()
            return loss.detach()

        return step

    def _request(self) -> Callable[[], None]:
        net = residual_net().to(self._device).eval()
        image = torch.randn(1, 3, _PIXELS, _PIXELS, device=self._device)

        def answer() -> None:
            with torch.inference_mode():
                net(image)

        return answer

    def _captured(self, work: Callable[[], object]) -> Callable[[], None]:
        work()  # so that nothing has to be loaded while it is captured
        self.wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


def _dropping(work: Callable[[], Any]) -> Callable[[], None]:
    def go() -> None:
        work()

    return go


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need
    sys.exit(main(TorchWork()))
