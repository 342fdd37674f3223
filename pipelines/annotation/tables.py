"""The tables of a file of answers, and the answer that the grids of several concepts give together."""

import json
import sqlite3
from collections.abc import Collection

from driftline.curate.validation.asking.batches import NONE

SCHEMA = """
CREATE TABLE answers (
    annotator TEXT NOT NULL, item TEXT NOT NULL, labels TEXT NOT NULL, sensitive INTEGER NOT NULL,
    seconds INTEGER NOT NULL, number INTEGER NOT NULL, page TEXT NOT NULL, undone INTEGER NOT NULL,
    PRIMARY KEY (annotator, item)
);
CREATE TABLE skipped (
    annotator TEXT NOT NULL, item TEXT NOT NULL, comment TEXT NOT NULL, PRIMARY KEY (annotator, item)
);
CREATE TABLE flagged (
    annotator TEXT NOT NULL, item TEXT NOT NULL, comment TEXT NOT NULL, PRIMARY KEY (annotator, item)
);
CREATE TABLE shown (
    annotator TEXT NOT NULL, item TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (annotator, item)
);
CREATE TABLE parts (
    annotator TEXT NOT NULL, item TEXT NOT NULL, page TEXT NOT NULL, labels TEXT NOT NULL, number INTEGER NOT NULL,
    undone INTEGER NOT NULL, PRIMARY KEY (annotator, item, page)
);
CREATE INDEX by_number ON answers (number);
CREATE INDEX by_item ON answers (item, undone, labels);
"""
VIEWS = """
PRAGMA temp_store = MEMORY;
CREATE TEMP TABLE elsewhere (annotator TEXT NOT NULL, item TEXT NOT NULL, labels TEXT NOT NULL);
CREATE INDEX temp.elsewhere_by_item ON elsewhere (item, labels);
CREATE INDEX temp.elsewhere_by_annotator ON elsewhere (annotator, item);
CREATE TEMP VIEW own AS SELECT * FROM answers WHERE NOT undone AND labels <> '[]';
CREATE TEMP VIEW counted AS
    SELECT annotator, item, labels FROM own UNION ALL SELECT annotator, item, labels FROM elsewhere;
"""


def with_parts(
    database: sqlite3.Connection, key: tuple[str, str, str], labels: list[str], number: int, grids: Collection[str]
) -> list[str]:
    """The labels to store for an answer; `parts` keeps those on the grid of one of several concepts.

    key: annotator, item, concept of the grid ("": one by one); number: of the
    screen; grids: concepts in whose grids the item stands. Of several, each part is kept, and the answer has no labels
    while one is missing."""
    if not key[2] or len(grids) < 2:
        return labels
    database.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, 0)", (*key, json.dumps(labels), number))
    query = "SELECT page, labels FROM parts WHERE annotator = ? AND item = ? AND NOT undone"
    parts = {page: json.loads(text) for page, text in database.execute(query, key[:2])}
    if not parts.keys() >= set(grids):
        return []
    return sorted({label for part in parts.values() for label in part} - {NONE}) or [NONE]
