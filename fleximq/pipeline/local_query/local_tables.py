"""The tables that a query can name: each topic by its own name, ``messages`` for all, those of a lake, which hide
topics of the same name, and those that the query defines, which hide both.
"""

from collections.abc import Callable, Mapping

import pyarrow.dataset as ds

from fleximq.pipeline.files.selection import Topics
from fleximq.pipeline.lake.storage.lake_files import FILES
from fleximq.pipeline.lake.table.file_names import isFileName, tableNames
from fleximq.pipeline.local_query.journal_dataset import JournalDataset
from fleximq.pipeline.local_query.local_journals import LocalJournals
from fleximq.pipeline.payloads.ddl import parsed
from fleximq.pipeline.payloads.decoder import STRUCTURED
from fleximq.pipeline.payloads.schema_formats import REGISTRY, formatIn
from fleximq.pipeline.query.query_tables import QueryTable
from fleximq.pipeline.query.table_names import ALL, noColumns, noTable, noTopic, noTwins
from fleximq.pipeline.reader.decoded_columns import Decoding


class LocalTables:
    """The tables of journals, of a lake's folder, or of both, and ``own`` ones of the query. ``decode``, the name of a
    format with perhaps the file of a schema, and ``schema``, in DDL, are for payloads of tables without a format;
    ``notice`` is called with a sentence about a long query. Raises OptionRefused for a format that cannot be used.
    """

    def __init__(
        self,
        journals: LocalJournals | None,
        lake: str | None,
        decode: str | None,
        schema: str | None,
        notice: Callable[[str], object],
        own: Mapping[str, QueryTable],
    ) -> None:
        self._journals = journals
        self._lake = lake
        self._own = own
        self._format = None if decode is None else formatIn(decode)
        self._fields = None if schema is None else parsed(schema)
        self._notice = notice

    def isTable(self, name: str) -> bool:
        """Tell whether there is a table of this name."""
        if name in self._own or self._isOfLake(name):
            return True
        return self._journals is not None and (name == ALL or self._journals.has(name))

    def _isOfLake(self, name: str) -> bool:
        isLake = self._lake is not None and name not in self._own
        return isLake and isFileName(name) and FILES.isTable(f"{self._lake}/{name}")

    def open(self, name: str, query: str) -> ds.Dataset:
        """Return the table of this name; raises OptionRefused if there is none, LakeRefused and JournalError."""
        if self._isOfLake(name):
            from fleximq.pipeline.local_query.lake_dataset import lakeDataset

            return lakeDataset(f"{self._lake}/{name}")
        journals = self._journals
        if journals is None:
            raise noTable(name, str(self._lake), [*self._own, *tableNames(self._lake)])
        topics, form, fields = Topics(), self._format, self._fields
        if own := self._own.get(name):
            topics = own.spec.wanted
            if own.format is not None:
                form, fields = (own.spec.decode, own.spec.definition), None
        elif name != ALL:
            if not journals.has(name):
                raise noTopic(name, [*self._own, *tableNames(self._lake), *journals.topics()])
            noTwins(name, query, journals.has)
            topics = Topics(names=frozenset([name]))
        if form is None:
            return JournalDataset(journals, topics, None, self._notice)
        decode, definition = form
        if fields is None and decode in (*STRUCTURED, REGISTRY):
            fields = journals.inferred(decode, topics, definition)
            if not fields.names:
                raise noColumns(None if name == ALL else name, decode)
        decoding = Decoding(decode, fields, definition=definition)
        decoding.decoder()  # raises OptionRefused for a schema that does not suit the format
        return JournalDataset(journals, topics, decoding, self._notice)
