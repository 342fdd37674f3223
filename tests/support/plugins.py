"""Packages of somebody else: a module and its metadata in a folder, as an installer leaves them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import invalidate_caches
from pathlib import Path

from driftline.curate.core.registry import Registry

ACME = {  # entry-point group → name → object
    "sources": {"acme-album": "acme_drift:Album"},
    "encoders": {"acme-colours": "acme_drift:Colours"},
    "exports": {"acme-listing": "acme_drift:listing"},
    "stream_exports": {"acme-ledger": "acme_drift:ledger"},
    "platforms": {"acme-post": "acme_drift:post"},
    "importers": {"acme-diary": "acme_drift:diary"},
    "datasets": {"acme-squares": "acme_drift:squares"},
    "shifts": {"acme-invert": "acme_drift:Invert"},
    "measures": {"acme-centres": "acme_drift:centres"},
    "protocols": {"acme-last-step": "acme_drift:LastStep"},
    "learners": {"acme-prototype": "acme_drift:Prototype"},
    "networks": {"acme-narrow": "acme_drift:narrow"},
    "samplers": {"acme-oldest": "acme_drift:Oldest"},
}


def install(folder: Path, name: str, points: Mapping[str, Mapping[str, str]], code: str = "") -> Path:
    """Put the distribution `name` 1.0 into `folder`; code: of its module. Returns the folder."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    text = "".join(
        f"[driftline.{group}]\n" + "".join(f"{key} = {target}\n" for key, target in names.items())
        for group, names in points.items()
    )
    (metadata / "entry_points.txt").write_text(text, encoding="utf-8")
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    return folder


def install_acme(folder: Path) -> Path:
    """The package `acme_drift`, which registers one of everything."""
    return install(folder, "acme_drift", ACME, (Path(__file__).parent / "acme_drift.py").read_text(encoding="utf-8"))


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """The packages of a folder are installed in this process, for a while."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    invalidate_caches()
    _forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
        _forget()


def _forget() -> None:
    """All registries look for entry points again."""
    for module in list(sys.modules.values()):
        for thing in list(getattr(module, "__dict__", {}).values()):
            if type(thing) is Registry:
                vars(thing).pop("_found", None)
