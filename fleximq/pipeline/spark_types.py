"""Types of columns as Spark has them."""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_PLAIN: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.bool_(): BooleanType(),
    pa.int8(): ByteType(),
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def sparkType(type: pa.DataType) -> DataType:
    """Return the type of Spark for one that :func:`fleximq.pipeline.payloads.ddl.parsed` makes."""
    if type in _PLAIN:
        return _PLAIN[type]
    if pa.types.is_decimal(type):
        return DecimalType(type.precision, type.scale)
    if pa.types.is_list(type):
        return ArrayType(sparkType(type.value_type))
    if pa.types.is_map(type):
        return MapType(StringType(), sparkType(type.item_type))
    return StructType([StructField(field.name, sparkType(field.type)) for field in type])
