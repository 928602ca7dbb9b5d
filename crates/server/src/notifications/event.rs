//! The names of events, and sets of them.
//!
//! Source: AWS, "Supported event types for SQS, SNS, and Lambda".

/// Every event that a bucket may be told to notify of: first those that occur here, in the order of [`EventName`], then those that AWS knows and that
/// never occur here, as there is nothing to replicate, to restore, or to move between classes.
const NAMES: [&str; 21] = [
    "s3:ObjectCreated:Put",
    "s3:ObjectCreated:Post",
    "s3:ObjectCreated:Copy",
    "s3:ObjectCreated:CompleteMultipartUpload",
    "s3:ObjectRemoved:Delete",
    "s3:ObjectRemoved:DeleteMarkerCreated",
    "s3:ObjectTagging:Put",
    "s3:ObjectTagging:Delete",
    "s3:ObjectAcl:Put",
    "s3:LifecycleExpiration:Delete",
    "s3:LifecycleExpiration:DeleteMarkerCreated",
    "s3:ObjectRestore:Post",
    "s3:ObjectRestore:Completed",
    "s3:ObjectRestore:Delete",
    "s3:Replication:OperationFailedReplication",
    "s3:Replication:OperationMissedThreshold",
    "s3:Replication:OperationReplicatedAfterThreshold",
    "s3:Replication:OperationNotTracked",
    "s3:LifecycleTransition",
    "s3:IntelligentTiering",
    "s3:ReducedRedundancyLostObject",
];

/// An event that occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventName {
    CreatedPut,
    CreatedPost,
    CreatedCopy,
    CreatedMultipart,
    RemovedDelete,
    RemovedMarker,
    TaggingPut,
    TaggingDelete,
    AclPut,
    ExpiredDelete,
    ExpiredMarker,
}

impl EventName {
    /// As a record has it: without `s3:`.
    pub(super) fn in_record(self) -> &'static str {
        NAMES[self as usize].trim_start_matches("s3:")
    }

    /// The version of the record's format: AWS counts it up for the events that came later.
    pub(super) fn record_version(self) -> &'static str {
        use EventName::{AclPut, ExpiredDelete, ExpiredMarker, TaggingDelete, TaggingPut};
        match self {
            AclPut | ExpiredDelete | ExpiredMarker | TaggingDelete | TaggingPut => "2.3",
            _ => "2.1",
        }
    }
}

/// Events that somebody wants to be told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventSet(u32);

impl EventSet {
    /// These.
    pub(crate) fn of(events: &[EventName]) -> Self {
        Self(events.iter().fold(0, |set, event| set | 1 << *event as u32))
    }

    /// Reads the name of an event, or of all of a kind (`s3:ObjectCreated:*`); nothing for one that AWS does not know.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let is_meant = |known: &str| match name.strip_suffix('*') {
            // An asterisk stands for the last word alone.
            Some(kind) => {
                kind.ends_with(':') && known.rsplit_once(':').is_some_and(|(of, _)| of == &kind[..kind.len() - 1])
            }
            None => known == name,
        };
        let bits = NAMES.iter().enumerate().filter(|(_, known)| is_meant(known)).fold(0, |set, (at, _)| set | 1 << at);
        // `s3:*` is no event: what has no kind can only be named.
        (bits != 0 && name != "s3:*").then_some(Self(bits))
    }

    pub(super) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn has(self, event: EventName) -> bool {
        self.overlaps(Self::of(&[event]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_aws() {
        for (event, name) in [
            (EventName::CreatedPut, "s3:ObjectCreated:Put"),
            (EventName::CreatedMultipart, "s3:ObjectCreated:CompleteMultipartUpload"),
            (EventName::RemovedMarker, "s3:ObjectRemoved:DeleteMarkerCreated"),
            (EventName::AclPut, "s3:ObjectAcl:Put"),
            (EventName::ExpiredMarker, "s3:LifecycleExpiration:DeleteMarkerCreated"),
        ] {
            assert_eq!(EventSet::parse(name), Some(EventSet::of(&[event])), "{name}");
            assert_eq!(event.in_record(), &name[3..]);
        }
    }

    #[test]
    fn an_asterisk_stands_for_all_of_a_kind() {
        use EventName::{CreatedCopy, CreatedMultipart, CreatedPost, CreatedPut};
        let created = EventSet::parse("s3:ObjectCreated:*").unwrap();
        assert_eq!(created, EventSet::of(&[CreatedPut, CreatedPost, CreatedCopy, CreatedMultipart]));
        assert!(!created.has(EventName::RemovedDelete));
        for name in ["s3:ObjectRestore:*", "s3:Replication:*", "s3:ObjectAcl:*", "s3:LifecycleTransition"] {
            assert!(EventSet::parse(name).is_some(), "{name}");
        }
        for name in [
            "",
            "*",
            "s3:*",
            "s3:ObjectCreated",
            "s3:ObjectCreated:P*",
            "s3:objectcreated:put",
            "s3:TestEvent",
            "s3:ObjectAccessed:*",
        ] {
            assert_eq!(EventSet::parse(name), None, "{name}");
        }
    }
}
