//! `gabion.json`: what makes a directory a member of a deployment. Pure.

use gabion_erasure::crc64;
use gabion_types::{DeploymentId, Geometry, TargetId};
use serde::{Deserialize, Serialize};

/// Name of the file on every target.
pub(crate) const MEMBERSHIP_FILE: &str = "gabion.json";
/// Longest file that is read, in bytes.
pub(crate) const MEMBERSHIP_BYTES_MAX: usize = 1 << 20;
const FORMAT_VERSION: u32 = 1;

/// A target's membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) deployment: DeploymentId,
    pub(crate) target: TargetId,
    pub(crate) failure_domain: String,
    /// Geometry that the deployment was formatted for.
    pub(crate) geometry: Geometry,
    /// All targets of the deployment.
    pub(crate) members: Vec<TargetId>,
}

/// The file, field by field; `crc64` is that of the same JSON with an empty `crc64`.
#[derive(Serialize, Deserialize)]
struct File {
    format_version: u32,
    deployment: String,
    target: String,
    failure_domain: String,
    geometry: String,
    members: Vec<String>,
    crc64: String,
}

impl Membership {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut file = File {
            format_version: FORMAT_VERSION,
            deployment: self.deployment.to_string(),
            target: self.target.to_string(),
            failure_domain: self.failure_domain.clone(),
            geometry: self.geometry.to_string(),
            members: self.members.iter().map(ToString::to_string).collect(),
            crc64: String::new(),
        };
        file.crc64 = checksum(&file);
        let mut bytes = serde_json::to_vec_pretty(&file).expect("strings and numbers are JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if file.format_version != FORMAT_VERSION {
            return Err(format!("format version {} is not known to this program", file.format_version));
        }
        let found = std::mem::take(&mut file.crc64);
        if checksum(&file) != found {
            return Err("its checksum does not fit: it was changed or damaged".to_owned());
        }
        let members = file.members.iter().map(|id| id.parse()).collect::<Result<Vec<TargetId>, _>>();
        let this = Self {
            deployment: file.deployment.parse().map_err(text)?,
            target: file.target.parse().map_err(text)?,
            failure_domain: file.failure_domain,
            geometry: file.geometry.parse().map_err(text)?,
            members: members.map_err(text)?,
        };
        if !this.members.contains(&this.target) {
            return Err("it does not name its own target among the members".to_owned());
        }
        Ok(this)
    }
}

/// The file, with the checksum put right: what a fuzzer can not do.
#[cfg(feature = "fuzzing")]
pub(crate) fn with_checksum(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut file: File = serde_json::from_slice(bytes).ok()?;
    file.crc64.clear();
    file.crc64 = checksum(&file);
    serde_json::to_vec(&file).ok()
}

fn checksum(file: &File) -> String {
    let bytes = serde_json::to_vec(file).expect("strings and numbers are JSON");
    format!("{:016x}", crc64(&bytes))
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership() -> Membership {
        Membership {
            deployment: DeploymentId::from_u128(1),
            target: TargetId::from_u128(3),
            failure_domain: "rack \"2\"".to_owned(),
            geometry: "4+2".parse().unwrap(),
            members: (2..8).map(TargetId::from_u128).collect(),
        }
    }

    #[test]
    fn round_trips() {
        assert_eq!(Membership::decode(&membership().encode()), Ok(membership()));
    }

    #[test]
    fn refuses_what_was_changed() {
        let text = String::from_utf8(membership().encode()).unwrap();
        for (from, to) in
            [("rack", "rock"), ("4+2", "4+1"), ("\"format_version\": 1", "\"format_version\": 2"), ("{", "")]
        {
            assert!(Membership::decode(text.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
    }
}
