"""Numbers, and names of steps, as pages, tables and terminals print them."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from markupsafe import Markup

from driftline.eval.protocol import Document, Score
from driftline.eval.scoring.bands import Band
from driftline.eval.scoring.decay import Curve, HalfLife
from driftline.eval.scoring.ranking import entry_of, mean_of
from driftline.eval.timeline import record
from driftline.stream_builder.stream import Stream

DECIMALS = {"share": 1, "corrections": 0, "microseconds": 0}  # of a printed score, by unit; others: up to 3
EVEN = 0.2  # of an age: ages that differ by no more are named by their mean


def value_text(score: Score, value: float | None) -> str:
    """A value; shares are in per cent, values of other units as they are.

    >>> value_text(Score("accuracy", "accuracy"), 0.5), value_text(Score("cost", "cost", False, "corrections"), None)
    ('50.0', '–')
    >>> [value_text(Score("asked", "asked", unit="labels"), value) for value in (1200.0, 2.5)]
    ['1200', '2.5']
    """
    if value is None:
        return "–"
    if score.unit not in DECIMALS:
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return f"{100 * value if score.unit == 'share' else value:.{DECIMALS[score.unit]}f}"


def detail(score: Score, result: Document) -> str:
    """What is printed behind the mean of one of a document's results: the standard deviation if there are several
    seeds, and how many seeds got there if some did not.

    >>> values = {"mean": 3.0, "sd": 1.0, "values": [2.0, None, 4.0]}
    >>> detail(Score("cost", "cost", False, "corrections"), {"scores": {"cost": values}})
    '± 1 (2/3)'
    """
    entry = entry_of(score, result)
    values = entry.get("values", [])
    reached = sum(value is not None for value in values)
    deviation = [f"± {value_text(score, entry['sd'])}"] if reached > 1 else []
    return " ".join(deviation + ([f"({reached}/{len(values)})"] if reached < len(values) else []))


def spread(score: Score, result: Document) -> str:
    """Mean and detail."""
    return f"{value_text(score, mean_of(score, result))} {detail(score, result)}".rstrip()


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "test"), counted(1200, "pair")
    ('1 test', '1,200 pairs')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def points(value: float | None, signed: bool = False) -> str:
    """A share in points or per cent, with a minus sign that is as wide as a plus.

    >>> points(-0.0123), points(0.5, signed=True), points(float("nan"))
    ('−1.2', '+50.0', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    rounded = round(100 * float(value), 1) + 0.0  # no negative zero
    return f"{rounded:{'+' if signed else ''}.1f}".replace("-", "−")


def ends(low: float | None, high: float | None) -> str:
    """An interval in points, "" if it is not known. An end near 0 has as many digits as show on which side it lies.

    >>> ends(0.0312, 0.5), ends(-0.00032, 0.004), ends(None, None), ends(float("nan"), 0.2)
    ('3.1 to 50.0', '−0.03 to 0.4', '', '')
    """

    def end(value: float) -> str:
        near = 1e-6 < abs(value) < 0.0005
        return f"{100 * value:.1g}".replace("-", "−") if near else points(value)

    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f"{end(low)} to {end(high)}"


def interval(band: Band, at: int | tuple[()] = ()) -> tuple[str, str]:
    """A value in points, and its 95 % interval or "". at: its place; (): of a single value."""
    value, low, high = (float(end[at]) for end in (band.value, band.low, band.high))
    return points(value), ends(low, high)


def within(band: Band, at: int | tuple[()] = ()) -> str:
    """Both as one text."""
    value, shown = interval(band, at)
    return f"{value} ({shown})" if shown else value


def span(value: float, unit: str = "") -> str:
    """A time with its unit.

    >>> span(1.04, "years"), span(14.2)
    ('1.0 years', '14')
    """
    return f"{value:.{0 if value >= 10 else 1}f} {unit}".rstrip()


def after(ages: Curve, at: int, unit: str) -> str:
    """The age at a position, with its range where it is of several ages: 5.0 years (2.0 to 11)."""
    mean, least, most = (float(values[at]) for values in (ages.age, ages.youngest, ages.oldest))
    even = most - least <= EVEN * mean
    return span(mean, unit) + ("" if even else f" ({span(least)} to {span(most)})")


def half_life_text(half: HalfLife, unit: str) -> tuple[str, str]:
    """A half-life and its 95 % interval, or why there is none and "". An end that is not reached is one-sided: all that
    is known is that it lies beyond the time that was tested.

    >>> half_life_text(HalfLife(4.2, 3.9, 4.6, 1.0, 14.0), "years")
    ('4.2 years', '3.9 to 4.6')
    >>> half_life_text(HalfLife(math.inf, 3.9, math.inf, 0.3, 14.0, extrapolated=21.0), "years")
    ('not reached within 14 years; 21 years if the fall went on', '3.9 years or more')
    """
    if half.why:
        return str(half.why), ""
    tested = span(half.tested, unit)
    value = f"not reached within {tested}" if math.isinf(half.value) else span(half.value, unit)
    if math.isinf(half.value) and math.isfinite(half.extrapolated):
        value += f"; {span(half.extrapolated, unit)} if the fall went on"
    if math.isinf(half.low):
        return value, f"more than {tested}"
    if math.isfinite(half.high):
        return value, f"{span(half.low)} to {span(half.high)}"
    if math.isinf(half.value):
        return value, f"{span(half.low, unit)} or more"
    return value, f"{span(half.low)} to more than {span(half.tested)}"


def seconds_text(seconds: float) -> str:
    """
    >>> seconds_text(0.0053), seconds_text(1.52), seconds_text(900)
    ('5 ms', '1.5 s', '15 min')
    """
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def p_text(p: float | None) -> str:
    """
    >>> p_text(0.0004), p_text(0.2), p_text(None)
    ('p < 0.001', 'p = 0.20', 'not testable')
    """
    if p is None or math.isnan(p):
        return "not testable"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.1 else f"p = {p:.2f}"


def listed(names: Sequence[str], most: int = 6) -> Markup:
    """Names in a sentence, escaped unless they are markup.

    >>> print(listed(["er", "ridge", "slda"]), "|", listed(["a", "b", "c", "d"], most=2))
    er, ridge and slda | a, b and 2 more
    """
    shown = names[:most] if len(names) > most else names[:-1]
    last = f"{len(names) - most} more" if len(names) > most else names[-1]
    return Markup("{} and {}").format(Markup(", ").join(shown), last) if shown else Markup("{}").format(last)


def named_steps(stream: Stream) -> list[str]:
    """The steps of a stream, as `step_names` has them."""
    about = record(stream)
    return step_names(about["names"], about.get("dates", ()))


def step_names(names: Sequence[str], dates: Sequence[int]) -> list[str]:
    """Names of steps; their dates if there are some and the names only count.

    >>> step_names(["1", "2"], [0, 366 * 86_400]), step_names(["before", "after"], [0, 366 * 86_400])
    (['1970', '1971'], ['before', 'after'])
    """
    counts = any(list(names) == [str(first + i) for i in range(len(names))] for first in (0, 1))
    return date_names(dates) if counts and len(dates) == len(names) else list(names)


def date_names(dates: Sequence[int]) -> list[str]:
    """Seconds UTC, rising → years, months or days: the shortest form in which all differ.

    >>> date_names([0, 366 * 86_400]), date_names([0, 40 * 86_400]), date_names([0, 86_400])
    (['1970', '1971'], ['1970-01', '1970-02'], ['1970-01-01', '1970-01-02'])
    """
    days = [datetime.fromtimestamp(date, UTC) for date in dates]
    for form in ("%Y", "%Y-%m", "%Y-%m-%d"):
        names = [day.strftime(form) for day in days]
        if all(a != b for a, b in pairwise(names)):
            return names
    return [day.strftime("%Y-%m-%d %H:%M") for day in days]
