"""Change one value of a YAML file and nothing else: comments, order and spacing stay."""

import json
from collections.abc import Sequence
from typing import Any

import yaml

from driftline.curate.core.errors import BadConfig

Path_ = Sequence[str | int]


def set_value(text: str, where: Path_, value: Any) -> str:
    """`text` with `value` at `where` (keys and positions), written as JSON, which is YAML.

    The last key may be new in its mapping, and the last position one past the end of its list. Raises BadConfig if the
    keys before it do not exist.

    >>> set_value("a: {b: 1}  # kept\\n", ["a", "b"], [2, 3])
    'a: {b: [2, 3]}  # kept\\n'
    """
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    plain = json.dumps(value, ensure_ascii=False)
    for part in where[:-1]:
        child = _child(node, part)
        if child is None:
            raise BadConfig(f"The file has no {'.'.join(map(str, where))}.", f"Looked for {part!r}.")
        node = child
    last = where[-1]
    old = _child(node, last)
    if old is not None:
        start = old.start_mark.index
        if isinstance(node, yaml.MappingNode) and not isinstance(old, yaml.ScalarNode) and not old.flow_style:
            key = next(k for k, v in node.value if v is old)  # a block is below its key, the new value beside it
            start = text.index(":", key.end_mark.index) + 1
            plain = " " + plain
        return text[:start] + plain + text[_end(old) :]
    if isinstance(node, yaml.MappingNode) and isinstance(last, str) and node.value:
        return _append(text, node, f"{last}: {plain}", node.value[0][0].start_mark.column)
    if isinstance(node, yaml.SequenceNode) and last == len(node.value):
        first = node.start_mark.column
        return _append(text, node, plain if node.flow_style else f"- {plain}", first)
    raise BadConfig(f"The file has no {'.'.join(map(str, where))}.", "Expected a list or a section there.")


def _child(node: Any, part: str | int) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((v for k, v in node.value if k.value == str(part)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def _end(node: Any) -> int:
    """End of the node's own text: a block ends with its last leaf, not at the next key."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)


def _append(text: str, node: Any, entry: str, column: int) -> str:
    if node.flow_style:
        close = node.end_mark.index - 1
        comma = ", " if node.value else ""
        body = text[:close].rstrip()
        return body.rstrip(",") + comma + entry + text[close:]
    end = _end(node)
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    return text[:line_end] + "\n" + " " * column + entry + text[line_end:]
