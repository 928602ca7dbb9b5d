//! Inventories: lists of the objects of a bucket, made once a day or once a week and delivered as objects to another bucket.
//!
//! `config` is what a bucket says, `columns` what is said of each object; both are pure. `csv` and `parquet` write data files, `manifest` says which
//! files make up a report and what they are called. `worker` makes the reports that are due. Source: AWS, "Cataloging and analyzing your data with
//! S3 Inventory".

mod changes;
mod columns;
mod config;
mod csv;
mod data_file;
mod manifest;
mod parquet;
pub(crate) mod worker;

pub(crate) use changes::Changes;
pub(crate) use config::{DOCUMENT_BYTES_MAX, IDS_MAX, Inventory, check_id};
pub use worker::{InventoryFigures, InventoryOptions};
