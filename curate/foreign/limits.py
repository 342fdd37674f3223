"""What input may cost, in one place. Limits that belong to a setting are with the setting (`fetch`, `eval`)."""

UNPACKED = 1 << 30
"""bytes of all members of an .npz file once unpacked; more only if the file has a hundredth of it"""
PART = 64 << 20
"""bytes of the rows of a table that are read at once"""
RATIO = 100
"""bytes that one byte of a compressed file may become beyond UNPACKED"""
CLASSES = 1_000_000
"""classes of arrays without names: memory follows the largest label"""
DECODING = 2_000_000_000
"""pixels times scans of an image: a decoder visits every pixel in every scan of a progressive JPEG"""
FRAMES = 64
"""frames of an animation, or pages, that are looked at for one that is not blank"""
FRAME_PIXELS = 200_000_000
"""pixels of all of these"""
BODY = 100_000
"""bytes of a request to a local page"""
ROW_LINES = 100
"""lines of one row of a CSV table: a longer one has a quote that nothing closes"""
CELL = 16 << 20
"""characters of one cell of a CSV table"""
