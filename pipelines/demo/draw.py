"""Rendered photos of ten everyday things that change their look over a decade, and of other scenes.

Every drawing function takes `age` in [0, 1] (0: the first day of the world, 1: the last). Shapes, proportions and
materials change with it, and so do the cameras (early: noise, blur, warm colours; late: sharp, cool colours).
"""

import io
import math
from collections.abc import Callable
from itertools import product

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIZE = 96  # pixels of a finished photo
CANVAS = 192  # drawn at twice the size

Colour = tuple[int, int, int]
Rng = np.random.Generator
Drawer = Callable[[ImageDraw.ImageDraw, float, Rng, Colour], None]


def mix(a: float, b: float, t: float) -> float:
    """Linear blend."""
    return a + (b - a) * min(max(t, 0.0), 1.0)


def shade(colour: Colour, factor: float) -> Colour:
    """Darker (< 1) or lighter (> 1)."""
    r, g, b = (min(255, max(0, round(c * factor))) for c in colour)
    return (r, g, b)


def pick(rng: Rng, *colours: Colour) -> Colour:
    """A random one of the colours, slightly varied."""
    base = colours[int(rng.integers(len(colours)))]
    return shade(base, float(rng.uniform(0.8, 1.2)))


GREY, BLACK, WHITE, BEIGE = (128, 130, 134), (28, 28, 32), (236, 238, 240), (214, 203, 170)
RED, BLUE, GREEN, YELLOW = (196, 44, 40), (40, 84, 172), (52, 140, 70), (232, 190, 40)
SILVER, BROWN = (190, 196, 202), (122, 82, 50)
WALLS = (200, 206, 210), (170, 190, 206), (206, 190, 166), (150, 170, 140), (120, 124, 136), (228, 226, 216)


