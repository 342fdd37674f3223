"""Small multiples: one small line chart for each of many groups."""

from __future__ import annotations

from collections.abc import Mapping

from driftline.eval.plotting import charts
from driftline.eval.plotting.charts import Frame, Picture, Series, number, short, tag, text

WIDE, HIGH, LEFT, TOP, FOOT, ACROSS = 200, 130, 30, 20, 18, 4  # pixels of a panel; panels in a row
NAME = 180  # pixels for a name


def panels(groups: Mapping[str, Series], x_name: str, joined: bool = True) -> Picture:
    """title → lines; all charts have the same axes, y from 0 to 100 per cent or beyond. joined: False for dots
    alone."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    xs = [x for group in groups.values() for along, _ in group.values() for x in along] or [0.0]
    low, high = min(xs), max(max(xs), min(xs) + 1e-9)
    ys = [0.0, 1.0, *(y for group in groups.values() for _, shares in group.values() for y in shares)]
    frame = Frame(LEFT, TOP, WIDE - LEFT - 12, HIGH - TOP - FOOT, (low, high), (min(ys), max(ys)))
    right, foot = LEFT + frame.width, TOP + frame.height
    parts: list[str] = []
    ends: list[str] = []
    rows: list[list[object]] = []
    for k, (title, group) in enumerate(groups.items()):
        inside = [text(LEFT, TOP - 7, title if len(title) <= 24 else f"{title[:23]}…", size=12)]
        inside += charts.grid(frame, (0, 0.5, 1), lambda share: f"{100 * share:.0f}", 10)
        inside += [text(LEFT, foot + 13, number(low), size=10), text(right, foot + 13, number(high), "end", 10)]
        for name, (along, shares) in group.items():
            at = names.index(name)
            inside.append(charts.drawn(name, at, frame, along, shares, len(rows), width=1.6, joined=joined))
            rows += [[name, short(x), round(100 * y, 2), title] for x, y in zip(along, shares, strict=True)]
            if len(shares):
                ends.append(f"{title}, {name}: {100 * shares[0]:.0f} to {100 * shares[-1]:.0f}")
        place = f"translate({k % ACROSS * WIDE} {k // ACROSS * HIGH})"
        parts.append(tag("g", *inside, class_="panel", transform=place))
    height = -(-len(groups) // ACROSS) * HIGH + 6
    for i, name in enumerate(names):
        y = height + 10 + i // ACROSS * 18
        parts.append(charts.named(name, y, charts.cut(name), i, LEFT + i % ACROSS * NAME))
    height += 6 + -(-len(names) // ACROSS) * 18
    label = f"Accuracy in per cent by {x_name}. {'; '.join(ends[:60])}"
    svg = charts.svg_of(parts, label, height, ACROSS * WIDE + 12, data_panels=f"{WIDE} {HIGH}")
    return Picture(svg, ["series", x_name, "per cent", "panel"], rows)
