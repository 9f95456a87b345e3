"""Made-up facts that several tests need."""

from __future__ import annotations

from phasezero.results.record import Environment

ENVIRONMENT = Environment(
    phasezero="0.1.0",
    python="3.11.7",
    torch="2.11.0",
    numpy="2.0.0",
    cuda=None,
    cudnn=None,
    platform="Linux",
    device="cpu",
    device_name="cpu",
    threads=4,
    precision="fp32",
    engine="eager",
)
