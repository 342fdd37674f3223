"""The page: a table for each table or figure of the paper, and what it lacks."""

from collections.abc import Mapping
from typing import Any

from driftline.eval.plotting.charts import Section
from driftline.eval.reporting.markup import environment, render, table

HEADS = ("", "learner", "score", "paper", "ours", "95 %", "difference", "seeds", "n", "verdict", "not as in the paper")
ABOUT = (
    "within interval: the printed value lies in the 95 % interval of ours, over seeds and test samples. same order: it "
    "does not, but three of four of the row's other learners that the paper puts clearly above or below are on the "
    "same side in ours."
)


def page(document: Mapping[str, Any]) -> str:
    """HTML; figures are linked."""
    sections = []
    for item in document["items"]:
        rows = [row for row in document["rows"] if row["item"] == item["item"]]
        html = table(HEADS, [_line(row) for row in rows]) if rows else render("soft", "No numbers.")
        html += "".join(render("soft", text) for text in item["because"])
        html += "".join(render("link", file) for file in item["files"] if file.endswith(".svg"))
        sections.append(Section(item["item"], f"{item['item']}: {item['title']}", html))
    notice = f"Reduced: {document['reduced']}." if document["reduced"] else ""
    template = environment().get_template("reproduce.html.j2")
    return str(template.render(title=document["title"], up="", notice=notice, about=ABOUT, sections=sections))


def _line(row: Mapping[str, Any]) -> list[Any]:
    paper = "–" if row["paper"] is None else f"{row['paper']:g}"
    difference = "–" if row["difference"] is None else f"{row['difference']:+.3f}".replace("-", "−")
    interval = f"{row['low']:.3f} – {row['high']:.3f}"
    return [row["row"], row["learner"], row["score"], paper, f"{row['ours']:.3f}", interval, difference, row["seeds"],
            row["n"] or "–", row["verdict"], row["because"]]  # fmt: skip
