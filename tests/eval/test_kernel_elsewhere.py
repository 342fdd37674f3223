"""The kernel on processors that this machine is not: compiled for them and run by an emulator (Debian's qemu-user)."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from driftline.curate.core.seeding import rng_for
from driftline.eval.engine import fused

pytestmark = pytest.mark.proof("build")

ENGINE = Path(fused.__file__).parent
MAIN = Path(__file__).resolve().parents[1] / "support" / "kernel_main.c"
PROCESSORS = {  # compiler, emulator, number of the best kind
    "AVX2, no AVX-512": ("gcc", ["qemu-x86_64", "-cpu", "Haswell"], 1),
    "x86 without AVX": ("gcc", ["qemu-x86_64", "-cpu", "Nehalem"], 0),
    "ARM": ("aarch64-linux-gnu-gcc", ["qemu-aarch64"], 0),
}


def trained(x: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    """Weights and biases after the program's five steps, in float64."""
    w, b = np.zeros((classes, x.shape[1])), np.zeros(classes)
    moving, bias_moving = np.zeros_like(w), np.zeros_like(b)
    for _ in range(5):
        scores = x @ w.T + b
        g = np.exp(scores - scores.max(1, keepdims=True))
        g /= g.sum(1, keepdims=True)
        g[np.arange(len(y)), y] -= 1
        moving = 0.9 * moving + g.T @ x / len(y) + 0.01 * w
        bias_moving = 0.9 * bias_moving + g.mean(0)
        w, b = w - 0.5 * moving, b - 0.5 * bias_moving
    return np.concatenate([w.ravel(), b])


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compiler → the program that it made, where both the compiler and its emulator are here."""
    found = {}
    for compiler in {compiler for compiler, (emulator, *_), _ in PROCESSORS.values() if shutil.which(emulator)}:
        if shutil.which(compiler):
            found[compiler] = tmp_path_factory.mktemp("kernel") / "program"
            flags = ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp-simd", "-static"]
            words = [compiler, *flags, "-o", str(found[compiler]), str(MAIN), str(ENGINE / "kernel.c"), "-lm"]
            subprocess.run(words, check=True)
    return found


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("n", "width", "classes"), [(50, 64, 7), (33, 128, 25), (1, 32, 2)])
def test_gives_the_same_weights(processor: str, n: int, width: int, classes: int, programs: dict[str, Path]) -> None:
    compiler, emulator, best = PROCESSORS[processor]
    if compiler not in programs:
        pytest.skip(f"{compiler} or {emulator[0]} is not on this machine")
    rng = rng_for(n, "elsewhere")
    x, y = rng.normal(scale=0.2, size=(n, width)).round(5), rng.integers(classes, size=n)
    text = f"{n} {width} {classes}\n" + " ".join(str(value) for value in [*x.ravel(), *y])
    command = [*emulator, str(programs[compiler])]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    kind, *values = map(float, done.stdout.split())
    assert kind == best
    assert np.array(values) == pytest.approx(trained(x, y, classes), abs=1e-5)
