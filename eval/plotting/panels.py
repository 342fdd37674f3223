"""Small multiples: one small line chart for each of many groups."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.eval.plotting.charts import Picture, Series, short
from driftline.eval.plotting.frames import Frame, Sheet, cut, drawn, grid, named, names_below, number
from driftline.eval.plotting.svg import svg_of, tag, text

WIDE, HIGH, LEFT, TOP, FOOT = 200, 130, 30, 20, 18  # units of a panel
NAME = 180  # for a name
TALL = 1000  # of a picture, on paper: 9 inches


def panels(groups: Mapping[str, Series], x_name: str, joined: bool = True) -> Picture:
    """title → lines; all charts have the same axes, y from 0 to 100 per cent or beyond. joined: False for dots
    alone."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    xs = [x for group in groups.values() for along, _ in group.values() for x in along] or [0.0]
    x_axis = (min(xs), max(max(xs), min(xs) + 1e-9))
    ys = [0.0, 1.0, *(y for group in groups.values() for _, shares in group.values() for y in shares)]
    rows: list[list[object]] = []
    ends: list[str] = []
    for title, group in groups.items():
        for name, (along, shares) in group.items():
            rows += [[name, short(x), round(100 * y, 2), title] for x, y in zip(along, shares, strict=True)]
            if len(shares):
                ends.append(f"{title}, {name}: {100 * shares[0]:.0f} to {100 * shares[-1]:.0f}")

    def draw(sheet: Sheet) -> str:
        across = round(sheet.width / WIDE)
        if sheet.inches and -(-len(groups) // across) * HIGH > TALL:
            across += 1
        wide = min(WIDE, int((sheet.width - 4) / across)) if sheet.inches else WIDE
        frame = Frame(LEFT, TOP, wide - LEFT - 12, HIGH - TOP - FOOT, x_axis, (min(ys), max(ys)), sheet=sheet)
        parts, row = [], 0
        for k, (title, group) in enumerate(groups.items()):
            place = f"translate({k % across * wide} {k // across * HIGH})"
            parts.append(tag("g", *_panel(title, group, frame, names, row, joined), transform=place))
            row += sum(len(along) for along, _ in group.values())
        height: float = -(-len(groups) // across) * HIGH + 6
        if sheet.inches:
            parts.append(text(LEFT, height + 8, f"across: {x_name}; up: per cent"))
            beside, height = names_below(
                [(0.0, name, i, cut(name)) for i, name in enumerate(names)], sheet, height + 26
            )
        else:
            of_row = [(LEFT + i % across * NAME, height + 10 + i // across * 18) for i in range(len(names))]
            beside = [
                named(name, x, y, cut(name), i) for i, (name, (x, y)) in enumerate(zip(names, of_row, strict=True))
            ]
            height += 6 + -(-len(names) // across) * 18
        label = f"Accuracy in per cent by {x_name}. {'; '.join(ends[:60])}"
        return svg_of([*parts, *beside], label, height, sheet.width if sheet.inches else across * wide + 12)

    return Picture(draw, ["series", x_name, "per cent", "panel"], rows)


def _panel(title: str, group: Series, frame: Frame, names: list[str], row: int, joined: bool) -> list[str]:
    """One chart. row: of its first point in the data."""
    right, foot = frame.left + frame.width, frame.top + frame.height
    long = int(frame.width / 6)
    parts = [text(frame.left, frame.top - 7, title if len(title) <= long else f"{title[: long - 1]}…", size=12)]
    size = 11 if frame.sheet.inches else 10
    parts += grid(frame, (0, 0.5, 1), lambda share: f"{100 * share:.0f}", size)
    parts += [text(frame.left, foot + 13, number(frame.x[0]), size=size)]
    parts += [text(right, foot + 13, number(frame.x[1]), "end", size)]
    for name, (along, shares) in group.items():
        parts.append(drawn(name, names.index(name), frame, along, shares, row, width=1.6, joined=joined))
        row += len(along)
    return parts
