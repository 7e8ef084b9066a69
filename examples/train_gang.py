"""A small data-parallel training that really computes: it needs Python, some tasks that start together, and no GPU.

A network with one hidden layer learns to tell two interleaved half-moons apart. Every task (rank) holds a share of the
samples; in each step all ranks add up their gradients over TCP at MASTER_ADDR:MASTER_PORT, so all of them take the same
step. At the end the ranks compare their weights, bit by bit.

    RANK=0 WORLD_SIZE=1 python3 train_gang.py     # also runs alone
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import socket
import struct
import sys
import time

SAMPLES = 2400
HIDDEN = 16
EPOCHS = 100
STEPS_PER_EPOCH = 4
RATE = 0.2
MOMENTUM = 0.9
CONNECT_WITHIN_S = 30.0


class Group:
    """The ranks of this run, joined in a star around rank 0. One task alone is a group too."""

    def __init__(self, rank: int, size: int, address: tuple[str, int]) -> None:
        self.rank = rank
        self.size = size
        self._peers: list[socket.socket] = []
        if size == 1:
            return
        if rank == 0:
            with socket.create_server(address) as listener:
                listener.settimeout(CONNECT_WITHIN_S)
                self._peers = [listener.accept()[0] for _ in range(size - 1)]
        else:
            self._peers = [_connect(address)]
        for peer in self._peers:
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sum(self, values: list[float]) -> list[float]:
        """The sum over all ranks, element by element; every rank gets the same bits."""
        form = f"<{len(values)}d"
        if self.rank != 0:
            self._peers[0].sendall(struct.pack(form, *values))
            return list(struct.unpack(form, _receive(self._peers[0], struct.calcsize(form))))
        for peer in self._peers:
            others = struct.unpack(form, _receive(peer, struct.calcsize(form)))
            values = [mine + other for mine, other in zip(values, others, strict=True)]
        for peer in self._peers:
            peer.sendall(struct.pack(form, *values))
        return values

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect to rank 0, which may need a moment to listen."""
    give_up_at = time.monotonic() + CONNECT_WITHIN_S
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_WITHIN_S)
        except ConnectionRefusedError:
            if time.monotonic() > give_up_at:
                sys.exit(f"rank 0 does not listen at {address[0]}:{address[1]}")
            time.sleep(0.05)


def _receive(peer: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = peer.recv(size - len(parts))
        if not part:
            sys.exit("another rank went away")
        parts += part
    return bytes(parts)


def moons(count: int, seed: int) -> list[tuple[float, float, float]]:
    """Noisy points (x, y, label) on two interleaved half-circles."""
    draw = random.Random(seed)
    points = []
    for index in range(count):
        angle, label = draw.uniform(0.0, math.pi), float(index % 2)
        x, y = (math.cos(angle), math.sin(angle)) if label else (1 - math.cos(angle), 0.5 - math.sin(angle))
        points.append((x + draw.gauss(0.0, 0.12), y + draw.gauss(0.0, 0.12), label))
    return points


class Network:
    """Two inputs, ``HIDDEN`` tanh units, one sigmoid output; four weights for each hidden unit and one bias."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.weights = [draw.gauss(0.0, 1.0) for _ in range(4 * HIDDEN + 1)]
        self._speed = [0.0] * len(self.weights)

    def output(self, x: float, y: float) -> tuple[float, list[float]]:
        """Probability of label 1, and the hidden activations."""
        w = self.weights
        hidden = [math.tanh(w[i] * x + w[i + 1] * y + w[i + 2]) for i in range(0, 4 * HIDDEN, 4)]
        score = w[-1] + sum(w[4 * i + 3] * h for i, h in enumerate(hidden))
        return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score)))), hidden

    def gradient(self, points: list[tuple[float, float, float]]) -> list[float]:
        """Sum of the cross-entropy's gradients over the points."""
        total = [0.0] * len(self.weights)
        for x, y, label in points:
            probability, hidden = self.output(x, y)
            error = probability - label
            total[-1] += error
            for i, h in enumerate(hidden):
                at = 4 * i
                inner = error * self.weights[at + 3] * (1.0 - h * h)
                total[at] += inner * x
                total[at + 1] += inner * y
                total[at + 2] += inner
                total[at + 3] += error * h
        return total

    def step(self, gradient: list[float]) -> None:
        """One step of gradient descent with momentum."""
        self._speed = [MOMENTUM * speed - RATE * slope for speed, slope in zip(self._speed, gradient, strict=True)]
        self.weights = [weight + speed for weight, speed in zip(self.weights, self._speed, strict=True)]

    def judge(self, points: list[tuple[float, float, float]]) -> tuple[float, float]:
        """Sum of the losses, and how many points are told right."""
        loss, right = 0.0, 0
        for x, y, label in points:
            probability, _ = self.output(x, y)
            loss -= math.log(max(1e-12, probability if label else 1.0 - probability))
            right += (probability > 0.5) == bool(label)
        return loss, float(right)


def main() -> None:
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
    cards = os.environ.get("MILLPOND_FAKE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    print(f"rank {rank} of {size} on {socket.gethostname()}, cards: {cards}", flush=True)

    group = Group(rank, size, address)
    network = Network(seed=1)
    mine = moons(SAMPLES, seed=2)[rank::size]
    for epoch in range(1, EPOCHS + 1):
        for start in range(STEPS_PER_EPOCH):
            batch = mine[start::STEPS_PER_EPOCH]
            *slopes, count = group.sum([*network.gradient(batch), float(len(batch))])
            network.step([slope / count for slope in slopes])
        loss, right = group.sum(list(network.judge(mine)))
        if rank == 0 and (epoch == 1 or epoch % 20 == 0):
            print(f"epoch {epoch:3d}  loss {loss / SAMPLES:.4f}  accuracy {right / SAMPLES:.4f}", flush=True)

    digest = hashlib.sha256(struct.pack(f"<{len(network.weights)}d", *network.weights)).digest()
    number = float(int.from_bytes(digest[:6], "big"))
    if group.sum([number])[0] != size * number:
        sys.exit(f"rank {rank} ended with other weights than the sum of all ranks tells")
    group.close()
    if rank == 0:
        print("all ranks ended with equal weights")
        print(f"result: loss={loss / SAMPLES:.4f} accuracy={right / SAMPLES:.4f}")


if __name__ == "__main__":
    main()
