"""Results as text: for the eye, and as a page for the documentation."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.results import Results, Row

_HEAD = ("scene", "figure", "broker", "median", "min", "max", "ours/it", "pairwise", "goal", "met")


def plain(results: Sequence[Results], head: Mapping[str, str]) -> str:
    """Return aligned columns, one line for each broker and figure, with the machine above and refusals below."""
    lines = [_HEAD, *(line for each in results for line in _lines(each))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = [f"{key}: {value}" for key, value in head.items()] + [""]
    for line in lines:
        cells = [cell.rjust(width) if 2 < place < 8 else cell.ljust(width)
                 for place, (cell, width) in enumerate(zip(line, widths, strict=True))]  # fmt: skip
        text.append("  ".join(cells).rstrip())
    return "\n".join([*text, *_refusals(results), ""])


def page(results: Sequence[Results], head: Mapping[str, str], by: str = "benchmarks.side_by_side --rst") -> str:
    """Return the same in reStructuredText.

    :param by: the module and its options that were run.
    """
    text = ["..", f"    Written by python -m {by}.", ""]
    text += [f":{key}: {value}" for key, value in head.items()]
    text += ["", ".. list-table::", "    :header-rows: 1", "    :class: measured", ""]
    for line in [_HEAD, *(line for each in results for line in _lines(each))]:
        text += [f"    {'* -' if not place else '  -'} {cell}".rstrip() for place, cell in enumerate(line)]
    return "\n".join([*text, "", *(f"{line}\n" for line in _refusals(results))])


def _lines(results: Results) -> Iterator[tuple[str, ...]]:
    told = None
    for row in results.rows():
        scene = "" if told == row.scene else row.title
        told = row.scene
        yield (
            scene, row.figure, row.broker, number(row.median), number(row.least), number(row.most),
            _ratio(row.ratio), _ratio(row.pairwise), row.goal, _met(row),
        )  # fmt: skip


def _refusals(results: Sequence[Results]) -> list[str]:
    return [
        f"Refused, so without numbers: {each.scene.title}, {broker}: {reason}"
        for each in results
        for broker, reason in each.refused.items()
    ]


def number(value: float) -> str:
    """Return a number with as many digits as mean something."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _met(row: Row) -> str:
    return "" if row.share is None else "yes" if row.share >= 1 else f"no, {row.share:.2f}"
