//! The operations of S3, one or one tight family per file: own request, own response, the rules that are S3's and not the
//! store's. Knows no HTTP and no XML: [`crate::s3`] adapts both ways, and so may a faster front for some of them.

pub(crate) mod bucket;
pub(crate) mod checksums;
pub(crate) mod copy_object;
pub(crate) mod create_bucket;
pub(crate) mod delete_object;
pub(crate) mod get_object;
pub(crate) mod list_buckets;
pub(crate) mod list_objects;
pub(crate) mod list_parts;
pub(crate) mod list_uploads;
pub(crate) mod object_attributes;
pub(crate) mod put_object;
pub(crate) mod token;
pub(crate) mod upload;
pub(crate) mod upload_part;

use std::sync::Arc;

use gabion_platform::Clock;
use gabion_store::{Encrypt, Store};
use gabion_types::limits::PART_NUMBER_MAX;
use tokio_util::task::TaskTracker;

use crate::access::Ownership;
use crate::credentials::{AccountName, CredentialStore};
use crate::documents::DocumentMemory;
use crate::error::S3Error;
use crate::inventory::Changes;
use crate::notifications::Notifier;
use crate::s3::Deliveries;

/// What operations run on.
pub(crate) struct Ops {
    pub(crate) store: Store,
    /// The region of this server.
    pub(crate) region: String,
    pub(crate) clock: Arc<dyn Clock>,
    /// Logs of buckets on their way.
    pub(crate) logs: Deliveries,
    /// Buckets whose inventories were configured just now.
    pub(crate) inventories: Changes,
    /// Tells of what happens to objects.
    pub(crate) notifier: Notifier,
    /// Memory for documents on their way.
    pub(crate) documents: DocumentMemory,
    /// Accounts and who asks for them.
    pub(crate) credentials: Arc<dyn CredentialStore>,
    /// How objects are encrypted of which neither request nor bucket says anything.
    pub(crate) default_encryption: Option<Encrypt>,
    /// Whose objects are in buckets that do not say.
    pub(crate) object_ownership: Ownership,
    /// What goes on to its end though nobody may wait for it any more.
    pub(crate) apart: TaskTracker,
}

impl Ops {
    /// The id of the account with this canonical id.
    pub(crate) fn account_id(&self, canonical_id: &str) -> Option<String> {
        self.credentials.account(AccountName::CanonicalId(canonical_id)).map(|account| account.id.clone())
    }
}

/// A part number of a request: 1 to 10 000.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn part_number(value: &str) -> Result<u16, S3Error> {
    match value.parse() {
        Ok(number @ 1..=PART_NUMBER_MAX) => Ok(number),
        _ => {
            Err(S3Error::argument("partNumber", value, "Part number must be an integer between 1 and 10000, inclusive"))
        }
    }
}
