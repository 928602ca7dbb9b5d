//! `gabion.json`: what makes a directory a member of a deployment, and who the other members are. Pure.
//!
//! The list of members has an *epoch* that grows with every change. A change is written to all targets that are there; of the
//! lists that a start finds, the one with the highest epoch counts.
//!
//! The list says of each member which epoch its own file is known to have had (*seen*). A target whose file has an older one is an old
//! image of itself: *stale* (docs/adr/0010). One that was merely away is not: its file is what it was when it was seen last.
//!
//! And it says which targets left and are *lost*: some of their shards may not be built anew yet. Of all others that left nothing is missing.

use std::collections::BTreeSet;

use gabion_erasure::crc64;
use gabion_types::{DeploymentId, Geometry, TargetId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Name of the file on every target.
pub(crate) const MEMBERSHIP_FILE: &str = "gabion.json";
/// Longest file that is read, in bytes.
pub(crate) const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;
/// Version that is written.
const FORMAT_VERSION: u32 = 4;
/// Version in which the list did not say which targets are lost.
const FORMAT_VERSION_LOSSES_UNTOLD: u32 = 3;
/// Version in which the list did not say what was seen of its members.
const FORMAT_VERSION_UNSEEN: u32 = 2;
/// Version without an epoch, in which members were only ids.
const FORMAT_VERSION_IDS: u32 = 1;

/// A target's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) deployment: DeploymentId,
    pub(crate) target: TargetId,
    /// Geometry that the deployment was formatted for.
    pub(crate) geometry: Geometry,
    /// Grows with every change of the members; 0 in files of version 1.
    pub(crate) epoch: u64,
    /// All targets of the deployment.
    pub(crate) members: Vec<Member>,
    /// Targets that left, and of whose shards some may stand nowhere else yet. Nothing where that is not recorded, as in older versions: then any target
    /// that left may be one.
    pub(crate) lost: Option<BTreeSet<TargetId>>,
}

/// A target of the deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: TargetId,
    /// Label of its failure domain.
    pub(crate) failure_domain: String,
    /// Its directory when it became a member; empty if that is not known.
    pub(crate) name: String,
    /// No new segments go there, and its shards are moved away.
    pub(crate) draining: bool,
    /// The member whose shards it is to take; `NONE` in most.
    pub(crate) replaces: TargetId,
    /// Epoch that its own file durably had before this list was written; 0 if that is not known.
    pub(crate) seen: u64,
}

impl Member {
    /// A member that takes part in everything.
    pub(crate) fn new(id: TargetId, failure_domain: String, name: String) -> Self {
        Self { id, failure_domain, name, draining: false, replaces: TargetId::NONE, seen: 0 }
    }
}

/// The file, field by field; `crc64` is that of the same JSON with an empty `crc64`.
#[derive(Serialize, Deserialize)]
struct File {
    format_version: u32,
    deployment: String,
    target: String,
    geometry: String,
    epoch: u64,
    members: Vec<FileMember>,
    /// Not before version 4, and not where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<String>>,
    crc64: String,
}

#[derive(Serialize, Deserialize)]
struct FileMember {
    id: String,
    failure_domain: String,
    name: String,
    draining: bool,
    replaces: String,
    /// Not in version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
}

/// The file in version 1.
#[derive(Serialize, Deserialize)]
struct FileOfIds {
    format_version: u32,
    deployment: String,
    target: String,
    failure_domain: String,
    geometry: String,
    members: Vec<String>,
    crc64: String,
}

#[derive(Deserialize)]
struct AnyVersion {
    format_version: u32,
}

/// A version of the file, which holds its own checksum.
trait Checked: Serialize + DeserializeOwned {
    fn crc64(&mut self) -> &mut String;

    fn checksum(&self) -> String {
        let bytes = serde_json::to_vec(self).expect("strings and numbers are JSON");
        format!("{:016x}", crc64(&bytes))
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut file: Self = serde_json::from_slice(bytes).map_err(text)?;
        let found = std::mem::take(file.crc64());
        if file.checksum() != found {
            return Err("its checksum does not fit: it was changed or damaged".to_owned());
        }
        Ok(file)
    }
}

impl Checked for File {
    fn crc64(&mut self) -> &mut String {
        &mut self.crc64
    }
}

impl Checked for FileOfIds {
    fn crc64(&mut self) -> &mut String {
        &mut self.crc64
    }
}

impl Membership {
    /// This target's entry in the list.
    pub(crate) fn own(&self) -> &Member {
        self.member(self.target).expect("a membership names its own target")
    }

    /// Whether the target that this was found on is an old image of itself, by a list that is at least as new.
    pub(crate) fn is_stale(&self, newest: &Self) -> bool {
        newest.member(self.target).is_some_and(|member| self.epoch < member.seen)
    }

