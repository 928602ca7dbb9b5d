//! What lies on a simulated medium at one moment.

use std::collections::{BTreeMap, BTreeSet};

use super::content::Content;

/// Directories and files with what was synced of them; the default is an empty medium.
#[derive(Debug, Clone, Default)]
pub struct DiskImage {
    pub(super) dirs: BTreeSet<String>,
    pub(super) files: BTreeMap<String, Content>,
}
