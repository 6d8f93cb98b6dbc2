"""The tables that a query can name: each topic by its own name, ``messages`` for all, and those of a lake, which hide
topics of the same name.
"""

from collections.abc import Callable

import pyarrow.dataset as ds

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.table.file_names import isFileName
from fleximq.pipeline.local_query.journal_dataset import JournalDataset
from fleximq.pipeline.local_query.local_journals import LocalJournals
from fleximq.pipeline.payloads.ddl import parsed
from fleximq.pipeline.payloads.decoder import STRUCTURED
from fleximq.pipeline.query.table_names import ALL, noColumns, noTopic, noTwins
from fleximq.pipeline.reader.decoded_columns import Decoding


class LocalTables:
    """The tables of journals, of a lake's folder, or of both. ``decode`` and ``schema``, in DDL, are for payloads;
    ``notice`` is called with a sentence about a long query.
    """

    def __init__(
        self,
        journals: LocalJournals | None,
        lake: str | None,
        decode: str | None,
        schema: str | None,
        notice: Callable[[str], object],
    ) -> None:
        self._journals = journals
        self._lake = lake
        self._decode = decode
        self._fields = None if schema is None else parsed(schema)
        self._notice = notice

    def isTable(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        return self._isOfLake(name) or (self._journals is not None and (name == ALL or self._journals.has(name)))

    def _isOfLake(self, name: str) -> bool:
        return self._lake is not None and isFileName(name) and FILES.isTable(f"{self._lake}/{name}")

    def open(self, name: str, query: str) -> ds.Dataset:
        """Return the table of this name; raises OptionRefused if there is none, LakeRefused and JournalError."""
        if self._isOfLake(name):
            from fleximq.pipeline.local_query.lake_dataset import lakeDataset

            return lakeDataset(f"{self._lake}/{name}")
        journals = self._journals
        if journals is None:
            raise OptionRefused(f"there is no table {name!r} in {self._lake}")
        topics = Topics()
        if name != ALL:
            if not journals.has(name):
                raise noTopic(name, journals.topics())
            noTwins(name, query, journals.has)
            topics = Topics(names=frozenset([name]))
        return JournalDataset(journals, topics, self._decoding(journals, topics, name), self._notice)

    def _decoding(self, journals: LocalJournals, topics: Topics, name: str) -> Decoding | None:
        if self._decode is None:
            return None
        fields = self._fields
        if fields is None and self._decode in STRUCTURED:
            fields = journals.inferred(self._decode, topics)
            if not fields.names:
                raise noColumns(None if name == ALL else name, self._decode)
        decoding = Decoding(self._decode, fields)
        decoding.decoder()  # raises OptionRefused for a schema that does not suit the format
        return decoding
