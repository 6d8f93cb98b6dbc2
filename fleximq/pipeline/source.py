"""The data source ``fleximq`` of Spark: reads journals as rows, and publishes rows as messages. Spark finds it by the
module ``pyspark_fleximq``, or else by ``spark.dataSource.register(FlexiMQSource)``.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from fleximq.pipeline.errors import OptionRefused
from fleximq.pipeline.files.schema import ALL_COLUMNS, ddlOf, schemaOf
from fleximq.pipeline.reader.batch_reader import BatchReader
from fleximq.pipeline.reader.decoded_columns import Decoding
from fleximq.pipeline.reader.journals import freezeImports
from fleximq.pipeline.reader.source_options import SourceOptions
from fleximq.pipeline.reader.stream_reader import StreamReader
from fleximq.pipeline.writer.sink import BatchSink, StreamSink

_TYPES = {field.name: from_arrow_type(field.type) for field in schemaOf(ALL_COLUMNS)}


class FlexiMQSource(DataSource):
    """``format("fleximq")``; its options are in docs/reference/pipeline.rst."""

    @classmethod
    def name(cls) -> str:
        return "fleximq"

    def schema(self) -> str:
        freezeImports()
        options = SourceOptions.of(self.options)
        return ddlOf(options.columns, options.decoding.types() if options.decoding else None)

    def reader(self, schema: StructType) -> BatchReader:
        options = SourceOptions.of(self.options)
        return BatchReader(options, columnsOf(schema, options.decoding))

    def streamReader(self, schema: StructType) -> StreamReader:
        options = SourceOptions.of(self.options)
        return StreamReader(options, columnsOf(schema, options.decoding))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        return BatchSink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        if overwrite:
            raise OptionRefused(
                "messages of a topic cannot be overwritten: write with the output mode 'append' or 'update'"
            )
        return StreamSink(self.options, schema)


def columnsOf(schema: StructType, decoding: Decoding | None = None) -> list[str]:
    """Return the columns of a schema, perhaps the user's; raises OptionRefused if the source lacks one of them."""
    made = decoding.types() if decoding else {}
    types = {**_TYPES, **{name: from_arrow_type(dataType) for name, dataType in made.items()}}
    for field in schema.fields:
        if types.get(field.name) != field.dataType:
            written = f"{field.name} of type {field.dataType.simpleString()}"
            only = ddlOf((*ALL_COLUMNS, *made), made)
            raise OptionRefused(f"the source has no column {written}, only {only}")
    return [field.name for field in schema.fields]
