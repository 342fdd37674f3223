"""A forecast for people."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from driftline.curate.images.local_files import counts_text
from driftline.curate.metadata.clocks import contradiction_sentence, reset_sentence
from driftline.curate.release.selection import few
from driftline.pipelines.forecast.needs import lines as lines_of
from driftline.pipelines.run.runner import Verdict, duration
from driftline.pipelines.run.stage import reasons_text

MOST = 12  # buckets that are listed


def text(plans: Sequence[Verdict], needs: dict[str, Any]) -> str:
    """The plan for people."""
    lines = [f"{p.stage:<11}{p.action:<8}{p.because}" for p in plans]
    add: Callable[[str, str], None] = lambda head, sentence: lines.append(f"{head:<11}{sentence}")  # noqa: E731
    lines.append("")
    if (photos := needs["photos"]) is not None:
        drops = reasons_text(photos["sample_dropped"])
        basis = f"{photos['known_by']}{f'; filter drops {drops}' if drops else ''}"
        if photos["addresses"] is not None:
            measured = f", as of {photos['share_known_by']}" if photos["share_known_by"] else ""
            basis = f"{photos['addresses']:,} addresses{measured}; {basis}"
        add("photos", f"{'at most ' if photos['at_most'] else ''}{photos['expected']:,} ({basis})")
    if (files := needs["files"]) is not None:
        left = f"; left out: {counts_text(files['left_out'])}" if files["left_out"] else ""
        add("files", f"{', '.join(f'{name} {n:,}' for name, n in files['photos'].items())}{left}")
    for note in needs["columns"]:
        add("columns", note)
    for sentence in _dates(needs):
        add("dates", sentence)
    for head, sentence in [*_buckets(needs), *_owners(needs), *_candidates(needs)]:
        add(head, sentence)
    disk = needs["disk"]
    if disk["bytes"]:
        guess = "" if disk["known_by"] == "files" else f" (at {disk['known_by']})"
        photos = f"{disk['bytes'] / 1e6:,.{int(disk['bytes'] < 1e7)}f}"
        add("disk", f"about {photos} MB of photos{guess}; {disk['free'] / 1e6:,.0f} MB are free")
    model = needs["model"]
    size = f" ({model['megabytes']:,} MB)" if model["megabytes"] else ""
    states = {"missing": f"missing, and {model['server']} does not answer", "to download": f"to download{size}"}
    add("model", f"{model['name']}: {states.get(model['state'], model['state'])}")
    times = {name: seconds for name, seconds in needs["seconds"].items() if seconds}
    if times:
        longest = sorted(times, key=lambda name: -times[name])[:2]
        most = ", ".join(f"{name} {duration(times[name])}" for name in longest)
        unknown = ", ".join(name for name, seconds in needs["seconds"].items() if seconds is None)
        rest = f"; not known: {unknown}" if unknown else ""
        add("time", f"about {duration(sum(times.values()))} by the last run, else by a test machine ({most}{rest})")
    if (asked := needs["questions"]) is not None and not asked["images"]:
        add("people", "no further answers are needed")
    elif asked is not None:
        people = f"{asked['images']:,} images × {asked['workers']} = {asked['answers']:,} answers"
        paid = f"${asked['usd']:,.2f} for paid workers with the fee of {asked['platform']}"
        add("people", f"{asked['word']} {people}, {duration(3600 * asked['hours'])}; {paid}, free by yourself")
        least = f", less than the ${asked['least_an_hour']:,.2f} that it requires"
        hourly = f"${asked['usd_an_hour']:,.2f} an hour{least if asked['usd_an_hour'] < asked['least_an_hour'] else ''}"
        add("", f"pay: {hourly}; fee: {asked['fee']}")
        gold = f", gold {asked['gold']:,}" if asked["gold"] else ""
        add("", f"basis: {asked['known_by']}{gold}")
    for line in lines_of(needs["again"]) if needs["again"] else ():
        add("again", line)
    if needs["reused"]:
        add("reused", ", ".join(needs["reused"]))
    for problem in needs["problems"]:
        add("problem", problem)
    return "\n".join(lines)


def _owners(needs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Photos whose licences permit no copies."""
    if (refused := needs["without_licence"]) is not None:
        yield "licences", f"{refused['photos']:,} of {refused['of']:,} permit no copies: only addresses are published"


def _buckets(needs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Photos of each bucket, and what is odd about them."""
    if (buckets := needs["buckets"]) is None:
        return
    shown = ", ".join(f"{b['name']}: {b['photos']:,}" for b in buckets[:MOST])
    yield "buckets", f"{shown}{f' and {len(buckets) - MOST} more' if len(buckets) > MOST else ''}"
    if needs["thin"]:
        yield "", f"{needs['thin']:,} photos wait until their time has buckets.min_photos: thin_period"
    if len(buckets) == 1:
        yield "", "one bucket: no model can be tested on a later time"


def _candidates(needs: dict[str, Any]) -> list[tuple[str, str]]:
    """Candidates of each bucket, and the buckets that have too few photos."""
    if (wanted := needs["candidates"]) is None:
        return [("candidates", needs["without_candidates"])] if needs["without_candidates"] else []
    background = f" + {wanted['background']:,} of the background" if wanted["background"] else ""
    lines = [("candidates", f"{wanted['concepts']} concepts × {wanted['per_class']:,}{background} in each bucket")]
    short = wanted["short_buckets"]
    return lines + ([("", f"{few(short)}: fewer photos than that")] if short else [])


def _dates(needs: dict[str, Any]) -> Iterator[str]:
    """What is strange or unknown of the photos' dates."""
    for day, photos in needs["reset_clocks"].items():
        yield reset_sentence(day, photos, "taken")
    for places, photos in needs["contradicted_dates"].items():
        yield contradiction_sentence(places, photos)
    if needs["undecided"]:
        yield (
            f"{needs['undecided']:,} photos may be in several buckets, because only the year, month or day is known: "
            "date_undecided. Choose longer buckets, or settle their dates in browse"
        )
    if needs["near_borders"]:
        yield f"{needs['near_borders']:,} photos without offset lie within 14 hours of a bucket's border"