def phone(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Keypad brick with an aerial → slab that is all screen."""
    w, h = mix(44, 62, age), mix(126, 118, age)
    x, y = 96 - w / 2, 96 - h / 2
    if age < 0.45:
        d.rectangle((x + 3, y - mix(34, 4, age * 2), x + 11, y + 8), fill=shade(c, 0.7))
    d.rounded_rectangle((x, y, x + w, y + h), mix(12, 8, age), fill=c, outline=shade(c, 0.5), width=2)
    top, bottom = y + mix(16, 6, age), y + mix(46, h - 12, age)
    screen = pick(rng, (150, 170, 120)) if age < 0.4 else pick(rng, (60, 120, 200), (30, 40, 70), (220, 120, 60))
    d.rectangle((x + 6, top, x + w - 6, bottom), fill=screen)
    for row, col in product(range(4), range(3)):
        if age < 0.65:
            cx, cy = x + w * (0.22 + 0.28 * col), bottom + (y + h - bottom) * (0.2 + 0.2 * row)
            d.ellipse((cx - 5, cy - 4, cx + 5, cy + 4), fill=shade(c, 1.7 if sum(c) < 300 else 0.5))
        else:
            cx, cy = x + w * (0.25 + 0.25 * col), top + (bottom - top) * (0.15 + 0.2 * row)
            d.rectangle((cx - 5, cy - 5, cx + 5, cy + 5), fill=pick(rng, RED, GREEN, YELLOW, WHITE, BLUE))


def television(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Deep box with rabbit ears and knobs → thin wide panel on a foot."""
    w, h = mix(112, 164, age), mix(96, 92, age)
    x, y, bezel = 96 - w / 2, 92 - h / 2, mix(15, 4, age)
    if age < 0.5:
        d.line((96, y, 96 - 34, y - 36), fill=GREY, width=3)
        d.line((96, y, 96 + 34, y - 36), fill=GREY, width=3)
        body = pick(rng, BROWN, (90, 70, 60))
    else:
        body = BLACK
    d.rounded_rectangle((x, y, x + w, y + h), mix(12, 2, age), fill=body)
    right = mix(26, 0, age * 1.6)
    picture = pick(rng, (70, 120, 190), (60, 150, 90), (200, 140, 90))
    d.rounded_rectangle((x + bezel, y + bezel, x + w - bezel - right, y + h - bezel), mix(14, 1, age), fill=picture)
    foot = y + h - bezel - 2
    hill = [(x + bezel + 6, foot), (x + w * 0.4, y + h * 0.45), (x + w * 0.62, foot)]
    d.polygon(hill, fill=shade(picture, 0.6))
    if right > 8:
        for k in range(3):
            d.ellipse((x + w - right - 2, y + 18 + 24 * k, x + w - 8, y + 34 + 24 * k), fill=BEIGE)
    if age < 0.5:
        d.line((x + 14, y + h, x + 6, y + h + 26), fill=BROWN, width=6)
        d.line((x + w - 14, y + h, x + w - 6, y + h + 26), fill=BROWN, width=6)
    else:
        d.rectangle((92, y + h, 100, y + h + 14), fill=BLACK)
        d.ellipse((62, y + h + 10, 130, y + h + 20), fill=BLACK)


def car(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Square saloon → rounded hatchback with large wheels."""
    ground, r = 136, mix(15, 20, age)
    body = ground - mix(30, 40, age)
    roof = body - mix(26, 34, age)
    if age < 0.5:
        d.rectangle((22, body, 170, ground - 6), fill=c)
        d.polygon([(54, body), (66, roof), (126, roof), (140, body)], fill=shade(c, 0.9))
        d.rectangle((70, roof + 5, 93, body), fill=(170, 200, 215))
        d.rectangle((98, roof + 5, 124, body), fill=(170, 200, 215))
        d.rectangle((18, ground - 18, 28, ground - 10), fill=SILVER)
    else:
        d.pieslice((20, roof - 26, 176, ground + 64), 180, 360, fill=c)
        d.rectangle((20, ground - 22, 176, ground - 6), fill=c)
        d.pieslice((46, roof - 12, 146, ground + 40), 192, 348, fill=(120, 160, 190))
        d.rectangle((94, roof - 8, 100, ground - 30), fill=c)
        d.ellipse((160, ground - 34, 176, ground - 24), fill=WHITE)
    for cx in (54, 140):
        d.ellipse((cx - r, ground - r, cx + r, ground + r), fill=BLACK)
        d.ellipse((cx - r * 0.5, ground - r * 0.5, cx + r * 0.5, ground + r * 0.5), fill=SILVER)


def camera(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Silver compact with a flash → black body with a large lens."""
    body = SILVER if age < 0.45 else BLACK
    body = shade(body, float(rng.uniform(0.85, 1.15)))
    w, h = mix(132, 118, age), mix(74, 84, age)
    x, y = 96 - w / 2, 104 - h / 2
    if age > 0.4:
        d.polygon([(78, y), (86, y - 22), (108, y - 22), (116, y)], fill=shade(body, 1.3))
    d.rounded_rectangle((x, y, x + w, y + h), 8, fill=body, outline=shade(body, 0.6), width=2)
    r = mix(20, 36, age)
    cx = mix(110, 96, age)
    for k, tone in enumerate((0.45, 0.25, 0.9, 0.15)):
        q = r * (1 - 0.2 * k)
        d.ellipse((cx - q, 106 - q, cx + q, 106 + q), fill=shade((100, 110, 150), tone))
    if age < 0.6:
        d.rectangle((x + 10, y + 8, x + 36, y + 24), fill=(250, 246, 214))
        d.rectangle((cx - 8, y + 5, cx + 10, y + 15), fill=(60, 80, 110))
    d.rectangle((x + w - 28, y - 7, x + w - 10, y), fill=shade(body, 0.7))


def computer(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Beige monitor on a case with a keyboard → thin silver laptop."""
    glow = pick(rng, (50, 80, 160), (30, 110, 110), (80, 90, 110))
    if age < 0.5:
        body = shade(BEIGE, float(rng.uniform(0.9, 1.1)))
        d.rectangle((50, 44, 142, 116), fill=body, outline=shade(body, 0.7), width=2)
        d.rounded_rectangle((60, 53, 132, 104), 6, fill=glow)
        for k in range(4):
            d.line((66, 62 + 9 * k, 100 + 6 * k, 62 + 9 * k), fill=(190, 230, 190), width=2)
        d.rectangle((36, 118, 156, 138), fill=shade(body, 0.92), outline=shade(body, 0.7), width=2)
        d.rectangle((110, 124, 146, 128), fill=BLACK)
        d.polygon([(38, 146), (154, 146), (166, 166), (26, 166)], fill=shade(body, 0.85))
    else:
        body = pick(rng, SILVER, (70, 72, 78))
        lift = mix(0, 10, age)
        d.rounded_rectangle((42, 46 - lift, 150, 122), 5, fill=body)
        d.rectangle((48, 52 - lift, 144, 116), fill=glow)
        d.rectangle((48, 52 - lift, 144, 60 - lift), fill=WHITE)
        d.rectangle((58, 68, 96, 92), fill=shade(glow, 1.6))
        d.polygon([(42, 122), (150, 122), (168, 148), (24, 148)], fill=shade(body, 0.85))
        d.polygon([(52, 126), (140, 126), (148, 138), (44, 138)], fill=shade(body, 0.5))


def bicycle(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Thin wheels, drop handlebar → fat tyres, straight bar, sloping frame."""
    r, tyre = mix(37, 31, age), round(mix(3, 10, age))
    left, right, axle = (56, 126), (138, 126), (92, 126)
    for cx, cy in (left, right):
        d.ellipse((cx - r, cy - r, cx + r, cy + r), outline=BLACK, width=tyre)
        for k in range(8):
            a = k * math.pi / 4
            d.line((cx, cy, cx + (r - 3) * math.cos(a), cy + (r - 3) * math.sin(a)), fill=GREY, width=1)
    seat, head = (80, mix(74, 84, age)), (128, 76)
    for p, q in ((left, seat), (left, axle), (axle, seat), (axle, head), (seat, head), (head, right)):
        d.line((*p, *q), fill=c, width=round(mix(4, 8, age)))
    d.line((seat[0] - 12, seat[1] - 6, seat[0] + 12, seat[1] - 6), fill=BLACK, width=6)
    if age < 0.5:
        d.arc((118, 58, 146, 86), 200, 90, fill=BLACK, width=4)
    else:
        d.line((116, 68, 142, 64), fill=BLACK, width=6)


def lamp(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Fabric shade on a turned foot → thin arm with a light bar."""
    if age < 0.5:
        fabric = pick(rng, (230, 205, 150), (200, 150, 120), (220, 220, 190))
        d.polygon([(66, 44), (126, 44), (146, 96), (46, 96)], fill=fabric)
        d.rectangle((92, 96, 100, 150), fill=BROWN)
        d.ellipse((84, 108, 108, 132), fill=BROWN)
        d.ellipse((64, 146, 128, 164), fill=shade(BROWN, 0.8))
        d.ellipse((78, 88, 114, 104), fill=(255, 246, 190))
    else:
        tone = pick(rng, BLACK, SILVER, WHITE)
        d.ellipse((54, 150, 104, 164), fill=tone)
        d.line((78, 156, 66, 92), fill=tone, width=6)
        d.line((66, 92, 118, 52), fill=tone, width=6)
        d.line((98, 54, 156, 46), fill=tone, width=10)
        d.line((100, 61, 156, 53), fill=(240, 250, 255), width=6)


def bus(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Yellow or red with a bonnet and small windows → low white and green with a glass side."""
    body = pick(rng, YELLOW, RED) if age < 0.5 else pick(rng, WHITE, GREEN, (210, 230, 235))
    top = mix(62, 54, age)
    d.rounded_rectangle((16, top, 176, 138), mix(6, 18, age), fill=body, outline=shade(body, 0.6), width=2)
    n = 5
    for k in range(n):
        x = 26 + k * 29
        d.rectangle((x, top + mix(14, 8, age), x + mix(18, 27, age), top + mix(36, 52, age)), fill=(90, 120, 140))
    d.rectangle((16, 114, 176, 120), fill=BLACK if age < 0.5 else pick(rng, GREEN, BLUE))
    if age < 0.5:
        d.rectangle((150, 104, 184, 138), fill=shade(body, 0.9))
    for cx in (48, 142):
        d.ellipse((cx - 15, 124, cx + 15, 154), fill=BLACK)
        d.ellipse((cx - 6, 133, cx + 6, 145), fill=SILVER)


def shoe(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Leather shoe with a heel → trainer with a thick white sole."""
    upper = pick(rng, BROWN, BLACK) if age < 0.45 else c
    sole = mix(5, 24, age)
    d.polygon([(36, 76), (74, 70), (96, 96), (150, 112), (166, 134), (36, 134)], fill=upper)
    d.ellipse((126, 104, 170, 140), fill=upper)
    d.rounded_rectangle((34, 132, 172, 132 + sole), 6, fill=shade(BROWN, 0.5) if age < 0.45 else WHITE)
    if age < 0.45:
        d.rectangle((34, 136, 66, 152), fill=shade(BROWN, 0.4))
    else:
        d.line((60, 122, 120, 106), fill=WHITE, width=7)
    for k in range(4):
        d.line((76 + 11 * k, 84 + 5 * k, 88 + 11 * k, 78 + 6 * k), fill=WHITE if age > 0.45 else BEIGE, width=3)


def headphones(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Thin metal band with foam pads → thick padded band with closed cups."""
    band, r = round(mix(3, 15, age)), mix(16, 29, age)
    tone = SILVER if age < 0.45 else c
    d.arc((44, 40, 148, 160), 180, 360, fill=tone, width=band)
    for cx in (50, 142):
        pad = (70, 60, 60) if age < 0.45 else shade(c, 0.7)
        d.ellipse((cx - r * 0.7, 104 - r, cx + r * 0.7, 104 + r), fill=pad)
        d.ellipse((cx - r * 0.4, 104 - r * 0.6, cx + r * 0.4, 104 + r * 0.6), fill=shade(pad, 1.4))
    if age < 0.6:
        d.line((50, 120, 60, 170), fill=BLACK, width=2)
        d.line((142, 120, 60, 170), fill=BLACK, width=2)


CONCEPTS: dict[str, Drawer] = {
    draw.__name__: draw for draw in (phone, television, car, camera, computer, bicycle, lamp, bus, shoe, headphones)
}


def hills(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """A landscape."""
    for k in range(3):
        base = 90 + 30 * k
        points = [(x, base + float(rng.uniform(-18, 18))) for x in range(-20, 240, 40)]
        d.polygon([(-20, 200), *points, (220, 200)], fill=shade((70, 130, 80), 1.2 - 0.25 * k))
    d.ellipse((130, 20, 162, 52), fill=(250, 220, 120))


def trees(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Some trees."""
    for _ in range(4):
        x, y = float(rng.uniform(20, 170)), float(rng.uniform(100, 160))
        d.rectangle((x - 4, y - 20, x + 4, y + 14), fill=BROWN)
        d.ellipse((x - 26, y - 68, x + 26, y - 12), fill=pick(rng, GREEN, (90, 120, 40)))


def house(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """A house."""
    d.rectangle((48, 92, 144, 160), fill=pick(rng, BEIGE, WHITE, (200, 150, 130)))
    d.polygon([(38, 92), (96, 44), (154, 92)], fill=pick(rng, RED, BROWN, GREY))
    d.rectangle((84, 120, 108, 160), fill=BROWN)


def food(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """A plate of food."""
    d.ellipse((30, 40, 162, 152), fill=WHITE)
    d.ellipse((48, 54, 144, 138), fill=(226, 228, 230))
    for _ in range(7):
        x, y, r = float(rng.uniform(66, 126)), float(rng.uniform(72, 118)), float(rng.uniform(7, 17))
        d.ellipse((x - r, y - r, x + r, y + r), fill=pick(rng, RED, GREEN, YELLOW, BROWN))


def pattern(d: ImageDraw.ImageDraw, age: float, rng: Rng, c: Colour) -> None:
    """Stripes."""
    for k in range(-192, 384, 24):
        d.line((k, 0, k + 96, 192), fill=shade(c, float(rng.uniform(0.7, 1.3))), width=11)


# When each thing changes, as an offset to `age`: not all in the same year. The new form is drawn from about HALFWAY on.
HALFWAY = 0.48
CHANGES = {name: 0.28 - 0.062 * i for i, name in enumerate(CONCEPTS)}

SCENES: dict[str, Drawer] = {
    "hills": hills,
    "trees": trees,
    "house": house,
    "a plate of food": food,
    "a striped pattern": pattern,
}


def clutter(d: ImageDraw.ImageDraw, rng: Rng, n: int) -> None:
    """Random small shapes."""
    for _ in range(n):
        x, y, r = float(rng.uniform(0, 192)), float(rng.uniform(0, 192)), float(rng.uniform(4, 22))
        tone = pick(rng, RED, BLUE, GREEN, YELLOW, GREY, BROWN)
        (d.ellipse if rng.random() < 0.5 else d.rectangle)((x - r, y - r, x + r, y + r), fill=tone)


def photo(things: list[str], age: float, rng: Rng) -> Image.Image:
    """A photo of one or two things (keys of CONCEPTS or SCENES), as a camera of its time would take it."""
    wall = pick(rng, *WALLS)
    base = np.linspace(0.85, 1.12, CANVAS)[:, None, None] * np.array(wall)[None, None, :]
    canvas = Image.fromarray(np.clip(np.broadcast_to(base, (CANVAS, CANVAS, 3)), 0, 255).astype(np.uint8))
    d = ImageDraw.Draw(canvas)
    floor = int(rng.integers(130, 170))
    d.rectangle((0, floor, CANVAS, CANVAS), fill=pick(rng, BROWN, GREY, BEIGE, (90, 110, 90)))
    clutter(d, rng, int(rng.integers(0, 5)))
    for place, thing in enumerate(things):
        layer = Image.new("RGBA", (CANVAS, CANVAS))
        pen = ImageDraw.Draw(layer)
        tone = pick(rng, RED, BLUE, GREEN, YELLOW, BLACK, WHITE, SILVER, (140, 60, 140), (230, 120, 40))
        # old things stay in use
        own_age = min(1.0, max(0.0, age + CHANGES.get(thing, 0.0) + float(rng.normal(0, 0.1))))
        (CONCEPTS.get(thing) or SCENES[thing])(pen, own_age, rng, tone)
        scale = float(rng.uniform(0.42, 1.05)) * (0.62 if len(things) > 1 else 1.0)
        layer = layer.rotate(float(rng.normal(0, 12)), Image.Resampling.BILINEAR)
        if thing in CONCEPTS and rng.random() < 0.5:
            layer = layer.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        side = max(16, round(CANVAS * scale))
        layer = layer.resize((side, side), Image.Resampling.BILINEAR)
        middle = CANVAS // 2 if len(things) == 1 else (CANVAS // 4, 3 * CANVAS // 4)[place]
        x = round(middle - side / 2 + float(rng.normal(0, 16)))
        y = round(CANVAS / 2 - side / 2 + float(rng.normal(0, 16)))
        canvas.paste(layer, (x, y), layer)
    clutter(d, rng, int(rng.integers(0, 3)))  # in front of the things
    image = canvas.reduce(CANVAS // SIZE)
    softness = mix(1.0, 0.15, age) * float(rng.uniform(0.5, 1.4))
    image = image.filter(ImageFilter.GaussianBlur(softness))
    pixels = np.asarray(image, np.float32)
    pixels += rng.normal(0, mix(13, 3, age), pixels.shape[:2] + (1,))
    warmth = mix(14, -8, age) + float(rng.normal(0, 6))
    pixels += np.array([warmth, 0, -warmth], np.float32)
    pixels = (pixels - 128) * mix(0.82, 1.12, age) + 128 + float(rng.normal(0, 10))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def jpeg(image: Image.Image, quality: int = 82, exif: bytes = b"") -> bytes:
    """JPEG bytes."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, exif=exif)
    return buffer.getvalue()
