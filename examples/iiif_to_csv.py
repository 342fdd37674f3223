"""An IIIF manifest (Presentation API 3) → a table for `source: delimited`: python iiif_to_csv.py URL museum.csv"""

import csv
import json
import sys
import urllib.request


def manifest_to_csv(url: str, out: str) -> None:
    with urllib.request.urlopen(url) as answer:
        manifest = json.load(answer)
    with open(out, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "url", "date", "licence"])
        for canvas in manifest["items"]:
            image = canvas["items"][0]["items"][0]["body"]["id"]
            table.writerow([canvas["id"], image, manifest.get("navDate"), manifest.get("rights")])


if __name__ == "__main__":
    manifest_to_csv(*sys.argv[1:3])
