//! A document that configures a bucket or the site.

use gabion_types::Seq;
use minicbor::{Decode, Encode};

use super::{Home, row};

/// A document, under its bucket (or the site) and its name.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ConfigRow {
    /// The commit that wrote it.
    #[n(0)]
    pub seq: Seq,
    /// The mutation record that wrote it.
    #[n(1)]
    pub home: Home,
    /// The document, as the server understands it.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub document: Vec<u8>,
    /// The commit that moved it last; nothing as long as it lies where it was first written. Of two records of one row
    /// with the same `seq`, that of the later move counts.
    #[n(3)]
    pub moved: Option<Seq>,
}

row!(ConfigRow, "config", version 1);