    /// The list that counts: that of the highest epoch. Should a change that failed have left two of one epoch, the one on more targets; and then it is not
    /// known who is lost, since a process that the other list counted for may have been at work.
    pub(crate) fn newest(found: &[&Self]) -> Option<Self> {
        let copies = |this: &Self| found.iter().filter(|other| this.says_what(other)).count();
        let mut newest = (*found.iter().rev().max_by_key(|this| (this.epoch, copies(this)))?).clone();
        if found.iter().any(|other| other.epoch == newest.epoch && !other.says_what(&newest)) {
            newest.lost = None;
        }
        if newest.epoch == 0 {
            // Version 1 names only its own failure domain.
            for entry in &mut newest.members {
                if let Some(own) = found.iter().find(|this| this.target == entry.id) {
                    entry.failure_domain.clone_from(&own.own().failure_domain);
                }
            }
        }
        Some(newest)
    }

    /// Whether two lists say the same, on whichever targets they were found.
    pub(crate) fn says_what(&self, other: &Self) -> bool {
        (self.epoch, &self.members, &self.lost) == (other.epoch, &other.members, &other.lost)
    }

    /// The entry of a target.
    pub(crate) fn member(&self, id: TargetId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let member = |member: &Member| FileMember {
            id: member.id.to_string(),
            failure_domain: member.failure_domain.clone(),
            name: member.name.clone(),
            draining: member.draining,
            replaces: if member.replaces == TargetId::NONE { String::new() } else { member.replaces.to_string() },
            seen: Some(member.seen),
        };
        let mut file = File {
            format_version: FORMAT_VERSION,
            deployment: self.deployment.to_string(),
            target: self.target.to_string(),
            geometry: self.geometry.to_string(),
            epoch: self.epoch,
            members: self.members.iter().map(member).collect(),
            lost: self.lost.as_ref().map(|lost| lost.iter().map(ToString::to_string).collect()),
            crc64: String::new(),
        };
        file.crc64 = file.checksum();
        let mut bytes = serde_json::to_vec_pretty(&file).expect("strings and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file, of this version or an older one.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let AnyVersion { format_version } = serde_json::from_slice(bytes).map_err(text)?;
        let this = match format_version {
            FORMAT_VERSION | FORMAT_VERSION_LOSSES_UNTOLD | FORMAT_VERSION_UNSEEN => {
                Self::from_file(File::read(bytes)?)?
            }
            FORMAT_VERSION_IDS => Self::from_file_of_ids(FileOfIds::read(bytes)?)?,
            _ => return Err(format!("format version {format_version} is not known to this program")),
        };
        if this.member(this.target).is_none() {
            return Err("it does not name its own target among the members".to_owned());
        }
        Ok(this)
    }

    fn from_file(file: File) -> Result<Self, String> {
        let member = |member: FileMember| -> Result<Member, String> {
            let replaces = member.replaces;
            Ok(Member {
                id: member.id.parse().map_err(text)?,
                failure_domain: member.failure_domain,
                name: member.name,
                draining: member.draining,
                replaces: if replaces.is_empty() { TargetId::NONE } else { replaces.parse().map_err(text)? },
                seen: member.seen.unwrap_or(0),
            })
        };
        Ok(Self {
            deployment: file.deployment.parse().map_err(text)?,
            target: file.target.parse().map_err(text)?,
            geometry: file.geometry.parse().map_err(text)?,
            epoch: file.epoch,
            members: file.members.into_iter().map(member).collect::<Result<_, _>>()?,
            lost: file
                .lost
                .map(|lost| lost.iter().map(|id| id.parse()).collect::<Result<_, _>>())
                .transpose()
                .map_err(text)?,
        })
    }

    fn from_file_of_ids(file: FileOfIds) -> Result<Self, String> {
        let target: TargetId = file.target.parse().map_err(text)?;
        let member = |id: &String| -> Result<Member, String> {
            let id = id.parse().map_err(text)?;
            let failure_domain = if id == target { file.failure_domain.clone() } else { String::new() };
            Ok(Member::new(id, failure_domain, String::new()))
        };
        Ok(Self {
            deployment: file.deployment.parse().map_err(text)?,
            target,
            geometry: file.geometry.parse().map_err(text)?,
            epoch: 0,
            members: file.members.iter().map(member).collect::<Result<_, _>>()?,
            lost: None,
        })
    }
}

/// The file, with the checksum put right: what a fuzzer can not do.
#[cfg(feature = "fuzzing")]
pub(crate) fn with_checksum(bytes: &[u8]) -> Option<Vec<u8>> {
    fn put_right<F: Checked>(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut file: F = serde_json::from_slice(bytes).ok()?;
        file.crc64().clear();
        *file.crc64() = file.checksum();
        serde_json::to_vec(&file).ok()
    }
    put_right::<File>(bytes).or_else(|| put_right::<FileOfIds>(bytes))
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership() -> Membership {
        let member = |id| Member::new(TargetId::from_u128(id), "rack \"2\"".to_owned(), format!("/mnt/{id}"));
        let mut members: Vec<Member> = (2..8).map(member).collect();
        members[2].draining = true;
        members[3].replaces = members[2].id;
        members[1].seen = 6;
        Membership {
            deployment: DeploymentId::from_u128(1),
            target: TargetId::from_u128(3),
            geometry: "4+2".parse().unwrap(),
            epoch: 7,
            members,
            lost: Some([TargetId::from_u128(98), TargetId::from_u128(99)].into()),
        }
    }

    /// The file as an older version wrote it.
    fn of_version(version: u32, membership: &Membership) -> Vec<u8> {
        let mut file: File = serde_json::from_slice(&membership.encode()).unwrap();
        file.format_version = version;
        if version < FORMAT_VERSION_LOSSES_UNTOLD {
            file.members.iter_mut().for_each(|member| member.seen = None);
        }
        file.crc64.clear();
        file.crc64 = file.checksum();
        serde_json::to_vec_pretty(&file).unwrap()
    }

    #[test]
    fn round_trips() {
        for lost in [membership().lost, Some(BTreeSet::new()), None] {
            let membership = Membership { lost, ..membership() };
            assert_eq!(Membership::decode(&membership.encode()), Ok(membership));
        }
    }

    #[test]
    fn refuses_what_was_changed() {
        let text = String::from_utf8(membership().encode()).unwrap();
        for (from, to) in [
            ("rack", "rock"),
            ("4+2", "4+1"),
            ("\"epoch\": 7", "\"epoch\": 8"),
            ("\"format_version\": 4", "\"format_version\": 5"),
            ("\"format_version\": 4", "\"format_version\": 3"),
            ("0063\"", "0064\""),
            ("\"seen\": 6", "\"seen\": 5"),
            ("\"draining\": true", "\"draining\": false"),
            ("{", ""),
        ] {
            assert!(Membership::decode(text.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
    }

    #[test]
    fn a_target_is_stale_if_its_list_is_older_than_one_that_it_had() {
        let newest = membership();
        let found = |target, epoch| Membership { target, epoch, ..newest.clone() };
        let (seen, unseen) = (newest.members[1].id, newest.members[2].id);
        assert_eq!([5, 6, 7].map(|epoch| found(seen, epoch).is_stale(&newest)), [true, false, false]);
        assert!(!found(unseen, 1).is_stale(&newest));
        assert!(!found(TargetId::from_u128(99), 1).is_stale(&newest));
    }

    #[test]
    fn of_two_lists_of_one_epoch_neither_tells_who_is_lost() {
        let newer = membership();
        let older = Membership { epoch: 6, lost: Some(BTreeSet::new()), ..membership() };
        assert_eq!(Membership::newest(&[&older, &newer, &older]), Some(newer.clone()));
        let mut other = newer.clone();
        other.members.pop();
        let found = Membership::newest(&[&other, &newer, &newer, &older]).unwrap();
        assert_eq!(found, Membership { lost: None, ..newer.clone() });
        let cleared = Membership { lost: Some(BTreeSet::new()), ..newer.clone() };
        assert_eq!(Membership::newest(&[&cleared, &newer]).unwrap().lost, None);
        assert_eq!(Membership::newest(&[]), None);
    }

    #[test]
    fn reads_the_version_before_what_was_seen() {
        let mut expected = membership();
        expected.members[1].seen = 0;
        expected.lost = None;
        assert_eq!(Membership::decode(&of_version(2, &expected)), Ok(expected));
    }

    #[test]
    fn reads_the_version_before_losses() {
        let expected = Membership { lost: None, ..membership() };
        assert_eq!(Membership::decode(&of_version(3, &expected)), Ok(expected));
    }

    #[test]
    fn reads_the_version_before_epochs() {
        let mut file = FileOfIds {
            format_version: 1,
            deployment: DeploymentId::from_u128(1).to_string(),
            target: TargetId::from_u128(3).to_string(),
            failure_domain: "rack".to_owned(),
            geometry: "1+1".to_owned(),
            members: vec![TargetId::from_u128(3).to_string(), TargetId::from_u128(4).to_string()],
            crc64: String::new(),
        };
        file.crc64 = file.checksum();
        let read = Membership::decode(&serde_json::to_vec_pretty(&file).unwrap()).unwrap();
        assert_eq!((read.epoch, read.own().failure_domain.as_str(), read.members.len()), (0, "rack", 2));
        file.members.pop();
        assert!(Membership::decode(&serde_json::to_vec(&file).unwrap()).is_err());
    }
}
