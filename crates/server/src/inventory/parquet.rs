//! Data files in Parquet, written column by column: rows are gathered until there are enough of them for a row group.

use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::columns::{Column, Kind, Value};

/// Bytes of values from which on a row group is written.
const GROUP_BYTES: usize = 4 << 20;

/// A file that is being written.
pub(super) struct Parquet {
    writer: SerializedFileWriter<Vec<u8>>,
    cells: Vec<Cells>,
    gathered_bytes: usize,
}

/// What was gathered of a column.
struct Cells {
    values: Values,
    /// Of a column that need not have values, for each row 1 if there is one.
    levels: Option<Vec<i16>>,
}

enum Values {
    Texts(Vec<ByteArray>),
    Flags(Vec<bool>),
    Numbers(Vec<i64>),
}

impl Cells {
    fn of(column: Column) -> Self {
        let values = match column.kind() {
            Kind::Text => Values::Texts(Vec::new()),
            Kind::Flag => Values::Flags(Vec::new()),
            Kind::Number | Kind::Moment => Values::Numbers(Vec::new()),
        };
        Self { values, levels: (!column.is_required()).then(Vec::new) }
    }

    /// Takes a value of the column's kind; gives about how many bytes it has.
    fn add(&mut self, value: Value) -> usize {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (is_there, bytes) = match (&mut self.values, value) {
            (Values::Texts(texts), Value::Text(text)) => {
                let bytes = text.len() + size_of::<ByteArray>();
                texts.push(ByteArray::from(text.into_bytes()));
                (1, bytes)
            }
            (Values::Flags(flags), Value::Flag(flag)) => {
                flags.push(flag);
                (1, 1)
            }
            (Values::Numbers(numbers), Value::Number(value) | Value::Moment(value)) => {
                numbers.push(number(value));
                (1, size_of::<i64>())
            }
            // Nothing; a column has values of one kind only.
            _ => (0, 0),
        };
        if let Some(levels) = &mut self.levels {
            levels.push(is_there);
        }
        bytes + size_of::<i16>()
    }
}

fn write<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.write_batch(values, levels, None).map(drop)
}

impl Parquet {
    pub(super) fn new(columns: &[Column]) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(&schema(columns))?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::GZIP(parquet::basic::GzipLevel::default()))
            .set_created_by(concat!("gabion ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        Ok(Self { writer, cells: columns.iter().map(|column| Cells::of(*column)).collect(), gathered_bytes: 0 })
    }

    pub(super) fn add(&mut self, row: Vec<Value>) -> Result<(), ParquetError> {
        for (cells, value) in self.cells.iter_mut().zip(row) {
            self.gathered_bytes += cells.add(value);
        }
        if self.gathered_bytes >= GROUP_BYTES { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.gathered_bytes == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for cells in &mut self.cells {
            let Some(mut column) = group.next_column()? else { break };
            let levels = cells.levels.as_deref();
            match &mut cells.values {
                Values::Texts(texts) => {
                    write(column.typed::<ByteArrayType>(), texts, levels)?;
                    texts.clear();
                }
                Values::Flags(flags) => {
                    write(column.typed::<BoolType>(), flags, levels)?;
                    flags.clear();
                }
                Values::Numbers(numbers) => {
                    write(column.typed::<Int64Type>(), numbers, levels)?;
                    numbers.clear();
                }
            }
            column.close()?;
            if let Some(levels) = &mut cells.levels {
                levels.clear();
            }
        }
        group.close()?;
        self.gathered_bytes = 0;
        Ok(())
    }

    /// Bytes that it has, without the rows of the last group.
    pub(super) fn len(&self) -> usize {
        self.writer.bytes_written()
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, ParquetError> {
        self.write_group()?;
        self.writer.into_inner()
    }
}

/// `fileSchema` of the manifest, which is that of the files.
pub(super) fn schema(columns: &[Column]) -> String {
    let fields = columns.iter().map(|column| {
        let repetition = if column.is_required() { "required" } else { "optional" };
        let name = column.parquet_name();
        match column.kind() {
            Kind::Text => format!("{repetition} binary {name} (UTF8);"),
            Kind::Flag => format!("{repetition} boolean {name};"),
            Kind::Number => format!("{repetition} int64 {name};"),
            Kind::Moment => format!("{repetition} int64 {name} (TIMESTAMP_MILLIS);"),
        }
    });
    format!("message s3.inventory {{ {} }}", fields.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::inventory::columns::tests::{listed, version};

    #[test]
    fn rows_are_read_back() {
        let columns = Column::of(true, &[Column::Size, Column::LastModifiedDate, Column::ObjectLockMode]);
        let mut file = Parquet::new(&columns).unwrap();
        let rows = 60_000;
        for number in 0..rows {
            let mut version = version(&format!("key/ü {number:08}"), number);
            version.is_marker = number % 3 == 0;
            file.add(columns.iter().map(|column| listed().value(*column, &version)).collect()).unwrap();
        }
        let reader = SerializedFileReader::new(Bytes::from(file.finish().unwrap())).unwrap();
        assert!(reader.num_row_groups() > 1, "memory is bounded");
        let mut number = 0;
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            assert_eq!(row.get_string(0).unwrap(), "bkt");
            assert_eq!(row.get_string(1).unwrap(), &format!("key/ü {number:08}"));
            assert_eq!(row.get_bool(4).unwrap(), number % 3 == 0);
            assert_eq!(row.get_long(5).ok(), (number % 3 != 0).then_some(number as i64), "a marker has no size");
            assert_eq!(row.get_timestamp_millis(6).unwrap(), 1_445_412_480_000);
            assert!(row.get_string(7).is_err(), "nothing is said");
            number += 1;
        }
        assert_eq!(number, rows);
    }

    #[test]
    fn a_file_without_rows_is_one() {
        let columns = Column::of(false, &[]);
        let bytes = Parquet::new(&columns).unwrap().finish().unwrap();
        let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
        assert_eq!((reader.metadata().file_metadata().num_rows(), reader.num_row_groups()), (0, 0));
        assert_eq!(
            schema(&columns),
            "message s3.inventory { required binary bucket (UTF8); required binary key (UTF8); }"
        );
    }
}
