"""What benchmarks of the engine compare with: a tutorial's loop, a tuned one, square products, older processors."""

import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

AS_AVX2 = {  # for processes: torch, MKL, oneDNN, OpenBLAS, faiss and our kernel use no more than AVX2
    "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell", "FAISS_OPT_LEVEL": "avx2", "DRIFTLINE_KERNEL": "avx2",
}  # fmt: skip


def users_loop(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float, epochs: int) -> None:
    """As tutorials have it: TensorDataset, DataLoader, autograd, SGD with momentum; batches of 256."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=256, shuffle=True)
    for _ in range(epochs):
        for bx, by in loader:
            loss = torch.nn.functional.cross_entropy(net(bx), by)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def tuned_loop(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float, epochs: int, half: bool) -> None:
    """The same by who knows torch: tensors in main memory, an order an epoch, a fused optimiser, no DataLoader. half:
    under autocast to bfloat16."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9, fused=True)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x)), 256):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def product_rate(dtype: torch.dtype) -> float:
    """Operations a second of a product of 2,048² matrices on one thread: the best of five."""
    torch.set_num_threads(1)
    a = torch.ones(2048, 2048, dtype=dtype)
    seconds = []
    for _ in range(5):
        clock = time.process_time()
        a @ a
        seconds.append(time.process_time() - clock)
    return 2 * 2048**3 / min(seconds)


class Pictures(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """What a user has: PIL images and torchvision's transforms."""

    def __init__(self, x: np.ndarray, y: np.ndarray, change: Callable[[Image.Image], torch.Tensor]) -> None:
        self.images, self.y, self.change = [Image.fromarray(one) for one in x], y, change

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.change(self.images[i]), int(self.y[i])


def seconds(work: Callable[[], object], times: int = 3) -> float:
    """The median of CPU seconds."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return float(np.median(taken))
