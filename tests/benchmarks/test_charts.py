"""The charts show the numbers of the raw tables."""

from xml.etree import ElementTree

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.charts import CHARTS, DOCS, Chart, Value, draw, values

TABLE = """\
.. list-table::

    * - scene
      - figure
      - broker
      - median
    * - 1 to 1 & more
      - deliveries/s
      - fleximq
      - 2,000
    * -
      - deliveries/s
      - redis
      - 1,000
    * -
      - deliveries/s
      - bare
      - 9,000
"""


class ChartTests(SynchronousTestCase):
    """Reading tables and drawing charts."""

    def test_values(self) -> None:
        """A row without a scene belongs to the scene above."""
        self.assertEqual(
            list(values(TABLE)),
            [
                Value("1 to 1 & more", "deliveries/s", name, n)
                for name, n in (("fleximq", 2e3), ("redis", 1e3), ("bare", 9e3))
            ],
        )

    def test_bars(self) -> None:
        """The largest bar takes the full width and others their share; plain sockets are left out."""
        drawn = draw(Chart("c.svg", "t.txt", "a < b", [("1 to 1 & more", "deliveries/s", "x & y")]), TABLE)
        bars = ElementTree.fromstring(drawn).findall(".//{*}rect")[1:]
        self.assertEqual([float(bar.attrib["width"]) for bar in bars], [410.0, 205.0])

    def test_missing(self) -> None:
        """A scene that is not in the table is an error."""
        self.assertRaises(LookupError, draw, Chart("c.svg", "t.txt", "", [("2 to 2", "deliveries/s", "x")]), TABLE)

    def test_drawn(self) -> None:
        """The files hold the current numbers, and the page shows them; ``python -m benchmarks.charts`` writes them."""
        page = (DOCS / "explanation" / "benchmarks.rst").read_text()
        for chart in CHARTS:
            table = (DOCS / "measurements" / chart.table).read_text()
            self.assertEqual((DOCS / "pictures" / chart.name).read_text(), draw(chart, table))
            self.assertIn(f".. image:: /pictures/{chart.name}\n", page)
