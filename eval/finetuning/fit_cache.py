"""A store of finished fits, by data, starting weights, objective, hyper-parameters, rule and seed.

Methods with the same first stage (FT, LP-FT and ST on one history model), sequences with the same end (CLR and RCL) and
interrupted runs reuse finished fits. Several processes, also on several machines with one folder, share a grid: each
takes fits that no other process works on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from driftline.curate.core.atomic_io import check_format, read_json, write_bytes, write_json
from driftline.curate.core.system.calls import lock
from driftline.eval.finetuning.fit import Fitted, Hyper

FORMAT = 1
NUMBERS = ("accuracy", "best_epoch", "curve", "steps")
WEIGHTS = "best.safetensors"


@dataclass
class Store:
    """Finished fits in a folder or in memory."""

    folder: Path | None = None
    """folder; None keeps fits in memory, for this process"""
    in_memory: dict[str, Fitted | str] = field(default_factory=dict)
    """fits in memory"""

    def get(self, key: str) -> Fitted | str | None:
        """A finished fit, without weights if `thin` deleted them; the error of one that diverged; None if it was not
        done yet. Raises BadInput for a fit of another version."""
        if self.folder is None:
            return self.in_memory.get(key)
        place = self.place(key)
        if not (place / "fit.json").is_file():
            return None
        about = read_json(place / "fit.json")
        check_format(place / "fit.json", about.get("format"), FORMAT, "Delete the folder.")
        if "diverged" in about:
            return str(about["diverged"])
        from safetensors.torch import load_file

        state = load_file(place / WEIGHTS) if (place / WEIGHTS).is_file() else {}
        result = {name: about[name] for name in (*NUMBERS, "seconds")}
        return Fitted(state, hyper=Hyper(**about["hyper"]), **result)

    def put(self, key: str, fitted: Fitted | str, identity: dict[str, Any], seconds: float) -> None:
        """Store a finished fit, or the error of one that diverged."""
        if self.folder is None:
            self.in_memory[key] = fitted
            return
        from safetensors.torch import save

        place = self.place(key)
        about: dict[str, Any] = {"format": FORMAT, "identity": identity, "seconds": round(seconds, 3)}
        if isinstance(fitted, str):
            about["diverged"] = fitted
        else:
            write_bytes(place / WEIGHTS, save({k: v.contiguous().cpu() for k, v in fitted.state.items()}))
            about |= {name: getattr(fitted, name) for name in NUMBERS}
            about["hyper"] = asdict(fitted.hyper)
        write_json(place / "fit.json", about)

    def thin(self) -> int:
        """Delete the weights of all finished fits in the folder; returns their bytes. What the fits found stays, and
        one whose weights are needed is done again (`search.best_of`)."""
        freed = 0
        for path in sorted(self.folder.glob("*/*/fit.json")) if self.folder else ():
            if (weights := path.with_name(WEIGHTS)).is_file():
                freed += weights.stat().st_size
                weights.unlink()
        return freed

    def place(self, key: str) -> Path:
        """The fit's folder."""
        assert self.folder is not None
        return self.folder / key[:2] / key

    @contextmanager
    def claim(self, key: str, wait: bool) -> Iterator[bool]:
        """Whether this process may do the fit, because no other process does. wait: until the other one has finished.
        The claim ends with the process, even after a crash."""
        if self.folder is None:
            yield True
            return
        self.place(key).mkdir(parents=True, exist_ok=True)
        with (self.place(key) / "claim").open("w") as file:
            yield lock(file, wait)


def digest_of(state: dict[str, Any]) -> str:
    """SHA-256 of a network's state: names, shapes and values."""
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()
