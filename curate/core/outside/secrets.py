"""What must not be shown of addresses: they open what they name for everybody who reads them."""

import re
from urllib.parse import unquote

_QUERY = re.compile(r"""([?#])([^\s"'<>\\#?]*)""")
_TOKEN = re.compile(
    r"(?i)([\w.-]*(token|signature|secret|passw|credential|api-?_?key|access-?_?key|session)[\w.-]*"
    r"|x-(amz|goog|ms)-[\w-]+|auth\w*|oauth_\w+|sign?|key|key-pair-id|policy|pwd|hmac|jwt|sid)="
)


def without_secrets(text: str) -> str:
    """A text without what opens doors in its addresses: user and password, and tokens, keys and signatures of queries.
    Everything that is printed, logged, shown on a page or published passes through here.

    >>> without_secrets("https://h/a.jpg?w=9&Token=abc&x=1"), without_secrets("http://u:p@h/a?X-Amz-Signature=1#b")
    ('https://h/a.jpg?w=9&x=1', 'http://…@h/a#b')
    """
    return _QUERY.sub(_without_tokens, re.sub(r"//[^/@\s]*@", "//…@", text))


def _without_tokens(query: re.Match[str]) -> str:
    pairs = re.split("[&;]", query[2])
    harmless = [pair for pair in pairs if not _TOKEN.match(unquote(pair))]
    return query[0] if harmless == pairs else f"{query[1]}{'&'.join(harmless)}" if harmless else ""
