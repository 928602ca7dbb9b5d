//! Data files in CSV, compressed with gzip: no header, every field in quotes, keys encoded as in URLs.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::columns::{Column, Value};
use crate::s3::{date, url_encoded};

/// A file that is being written.
pub(super) struct Csv {
    gzip: GzEncoder<Vec<u8>>,
    columns: Vec<Column>,
    line: String,
}

impl Csv {
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { gzip: GzEncoder::new(Vec::new(), Compression::default()), columns, line: String::new() }
    }

    pub(super) fn add(&mut self, row: &[Value]) -> io::Result<()> {
        self.line.clear();
        for (number, (column, value)) in self.columns.iter().zip(row).enumerate() {
            if number > 0 {
                self.line.push(',');
            }
            self.line.push('"');
            match value {
                Value::Nothing => {}
                Value::Text(key) if *column == Column::Key => self.line.extend(url_encoded(key)),
                Value::Text(text) => self.line.push_str(&text.replace('"', "\"\"")),
                Value::Flag(flag) => self.line.push_str(if *flag { "true" } else { "false" }),
                Value::Number(number) => self.line.push_str(&number.to_string()),
                Value::Moment(unix_ms) => self.line.push_str(&date::iso(*unix_ms).to_string()),
            }
            self.line.push('"');
        }
        self.line.push('\n');
        self.gzip.write_all(self.line.as_bytes())
    }

    /// Bytes that it has, about.
    pub(super) fn len(&self) -> usize {
        self.gzip.get_ref().len()
    }

    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        self.gzip.finish()
    }
}

/// `fileSchema` of the manifest.
pub(super) fn schema(columns: &[Column]) -> String {
    columns.iter().map(|column| column.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::inventory::columns::tests::{listed, version};

    #[test]
    fn every_field_is_in_quotes() {
        let columns = vec![Column::Bucket, Column::Key, Column::IsLatest, Column::Size, Column::LastModifiedDate];
        let mut file = Csv::new(columns.clone());
        let version = version("a b+\"c\",ü/d\n", 5);
        let row: Vec<Value> = columns.iter().map(|column| listed().value(*column, &version)).collect();
        file.add(&row).unwrap();
        file.add(&[
            Value::Text("x\"y".into()),
            Value::Text("k".into()),
            Value::Nothing,
            Value::Nothing,
            Value::Nothing,
        ])
        .unwrap();
        let (mut text, bytes) = (String::new(), file.finish().unwrap());
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert_eq!(
            text,
            "\"bkt\",\"a%20b%2B%22c%22%2C%C3%BC/d%0A\",\"true\",\"5\",\"2015-10-21T07:28:00.000Z\"\n\
             \"x\"\"y\",\"k\",\"\",\"\",\"\"\n"
        );
        assert_eq!(schema(&columns), "Bucket, Key, IsLatest, Size, LastModifiedDate");
    }
}
