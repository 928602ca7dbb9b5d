//! A data file of a report, in either format.

use super::columns::{Column, Value};
use super::config::Format;
use super::csv::{self, Csv};
use super::parquet::{self, Parquet};
use crate::error::{S3Code, S3Error};

/// Bytes from which on a file is closed and another one begun: as many, and a row group, are in memory.
const FILE_BYTES: usize = 8 << 20;

/// A file that is being written, in memory.
pub(super) enum DataFile {
    Csv(Csv),
    Parquet(Box<Parquet>),
}

/// Writing into memory does not fail.
fn failed(error: impl std::fmt::Display) -> S3Error {
    tracing::error!(%error, "a data file of an inventory could not be written");
    S3Code::InternalError.into()
}

impl DataFile {
    pub(super) fn new(format: Format, columns: &[Column]) -> Result<Self, S3Error> {
        Ok(match format {
            Format::Csv => DataFile::Csv(Csv::new(columns.to_vec())),
            Format::Parquet => DataFile::Parquet(Box::new(Parquet::new(columns).map_err(failed)?)),
        })
    }

    pub(super) fn add(&mut self, row: Vec<Value>) -> Result<(), S3Error> {
        match self {
            DataFile::Csv(file) => file.add(&row).map_err(failed),
            DataFile::Parquet(file) => file.add(row).map_err(failed),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        let len = match self {
            DataFile::Csv(file) => file.len(),
            DataFile::Parquet(file) => file.len(),
        };
        len >= FILE_BYTES
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, S3Error> {
        match self {
            DataFile::Csv(file) => file.finish().map_err(failed),
            DataFile::Parquet(file) => file.finish().map_err(failed),
        }
    }
}

impl Format {
    /// The name in the manifest.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Format::Csv => "CSV",
            Format::Parquet => "Parquet",
        }
    }

    /// What names of data files end with.
    pub(super) const fn extension(self) -> &'static str {
        match self {
            Format::Csv => "csv.gz",
            Format::Parquet => "parquet",
        }
    }

    /// What the manifest says of the columns.
    pub(super) fn schema(self, columns: &[Column]) -> String {
        match self {
            Format::Csv => csv::schema(columns),
            Format::Parquet => parquet::schema(columns),
        }
    }
}
