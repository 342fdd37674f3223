"""A stand-in of a museum: documents of IIIF's Presentation API, and an image server of the Image API, as published.

Documents, read on 2026-11-27: iiif.io/api/presentation/3.0 (sections 3 and 5) and 2.1 (section 5), and of the Image
API iiif.io/api/image/3.0 and 2.1 (sections 2 and 4) and their compliance pages (section 3.2). The image server gives no
more than its level demands, so that no client passes because it is kind.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from PIL import Image
from support.document_server import DocumentServer, Reply
from support.stand_ins import StandIn

Document = dict[str, Any]


def canvas(address: str, number: int, **more: Any) -> Document:
    """A canvas of version 3 whose image has a service of level 2."""
    service = [{"id": f"{address}/iiif/{number}", "type": "ImageService3", "profile": "level2"}]
    body = {"id": f"{address}/{number}.jpg", "type": "Image", "format": "image/jpeg", "service": service}
    name = f"{address}/canvas/{number}"
    painting = {"id": f"{name}/a", "type": "Annotation", "motivation": "painting", "body": body, "target": name}
    page = {"id": f"{name}/p", "type": "AnnotationPage", "items": [painting]}
    return {"id": name, "type": "Canvas", "height": 1800, "width": 1200, "items": [page], **more}


def canvas_of_2(address: str, number: int, level: int = 0) -> Document:
    """One of version 2."""
    name = f"{address}/canvas/{number}"
    service = {
        "@context": "http://iiif.io/api/image/2/context.json",
        "@id": f"{address}/iiif/{number}",
        "profile": f"http://iiif.io/api/image/2/level{level}.json",
    }
    resource = {
        "@id": f"{address}/{number}.jpg", "@type": "dctypes:Image", "format": "image/jpeg", "service": service
    }  # fmt: skip
    image = {"@type": "oa:Annotation", "motivation": "sc:painting", "resource": resource, "on": name}
    return {"@id": name, "@type": "sc:Canvas", "label": "front", "height": 1800, "width": 1200, "images": [image]}


def manifest(address: str, canvases: Sequence[Document], version: int = 3) -> Document:
    """A manifest of some canvases."""
    if version == 2:
        return {
            "@context": "http://iiif.io/api/presentation/2/context.json",
            "@id": f"{address}/manifest",
            "@type": "sc:Manifest",
            "label": "A thing",
            "sequences": [{"@type": "sc:Sequence", "label": "Normal", "canvases": list(canvases)}],
        }
    return {
        "@context": "http://iiif.io/api/presentation/3/context.json",
        "id": f"{address}/manifest",
        "type": "Manifest",
        "label": {"en": ["A thing"]},
        "items": list(canvases),
    }


class ImageServer(DocumentServer, StandIn):
    """One image, of `shape` (width, height), at ADDRESS/image/iiif; level: of its compliance. version: 2 or 3."""

    RULES: ClassVar[tuple[str, ...]] = (
        "every level serves the whole image: max, in version 2 full",
        "only level 1 and 2 serve one edge",
        "only level 2 serves a confined image",
        "a confined image is as large as possible and no larger than the image",
        "an edge beyond the image's own is refused in version 3",
        "a size of another form is refused",
        "the quality is called default",
        "info.json names level, width and height",
    )

    def __init__(self, shape: tuple[int, int], level: int, version: int, broken: str = "") -> None:
        StandIn.__init__(self, broken)
        DocumentServer.__init__(self)
        self.shape, self.level, self.version = shape, level, version
        self.image = f"{self.address}/image/iiif"

    def service(self) -> Document:
        """The service as a manifest has it."""
        if self.version == 2:
            profile = f"http://iiif.io/api/image/2/level{self.level}.json"
            return {"@context": "http://iiif.io/api/image/2/context.json", "@id": self.image, "profile": profile}
        return {"id": self.image, "type": "ImageService3", "profile": f"level{self.level}"}

    def canvas(self) -> Document:
        """A canvas with the image; its body has the image's edges."""
        whole = f"{self.image}/full/{'max' if self.version == 3 else 'full'}/0/default.jpg"
        edges = {"width": self.shape[0], "height": self.shape[1]}
        if self.version == 2:
            document = canvas_of_2(self.address, 1)
            document["images"][0]["resource"] |= {"@id": whole, "service": self.service(), **edges}
        else:
            document = canvas(self.address, 1)
            document["items"][0]["items"][0]["body"] |= {"id": whole, "service": [self.service()], **edges}
        return document

    def reply(self, path: str) -> Reply:
        """An image, its information, or a document."""
        if path == "/image/iiif/info.json":
            return DocumentServer.reply(self, path) if path in self.documents else self.information()
        match = re.fullmatch(r"/image/iiif/full/([^/]+)/0/(\w+)\.jpg", path)
        if match is None:
            return DocumentServer.reply(self, path)
        if match[2] != "default" and self.keeps("the quality is called default"):
            return 400, {}, b"unknown quality"
        edges = self.edges(match[1])
        if edges is None:
            return 400, {}, b"this size is not served"
        buffer = io.BytesIO()
        Image.new("RGB", edges).save(buffer, "JPEG")
        return 200, {"Content-Type": "image/jpeg"}, buffer.getvalue()

    def information(self) -> Reply:
        """info.json [Image API 3.0, 5.2; 2.1, 5.2]."""
        edges = {"width": self.shape[0], "height": self.shape[1]}
        if not self.keeps("info.json names level, width and height"):
            edges = {}
        protocol = {"protocol": "http://iiif.io/api/image"}
        self.documents["/image/iiif/info.json"] = {
            **self.service(),
            "@context": f"http://iiif.io/api/image/{self.version}/context.json",
            **protocol,
            **edges,
        }
        return DocumentServer.reply(self, "/image/iiif/info.json")

    def edges(self, size: str) -> tuple[int, int] | None:
        """Width and height of the answer to a size; None where it is refused."""
        wide, high = self.shape
        word = "max" if self.version == 3 else "full"
        if size == word and self.keeps("every level serves the whole image: max, in version 2 full"):
            return self.shape
        if match := re.fullmatch(r"!([1-9]\d*),([1-9]\d*)", size):
            if self.level < 2 and self.keeps("only level 2 serves a confined image"):
                return None
            scale = min(int(match[1]) / wide, int(match[2]) / high)
            if self.keeps("a confined image is as large as possible and no larger than the image"):
                scale = min(scale, 1.0)
            return max(1, round(wide * scale)), max(1, round(high * scale))
        if match := re.fullmatch(r"([1-9]\d*),|,([1-9]\d*)", size):
            if self.level < 1 and self.keeps("only level 1 and 2 serve one edge"):
                return None
            scale = int(match[1]) / wide if match[1] else int(match[2]) / high
            if scale > 1 and self.version == 3 and self.keeps("an edge beyond the image's own is refused in version 3"):
                return None
            return max(1, round(wide * scale)), max(1, round(high * scale))
        return None if self.keeps("a size of another form is refused") else self.shape
