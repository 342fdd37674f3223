"""Small stand-ins for the data of the papers, in the layout that `driftline reproduce` reads."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from support.helpers import made_intents

from driftline.curate.core.atomic_io import write_json
from driftline.curate.core.seeding import rng_for


def images(folder: Path, classes: int, each: int, coarse: bool = False) -> None:
    """A dataset like CIFAR's as Parquet: a class is a brightness and a corner. coarse: super-classes of five."""
    folder.mkdir(parents=True)
    for side, n in (("train", each), ("test", each // 2)):
        table = []
        for label in range(classes):
            for i in range(n):
                pixels = rng_for(label, side, i).integers(0, 60, (8, 8, 3)).astype(np.uint8)
                pixels[label % 2 * 4 :, label // 2 % 2 * 4 :] += np.uint8(label * 190 // classes)
                buffer = io.BytesIO()
                Image.fromarray(pixels).save(buffer, "PNG")
                labels = {"fine_label": label, "coarse_label": label // 5} if coarse else {"label": label}
                table.append({"image": buffer.getvalue(), **labels})
        pq.write_table(pa.Table.from_pylist(table), folder / f"made_{side}.parquet")
    if coarse:
        order = np.arange(classes).reshape(-1, 5).tolist()
        names = {"fine_names": [f"f{k}" for k in range(classes)], "coarse_names": [f"c{k}" for k in range(len(order))]}
        write_json(folder / "names.json", names | {"subpop_order": order})


def vectors(folder: Path, names: tuple[str, ...] = ("banking77", "clinc150")) -> None:
    folder.mkdir(parents=True)
    for name in names:
        x, y = made_intents(20, 900, 16, 0.1)
        arrays = {"train_x": x[:600], "train_y": y[:600], "test_x": x[600:], "test_y": y[600:]}
        np.savez(folder / f"{name}_minilm.npz", labels=np.array([f"intent {k:02}" for k in range(20)]), **arrays)


def orders(folder: Path) -> None:
    """EvalOCL's order files, with images."""
    import h5py

    folder.mkdir(parents=True)
    (folder / "images").mkdir()
    for part, n in (("train", 160), ("test", 40)):
        labels = np.repeat(np.arange(n // 4) % 5, 4)
        names = [f"{part}{i}.png" for i in range(n)]
        for name, label in zip(names, labels.tolist(), strict=True):
            pixels = rng_for(label, name).integers(0, 60, (12, 12, 3)).astype(np.uint8) + np.uint8(35 * label)
            Image.fromarray(pixels).save(folder / "images" / name)
        for what, values in (("labels", labels), ("image_paths", np.array(names, "S"))):
            with h5py.File(folder / f"{part}_{what}.hdf5", "w") as file:
                file["store_list"] = values
